"""Triggering: pre-checks, the line, the pause, ids, the fixed slice, idempotence (semantics T1 to T9)."""

import threading
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import RequestKind
from airflow_cairn.checkpoint.answers import Declined, Submit, TriggerAnswer, Triggered
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import EpochDocument, Owner, Slice
from airflow_cairn.checkpoint.documents.head import MAX_WAITING
from airflow_cairn.checkpoint.errors import InvalidStateError, NotTriggeredError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.checkpoint.rules.admission import RunState
from tests.support.errors import raises_code
from tests.support.narrowing import expect
from tests.support.world.master_hooks import SECOND, asking, run, states, triggered
from tests.support.world.parties import Ids
from tests.support.world.savepoints import asked, take
from tests.support.world.world import CONFIG, JOB, STAGES, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore, RecordingStore


def test_the_slice_of_the_first_trigger_is_everyone_s(world: World) -> None:  # semantics T8, O2
    world.trigger("a")
    fixed = world.request("a").slice
    document, _ = world.files.read(EpochDocument, layout.epoch_slice("a"))
    assert document == EpochDocument(JOB, "a", fixed)
    other = replace(world.request("a"), slice=Slice("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"))
    world.coordinator().abort(world.pending_id("a"), Reason.JOB_FAILURE, "by hand")
    assert expect(Triggered, world.coordinator().trigger(other)).pending.slice == fixed
    assert world.submit("a", "clean").handover.slice == fixed


def test_the_slice_of_a_racing_first_trigger_is_everyone_s(world: World) -> None:  # semantics T8
    other = replace(world.request("a"), slice=Slice(detail={"of": "somebody else"}))
    store = InterleavingStore(world.store, "create", 0, lambda: world.coordinator().trigger(other), "epochs/a.json")
    answer = world.trigger("a", store)
    assert answer.pending.slice == other.slice
    assert not answer.created


def test_triggering_again_gives_the_same_checkpoint(world: World) -> None:  # semantics T9
    first = world.trigger("a")
    world.stages = tuple(reversed(STAGES))  # the order in which they are declared means nothing
    again = world.trigger("a")
    assert (first.created, again.created) == (True, False)
    assert first.pending == again.pending


def test_too_many_pending_checkpoints_decline_the_next_one(world: World) -> None:  # semantics T1
    owner = Owner("dag", "run a")
    world.coordinator().trigger(world.request("a", owner))
    answer = world.coordinator().trigger(world.request("b"))
    assert answer == Declined(
        Reason.TOO_MANY_CONCURRENT_CHECKPOINTS,
        "checkpoint 1 of DAG run run a is pending and max_concurrent_checkpoints is 1; place 1 in the queue",
        position=1,
    )


def test_the_limit_holds_against_a_racing_trigger_of_another_epoch(world: World) -> None:  # semantics T6
    world.run_epoch("z")
    store = InterleavingStore(world.store, "replace", 0, lambda: world.trigger("a"))
    assert isinstance(world.coordinator(store).trigger(world.request("b")), Declined)
    assert [entry.epoch for entry in world.coordinator().head().pending] == ["a"]


def test_an_epoch_whose_dag_run_has_ended_holds_nobody_up(world: World) -> None:  # semantics T1
    owner = Owner("dag", "run a")
    world.coordinator().trigger(world.request("a", owner))
    answer = world.coordinator().trigger(
        world.request("b"), state_of=lambda each: RunState.ENDED if each == owner else RunState.RUNNING
    )
    assert isinstance(answer, Triggered)
    ended = world.coordinator().head().history[-1]
    assert (ended.epoch, ended.reason, ended.detail) == ("a", Reason.JOB_FAILURE, "the DAG run run a has ended")


def test_a_dag_that_changed_while_its_epoch_was_pending_gets_a_new_attempt(world: World) -> None:  # semantics T9, F2
    world.trigger("a")
    world.run_stage("a", "clean", "airports")
    world.stages = tuple(
        replace(stage, parallelism=2) if stage.uid == "airports" else stage for stage in STAGES if stage.uid != "report"
    )
    answer = world.trigger("a")
    assert (answer.created, answer.pending.attempt) == (True, 2)
    assert {uid: each.home for uid, each in answer.pending.executions.items()} == {
        "clean": 1,
        "routes": 2,
        "airports": 2,
    }
    world.run_epoch("a")
    world.audit("a")


def test_a_pending_document_that_is_lost_is_no_dead_end(world: World) -> None:  # semantics W5, T9
    world.bulky = True
    world.run_epoch("z")
    pending = world.trigger("a").pending
    world.store.delete([f"{JOB}/{layout.pending(pending.checkpoint, pending.token)}"])
    assert world.trigger("a").pending.checkpoint == 3
    assert world.coordinator().head().history[-1].reason is Reason.IO_EXCEPTION
    world.run_epoch("a")
    world.audit("z", "a")


def test_a_lost_head_is_never_taken_for_a_new_job(world: World) -> None:  # semantics T5, W3
    world.run_epoch("a")
    world.store.delete([f"{JOB}/head.json"])
    for act in (lambda: world.trigger("b"), world.coordinator().head, world.coordinator().clean):
        with raises_code("head_lost", match="going on would use ids again"):
            act()
    world.store.delete([found.key for found in world.store.list(f"{JOB}/chk-0000000001/")])
    with raises_code("head_lost"):  # the epochs alone say that the job has run
        world.trigger("b")


def test_a_slice_that_no_reader_would_take_back_is_refused(world: World) -> None:  # semantics W5, T8
    large = replace(world.request("a"), slice=Slice(detail={"files": ["x" * 100] * 11_000}))
    with pytest.raises(InvalidStateError, match="Put less into slice_detail"):
        world.coordinator().trigger(large)
    deep: object = "leaf"
    for _ in range(30):
        deep = [deep]
    with pytest.raises(InvalidStateError, match="nested more than 20 deep"):
        world.coordinator().trigger(replace(world.request("a"), slice=Slice(detail={"deep": deep})))
    with pytest.raises(InvalidStateError, match="cannot be stored as JSON"):
        world.coordinator().trigger(replace(world.request("a"), slice=Slice(detail={"at": float("nan")})))
    assert world.trigger("a").created, "nothing of it was left behind"


def _ask(world: World, epoch: str, kind: RequestKind = RequestKind.PERIODIC) -> TriggerAnswer:
    """A request that keeps its place in the line: its DAG run can be asked about."""
    request = replace(world.request(epoch, Owner("dag", f"run {epoch}")), kind=kind)
    return world.coordinator().trigger(request)


def _declined(answer: TriggerAnswer) -> Reason:
    assert isinstance(answer, Declined), answer
    return answer.reason


@pytest.mark.parametrize("end", ["completed", "aborted", "expired"])
def test_when_a_checkpoint_ends_the_next_waiting_request_is_considered(world: World, end: str) -> None:
    """semantics T2, D2"""
    _ask(world, "a")
    assert _declined(_ask(world, "b")) is Reason.TOO_MANY_CONCURRENT_CHECKPOINTS
    assert _declined(_ask(world, "b")) is Reason.ALREADY_QUEUED
    if end == "completed":
        world.run_epoch("a")
    elif end == "aborted":
        world.coordinator().abort(world.pending_id("a"), Reason.JOB_FAILURE, "by hand")
    else:
        world.clock.advance(TIMEOUT - timedelta(milliseconds=1))
        assert isinstance(_ask(world, "b"), Declined)
        world.clock.advance(timedelta(milliseconds=1))
    assert isinstance(_ask(world, "b"), Triggered)
    expected = {"completed": None, "aborted": Reason.JOB_FAILURE, "expired": Reason.CHECKPOINT_EXPIRED}[end]
    assert world.coordinator().head().history[-1].reason is expected


@pytest.mark.parametrize(
    ("waiting", "left"),
    [
        ((("m1", RequestKind.MANUAL), ("p1", RequestKind.PERIODIC)), ["m1", "x"]),
        ((("m1", RequestKind.MANUAL), ("m2", RequestKind.MANUAL)), ["m1", "m2"]),
    ],
    ids=["drops its last periodic request", "refuses the new one if it holds none"],
)
def test_a_full_queue(
    world: World, monkeypatch: pytest.MonkeyPatch, waiting: tuple[tuple[str, RequestKind], ...], left: list[str]
) -> None:  # semantics T2
    assert MAX_WAITING == 1000
    monkeypatch.setattr(transitions, "MAX_WAITING", 2)
    _ask(world, "a")
    for epoch, kind in waiting:
        _ask(world, epoch, kind)
    expected = Reason.TOO_MANY_CONCURRENT_CHECKPOINTS if "x" in left else Reason.TOO_MANY_CHECKPOINT_REQUESTS
    assert _declined(_ask(world, "x", RequestKind.MANUAL)) is expected
    assert [each.epoch for each in world.coordinator().head().waiting] == left


def test_the_pause_begins_with_a_completion_and_with_nothing_else(world: World) -> None:  # semantics T3
    world.config = replace(CONFIG, min_pause=timedelta(minutes=1))
    _ask(world, "a")
    world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
    assert isinstance(_ask(world, "b"), Triggered), "an abort starts no pause"
    world.run_epoch("b")
    answer = _ask(world, "c")
    assert _declined(answer) is Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS
    assert expect(Declined, answer).retry_at_ms == world.clock.now_ms + 60_000, "rescheduled for the moment it ends"


def test_savepoints_ignore_the_pause_and_start_a_pause_themselves(world: World) -> None:  # semantics T4
    world.config = replace(CONFIG, min_pause=timedelta(minutes=1))
    world.run_epoch("z")
    assert take(world).status is Status.COMPLETED, "within the pause"
    world.clock.advance(timedelta(seconds=59))
    assert take(world, asked("another")).status is Status.COMPLETED
    world.clock.advance(timedelta(seconds=59))
    answer = expect(Declined, _ask(world, "b"))
    assert (answer.reason, answer.retry_at_ms) == (Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, world.clock() + 1_000)
    world.clock.advance(timedelta(seconds=1))
    assert isinstance(_ask(world, "b"), Triggered)


def test_the_life_of_a_hook(world: World) -> None:  # semantics T7, R2, R5
    ids = Ids()
    at = world.clock.now_ms
    run(world, "a", ids)
    world.clock.advance(SECOND)
    run(world, "b", ids)
    first, second = {"first": 1, "next": 11}, {"first": 11, "next": 21}
    assert ids.calls == [("reset",), ("trigger", 1, at), ("restore", 1, first), ("trigger", 2, at + 1000)]
    assert (states(world, 1), states(world, 2)) == ({"ids": first}, {"ids": second})
    world.audit("a", "b")


@pytest.mark.parametrize("step", ["reset", "trigger", "restore"])
def test_a_hook_that_fails_aborts_and_is_named(world: World, step: str) -> None:  # semantics T7
    ids, epochs = Ids(), ["a", "b"]
    if step == "restore":
        run(world, "a", ids)
    epoch = epochs[step == "restore"]
    ids.fails_in = step
    with raises_code("master_hook", match=f"the master hook ids failed in {step}: ConnectionError") as caught:
        triggered(world, epoch, ids)
    assert isinstance(caught.value.__cause__, ConnectionError)
    (*_, ended) = world.coordinator().head().history
    assert ended.reason is Reason.TRIGGER_CHECKPOINT_FAILURE
    assert "the database is down" in ended.detail
    ids.fails_in = None
    run(world, epoch, ids)
    world.audit(*epochs[: 1 + (step == "restore")])


def test_a_hook_that_hangs_is_left_behind(world: World) -> None:  # semantics T7
    stop = threading.Event()
    ids = Ids()
    ids.timeout = timedelta(milliseconds=50)
    ids.answer = lambda: stop.wait(300)
    try:
        with raises_code("master_hook", match=r"was not done with trigger after 0\.05 s"):
            triggered(world, "a", ids)
        (left,) = (thread for thread in threading.enumerate() if thread.name == "cairn-hook-ids-trigger")
        assert left.daemon, "it does not keep its process from ending"
    finally:
        stop.set()
    left.join(300)
    assert not left.is_alive()
    assert world.coordinator().head().pending == ()


def test_a_new_hook_gets_none_and_an_old_one_its_own(world: World) -> None:  # semantics T7
    one, two = Ids("one"), Ids("two")
    run(world, "a", one)
    triggered(world, "b", two, one)
    assert (one.calls[-2], two.calls[0]) == (("restore", 1, {"first": 1, "next": 11}), ("restore", 1, None))


def test_state_that_no_hook_claims(world: World) -> None:  # semantics T7, R3
    one, two = Ids("one"), Ids("two")
    run(world, "a", one)
    with raises_code("non_restored_state", match=r"no master hook claims.*unclaimed=`one` hooks=`two`"):
        triggered(world, "b", two)
    with raises_code("non_restored_state", match="no master hook claims"):
        world.coordinator().trigger(asking(world, "b"))
    choice = world.coordinator().restore_latest()
    with raises_code("non_restored_state", match="no master hook claims"):
        world.coordinator().restore_hooks(choice, [two])
    assert two.calls == []
    world.coordinator().restore_hooks(choice, [two], allow_non_restored_state=True)
    triggered(world, "b", two, allow=True)
    assert two.calls[1] == ("restore", 1, None)


def test_a_request_within_the_pause_keeps_its_place_before_later_ones(world: World) -> None:  # semantics T2, T3
    world.config = replace(CONFIG, min_pause=timedelta(minutes=1))
    world.run_epoch("a")
    for epoch in ("b", "c"):
        assert isinstance(_ask(world, epoch), Declined)
    assert [each.epoch for each in world.coordinator().head().waiting] == ["b", "c"]
    world.clock.advance(timedelta(minutes=1))
    assert _declined(_ask(world, "c")) is Reason.ALREADY_QUEUED, "b is before it"
    assert isinstance(_ask(world, "b"), Triggered)


def test_an_application_is_given_its_slice_without_the_positions(world: World) -> None:  # semantics T8
    """Positions are the job's business, and may be large."""
    world.count()
    pending = world.trigger("a").pending
    assert pending.slice.positions is not None
    handed = world.submit("a", "clean").handover.slice
    assert handed == replace(pending.slice, positions=None)


@pytest.mark.parametrize("meanwhile", [False, True], ids=["alone", "another triggers after the look"])
def test_a_stage_that_triggers_looks_once_before(world: World, *, meanwhile: bool) -> None:
    """semantics T9: its own trigger finds what has happened since that look."""
    world.run_epoch("a")
    store = RecordingStore(world.store)
    task = world.coordinator(store)
    with pytest.raises(NotTriggeredError, match="no checkpoint is pending for the epoch"):
        task.begin("b", "clean", "try-1", triggers=True)
    assert store.requests == {"get": 1}
    if meanwhile:
        world.trigger("b")
    answer = expect(Triggered, task.trigger(world.request("b")))
    assert (answer.pending.checkpoint, answer.created) == (2, not meanwhile)
    assert isinstance(task.begin("b", "clean", "try-1", triggers=True), Submit)
    world.run_epoch("b")
    world.audit("a", "b")
