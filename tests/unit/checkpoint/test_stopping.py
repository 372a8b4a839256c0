"""A job stops with a savepoint, or goes on: each way in which the epoch that it waits for ends (semantics P2, S1)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.answers import (
    AlreadyRead,
    Declined,
    EpochCompleted,
    Failed,
    InputRefused,
    Queued,
    Triggered,
    Waiting,
)
from airflow_cairn.checkpoint.config import NoRestart
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import SavepointEntry, Stopped
from airflow_cairn.checkpoint.errors import CheckpointError, InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason, RequestKind, Status
from airflow_cairn.checkpoint.rules.admission import RunState, turn_of
from airflow_cairn.checkpoint.savepoints.savepoint_request import ImportOptions
from airflow_cairn.storage import UnavailableError
from airflow_cairn.storage.port import ObjectStore
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.world.listeners import complete_staged
from tests.support.world.saved import saved
from tests.support.world.savepoints import asked, assert_whole, folder, standing, take
from tests.support.world.world import CONFIG, STAGES, TIMEOUT, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore, RecordingStore

LAST = "drain-1"


@pytest.fixture
def world() -> World:
    """A job with one completed epoch."""
    world = World()
    world.run_epoch("e1")
    return world


def stop(world: World, request: str = "upgrade", *, store: ObjectStore | None = None, **more: Any) -> SavepointEntry:
    return take(world, asked(request, stop=True, **more), store)


def ask(world: World, epoch: str, kind: RequestKind = RequestKind.MANUAL) -> object:
    request = replace(world.request(epoch, Owner("flights", epoch)), kind=kind)
    return world.coordinator().trigger(request)


def test_an_idle_job_stops_at_once_and_starts_from_its_savepoint(world: World) -> None:  # semantics P2, R6, T9
    entry = stop(world)
    assert_whole(world, entry)
    head = world.coordinator().head()
    assert (head.stopped, head.stopping()) == (Stopped.SHUTDOWN, None)
    for kind in RequestKind:
        answer = expect(Declined, ask(world, "e2", kind))
        assert (answer.reason, answer.position) == (Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, None)
        assert "is to be resumed first" in answer.detail
    assert stop(world) == entry, "asked again"
    found = world.coordinator().start_from(folder(world, entry), ImportOptions(give_up=False))
    assert (found.created, found.checkpoint, found.gave_up.anything) == (True, 3, False)
    head = world.coordinator().head()
    assert (head.stopped, head.rewinds, [entry.id for entry in head.completed]) == (None, (), [1, 3])
    assert isinstance(world.ask("e1"), EpochCompleted)
    world.run_epoch("e2")
    assert world.folded()["clean"] == ["e1", "e2"], "nothing is lost"


def test_the_running_epoch_finishes_and_no_other_begins(world: World) -> None:  # semantics P2, T2
    world.trigger("e2")
    assert stop(world).waits
    for kind in RequestKind:
        answer = expect(Declined, ask(world, "e3", kind))
        assert answer.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
        assert answer.position == 1, "it keeps its place, because the stop may fail"
        assert answer.detail.startswith("the job is being stopped with the savepoint s3://elsewhere/savepoints/")
    request = replace(world.request("e3", Owner("flights", "e3")), kind=RequestKind.MANUAL)
    assert world.coordinator().still_waits(turn_of(request)) is not None
    world.run_epoch("e2")
    assert isinstance(ask(world, "e3"), Declined), "also while its files are copied"
    entry = stop(world)
    assert_whole(world, entry)
    assert entry.epoch == "e2"
    head = world.coordinator().head()
    assert (head.stopped, head.waiting) == (Stopped.SHUTDOWN, ())
    assert world.coordinator().still_waits(turn_of(request)) is None


def test_what_failed_within_the_limit_is_not_taken_up(world: World) -> None:  # semantics D5, P2
    world.config = replace(CONFIG, tolerable_failed_checkpoints=3)
    world.trigger("e2")
    world.decline(world.submit("e2", "clean").handover)
    found = expect(Failed, world.coordinator().progress("e2"))
    assert found.tolerated
    world.coordinator().head()
    entry = stop_begun(world)
    assert entry.source is not None, "nothing is pending: it is made of what there is"
    assert isinstance(world.coordinator().go_on("e2"), Failed)
    answer = expect(Queued, world.coordinator().begin("e2", "clean", world.new_claimant()))
    assert "the job is being stopped with the savepoint" in answer.detail
    assert world.coordinator().head().pending == ()


def stop_begun(world: World) -> SavepointEntry:
    """Begin a stop that dies before its first file is copied; gives what it leaves in the head."""
    twin = world.fork()
    recording = RecordingStore(twin.store)
    stop(twin, store=recording)
    first = next(at for at, write in enumerate(recording.writes) if "/state/" in write.key)
    with suppress(Crashed):
        stop(world, store=FaultyStore(world.store, first, Fault.CRASH_BEFORE))
    return known(world.coordinator().head().stopping())


def test_if_it_does_not_end_in_time_the_job_goes_on(world: World) -> None:  # semantics P2, D2
    stop_begun(world)
    assert isinstance(ask(world, "e2"), Declined)
    world.clock.advance(timedelta(hours=2))
    assert isinstance(ask(world, "e2"), Triggered)
    assert stop(world).status is Status.FAILED
    assert world.coordinator().head().stopped is None


def test_if_its_state_is_damaged_the_job_goes_on(world: World) -> None:  # semantics P2
    world.files.delete([next(key for key in world.referred() if "/state/" in key)])
    entry = stop(world)
    assert entry.status is Status.FAILED
    assert standing(world, entry) == []
    head = world.coordinator().head()
    assert (head.stopped, head.stopping()) == (None, None)


def test_whoever_resumes_the_job_gives_the_stop_up(world: World) -> None:  # semantics S1
    stop_begun(world)
    world.coordinator().resume()
    entry = stop(world)
    assert (entry.status, entry.detail) == (Status.FAILED, "the job was resumed before it had stopped")
    assert standing(world, entry) == []
    assert world.run_epoch("e2") == 3


@pytest.mark.parametrize("waits", [False, True], ids=["being copied", "waiting for a running epoch"])
def test_whoever_goes_back_gives_the_stop_up(world: World, waits: bool) -> None:  # semantics R5, P2
    world.run_epoch("e2")
    if waits:
        world.trigger("e3")
    twin = world.fork()
    for job in (world, twin):
        stop(job) if waits else stop_begun(job)
    world.coordinator().rewind(1, abort_pending=True)
    made = twin.coordinator().start_from(saved(twin, checkpoint=1)).checkpoint
    for job, detail in ((world, "rewound to checkpoint 1"), (twin, f"started from a savepoint, as checkpoint {made}")):
        entry = stands(job)
        assert entry.status is Status.FAILED
        assert f"the job was {detail}" in entry.detail
        assert job.coordinator().head().stopped is None
        job.run_epoch("e2")
        assert job.folded()["clean"] == ["e1", "e2"]


def test_it_stops_once(world: World) -> None:
    entry = stop_begun(world)
    with raises_code("savepoint_refused", match=r"being stopped with another savepoint already.*request=`upgrade`"):
        stop(world, "another")
    with raises_code("savepoint_refused", match=r"already, with which the job stops\. Choose another"):
        take(world, asked("upgrade"))
    nightly = take(world, asked("nightly"))
    with raises_code("savepoint_refused", match="already, with which the job does not stop"):
        stop(world, "nightly")
    assert nightly.status is Status.COMPLETED, "one that stops nothing is in nobody's way"
    assert stop(world).id == entry.id


def test_of_several_that_run_the_first_to_complete_is_the_last(world: World) -> None:  # semantics P2, S1
    world.config = replace(CONFIG, max_concurrent_checkpoints=2)
    world.trigger("e2")
    late = world.trigger("e3").pending.checkpoint
    stop(world)
    world.run_epoch("e2")
    entry = stop(world)
    assert (entry.status, entry.epoch) == (Status.COMPLETED, "e2")
    ended = known(world.coordinator().head().ended_by_id(late))
    assert ended.reason is Reason.CHECKPOINT_SUBSUMED
    assert world.coordinator().head().waiting == ()
    assert isinstance(world.coordinator().go_on("e3"), Failed), "the job is stopped"
    world.coordinator().resume()
    assert isinstance(world.coordinator().go_on("e3"), Waiting)


def test_the_last_epoch_is_told_that_it_is_the_last(world: World) -> None:  # semantics P2
    world.trigger("e2")
    entry = stop(world, drain=LAST)
    assert (entry.waits, entry.epoch) == (True, LAST)
    assert world.submit("e2", "clean").handover.draining is False
    world.run_epoch("e2")
    assert stop(world, drain=LAST).waits, "the epoch that ran is not the last one"
    assert isinstance(ask(world, "e3"), Declined)
    assert world.trigger(LAST).pending.draining
    assert world.submit(LAST, "clean").handover.draining
    world.run_epoch(LAST)
    entry = stop(world, drain=LAST)
    assert_whole(world, entry)
    assert entry.epoch == LAST
    assert world.coordinator().head().stopped is Stopped.SHUTDOWN


def test_a_drained_job_that_does_not_stop_goes_on_from_its_last_checkpoint(world: World) -> None:  # semantics P2
    stop(world, drain=LAST)
    world.run_stages(LAST)
    drained = world.pending_id(LAST)
    world.clock.advance(timedelta(minutes=9))
    world.coordinator().resume()
    ended = known(world.coordinator().head().ended_by_id(drained))
    assert ended.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    assert ended.detail == "the job was to stop after this epoch, and goes on: its savepoint has failed"
    with pytest.raises(CheckpointError, match="did not complete"):
        world.coordinator().complete(drained)
    again = world.trigger(LAST).pending
    assert (again.draining, again.restore and again.restore.checkpoint) == (False, 1)
    assert world.submit(LAST, "clean").handover.draining is False, "nothing that was drained is taken over"


def test_what_was_drained_is_not_taken_over(world: World) -> None:  # semantics P2, F2
    world.config = replace(CONFIG, tolerable_failed_checkpoints=3)
    stop(world, drain=LAST)
    world.trigger(LAST)
    world.run_stage(LAST, "clean")
    world.decline(world.submit(LAST, "airports").handover)
    world.coordinator().progress(LAST)
    assert world.coordinator().head().carryable(LAST) is not None
    world.coordinator().resume()
    again = world.trigger(LAST).pending
    assert (again.draining, again.executions["clean"].home) == (False, again.checkpoint)


def test_the_last_epoch_ends_with_its_savepoint(world: World) -> None:  # semantics P2, D2
    world.config = replace(CONFIG, timeout=timedelta(days=1))
    stop(world, drain=LAST)
    world.run_stages(LAST)
    drained = world.pending_id(LAST)
    world.clock.advance(timedelta(hours=2))
    with pytest.raises(CheckpointError, match="goes on: its savepoint has failed"):
        world.coordinator().complete(drained)
    assert world.coordinator().head().latest_id() == 1


def test_a_last_epoch_needs_a_stop() -> None:
    with pytest.raises(InvalidConfigError, match="give stop too"):
        asked("x", drain=LAST)


Way = Callable[[World], object]
"""Brings what is pending of e2 to its end, without completing it."""


def stands(world: World, request: str = "upgrade") -> SavepointEntry:
    """The stop as the head has it, without asking for it again."""
    return known(world.coordinator().head().savepoint_by_request(request))


def refusing(world: World) -> Coordinator:
    """A coordinator of a job whose source has nothing for any run."""
    coordinator = world.coordinator()
    coordinator._trigger._placement.place = lambda *_: InputRefused("events", "no asset has been updated")  # type: ignore[method-assign]
    return coordinator


def over(run_id: str) -> Callable[[Owner], RunState]:
    """An Airflow in which one run has ended, and all others go on."""
    return lambda owner: RunState.ENDED if owner.run_id == run_id else RunState.RUNNING


def aborted(reason: Reason) -> Way:
    return lambda world: world.coordinator().abort(world.pending_id("e2"), reason, "as it happens")


def metadata_that_is_foreign(world: World) -> None:
    """Every stage has acknowledged, and the metadata cannot be written (C6)."""
    world.run_stages("e2")
    entry = known(world.coordinator().head().pending_of_epoch("e2"))
    world.memory.put(f"flights/chk-{entry.id:010d}/_metadata-{entry.token}", b"something else\n")
    with pytest.raises(CheckpointError, match="FINALIZE_CHECKPOINT_FAILURE"):
        world.coordinator().complete(entry.id)


def declined_as_closing(world: World) -> None:
    """A decline that does not count (D5)."""
    world.decline(world.submit("e2", "clean").handover, reason=Reason.CHECKPOINT_DECLINED_TASK_CLOSING)
    world.coordinator().progress("e2")


def declined(world: World) -> None:
    world.decline(world.submit("e2", "clean").handover)
    world.coordinator().progress("e2")


def expired(world: World) -> None:
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("e2")


def of_a_run_that_has_ended(world: World) -> None:
    world.coordinator().trigger(world.request("e3", Owner("dag", "e3")), state_of=over("e2"))


def stages_changed_and_source_refuses(world: World) -> None:
    """The attempt ends because the DAG has changed, and its trigger then finds nothing to read."""
    request = replace(world.request("e2", Owner("dag", "e2")), stages=STAGES[:3])
    assert isinstance(refusing(world).trigger(request), InputRefused)


def no_restart_is_left(world: World) -> None:
    submitted = world.submit("e2", "clean", "a try")
    assert submitted.handover.claimant == "a try"
    world.coordinator().fail("e2", "clean", "a try", "the driver was killed", final=True)


WAYS: dict[str, tuple[Way, Reason]] = {
    "aborted: FINALIZE_CHECKPOINT_FAILURE": (metadata_that_is_foreign, Reason.FINALIZE_CHECKPOINT_FAILURE),
    "a decline that does not count": (declined_as_closing, Reason.CHECKPOINT_DECLINED_TASK_CLOSING),
    "expired above the limit": (expired, Reason.CHECKPOINT_EXPIRED),
    "the DAG run has ended": (of_a_run_that_has_ended, Reason.JOB_FAILURE),
    "its DAG changed, and its source refuses": (stages_changed_and_source_refuses, Reason.TRIGGER_CHECKPOINT_FAILURE),
    "no restart is left": (no_restart_is_left, Reason.JOB_FAILURE),
    "restored by hand": (lambda world: world.coordinator().restore_latest(), Reason.CHECKPOINT_COORDINATOR_SUSPEND),
    **{
        f"aborted: {reason}": (aborted(reason), reason)
        for reason in (
            Reason.JOB_FAILURE,
            Reason.CHECKPOINT_COORDINATOR_SUSPEND,
            Reason.CHECKPOINT_DECLINED,
            Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER,
            Reason.CHECKPOINT_ASYNC_EXCEPTION,
            Reason.IO_EXCEPTION,
            Reason.TRIGGER_CHECKPOINT_FAILURE,
        )
    },
    "given up by a person": (lambda world: world.coordinator().resume(), Reason.CHECKPOINT_COORDINATOR_SUSPEND),
}
"""Each way for an attempt to end (`transitions.abort` and its callers), and why the stop fails then."""


@pytest.mark.parametrize(("way", "reason"), WAYS.values(), ids=WAYS.keys())
def test_the_end_of_the_epoch_settles_the_stop(world: World, way: Way, reason: Reason) -> None:  # semantics P2
    if way is no_restart_is_left:
        world.config = replace(CONFIG, restart_strategy=NoRestart())
    world.coordinator().trigger(world.request("e2", Owner("dag", "e2")))
    assert stop(world).waits
    assert isinstance(world.coordinator().trigger(world.request("e3")), Declined)
    way(world)
    entry = stands(world)
    assert (entry.status, entry.reason) == (Status.FAILED, reason), "in the same swap, and nobody has asked again"
    assert entry.detail
    head = world.coordinator().head()
    assert (head.stopped, head.stopping()) == (None, None)
    for pending in head.pending:
        world.coordinator().abort(pending.id, Reason.JOB_FAILURE, "so that nothing else is in the way")
    assert isinstance(world.ask("e4"), Triggered), "the job goes on"


def test_a_changed_dag_is_no_end(world: World) -> None:  # semantics P2, T9
    world.trigger("e2")
    stop(world)
    world.stages = (*STAGES, StageSpec("late", upstream=("clean",)))
    assert world.trigger("e2").pending.attempt == 2
    assert stands(world).waits


def test_a_savepoint_that_stops_nothing_is_settled_too(world: World) -> None:  # semantics P1
    world.trigger("e2")
    take(world, asked("nightly"))
    aborted(Reason.JOB_FAILURE)(world)
    assert stands(world, "nightly").reason is Reason.JOB_FAILURE


@pytest.mark.parametrize(
    "way",
    [expired, lambda world: world.coordinator().pause(), aborted(Reason.CHECKPOINT_SUBSUMED), declined],
    ids=["expired", "paused", "overtaken", "declined"],
)
def test_an_epoch_that_goes_on_by_itself_is_waited_for(world: World, way: Way) -> None:  # semantics P2, D5, S1, C2
    world.config = replace(CONFIG, tolerable_failed_checkpoints=1)
    world.trigger("e2")
    stop(world)
    way(world)
    assert stands(world).waits
    assert isinstance(world.coordinator().trigger(world.request("e3")), Declined)
    world.coordinator().unpause()
    assert not isinstance(world.coordinator().go_on("e2"), Failed)
    assert world.coordinator().head().pending_of_epoch("e2") is not None
    world.run_epoch("e2")
    assert_whole(world, stop(world))


def test_and_settled_when_its_dag_run_ends(world: World) -> None:  # semantics P2, D5
    world.config = replace(CONFIG, tolerable_failed_checkpoints=1)
    world.coordinator().trigger(world.request("e2", Owner("dag", "e2")))
    stop(world)
    expired(world)
    request = world.request("e3", Owner("dag", "e3"))
    assert isinstance(world.coordinator().trigger(request), Declined)
    assert isinstance(world.coordinator().trigger(request, state_of=over("e2")), Triggered)
    assert "the DAG run e2 has ended" in stands(world).detail


# The job's last run, which has still to begin.


def refused_by_its_source(world: World) -> None:
    assert isinstance(refusing(world).trigger(world.request(LAST)), InputRefused)


def paused_and_periodic(world: World) -> None:
    world.coordinator().pause()
    request = replace(world.request(LAST), kind=RequestKind.PERIODIC)
    assert isinstance(world.coordinator().trigger(request), Declined)


def wrong_for_the_latest_checkpoint(world: World) -> None:
    stages = (replace(STAGES[0], parallelism=3, max_parallelism=7), *STAGES[1:])
    world.stages = tuple(each for each in stages if each.uid != "report")
    with pytest.raises(CheckpointError, match="claims"):
        world.trigger(LAST)
    world.stages = STAGES


def read_already(world: World) -> None:
    """Another run has read the same window of time (T8)."""
    window = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
    coordinator = world.coordinator()
    holds = AlreadyRead(LAST, "2026-01-01 to 2026-01-02", 1, None)
    coordinator._trigger._placement.place = lambda *_: holds  # type: ignore[method-assign]
    assert isinstance(coordinator.trigger(replace(world.request(LAST), slice=window)), AlreadyRead)


def completed_before(world: World) -> None:
    assert isinstance(world.ask("e1"), EpochCompleted)


NEVER: dict[str, tuple[Way, Reason, str]] = {
    "its source has nothing": (refused_by_its_source, Reason.TRIGGER_CHECKPOINT_FAILURE, LAST),
    "its input has been read already": (read_already, Reason.TRIGGER_CHECKPOINT_FAILURE, LAST),
    "it is declined": (paused_and_periodic, Reason.PERIODIC_SCHEDULER_SHUTDOWN, LAST),
    "its request is wrong": (wrong_for_the_latest_checkpoint, Reason.TRIGGER_CHECKPOINT_FAILURE, LAST),
    "it has completed before": (completed_before, Reason.TRIGGER_CHECKPOINT_FAILURE, "e1"),
    "nobody will run it": (lambda world: world.coordinator().give_up_stop(LAST, "gone"), Reason.JOB_FAILURE, LAST),
}
"""Each way in which the job's last run never begins."""


@pytest.mark.parametrize(("way", "reason", "last"), NEVER.values(), ids=NEVER.keys())
def test_a_last_run_that_never_begins_settles_the_stop(world: World, way: Way, reason: Reason, last: str) -> None:
    # semantics P2
    assert stop(world, drain=last).waits
    way(world)
    entry = stands(world)
    assert (entry.status, entry.reason) == (Status.FAILED, reason)
    assert f"the run {last}, which it waited for, does not begin: " in entry.detail
    world.coordinator().unpause()
    assert isinstance(world.ask("e4"), Triggered)


def test_a_last_run_that_has_ended_before_it_began_is_seen_by_others(world: World) -> None:  # semantics P2
    stop(world, drain=LAST)
    request = world.request("e3", Owner("dag", "e3"))
    unknown = world.coordinator().trigger(request, state_of=lambda _: RunState.UNKNOWN)
    assert isinstance(unknown, Declined), "it may not be made yet"
    assert isinstance(world.coordinator().trigger(request, state_of=over(LAST)), Triggered)
    assert stands(world).reason is Reason.JOB_FAILURE


def test_a_last_run_that_is_overtaken_goes_on_and_is_waited_for(world: World) -> None:  # semantics P2, C2
    world.config = replace(CONFIG, max_concurrent_checkpoints=2)
    world.trigger("e2")
    stop(world, drain=LAST)
    world.trigger(LAST)
    world.run_epoch("e2")
    world.coordinator().go_on(LAST)
    assert stands(world).waits
    world.run_epoch(LAST)
    assert_whole(world, stop(world, drain=LAST))


def test_a_failure_that_a_retry_may_cure_is_no_end(world: World) -> None:  # semantics P2, F4
    stop(world, drain=LAST)
    coordinator = world.coordinator()

    def fails(*_: object) -> None:
        raise UnavailableError("the store is away")

    coordinator._trigger._placement.place = fails  # type: ignore[method-assign,assignment]
    with pytest.raises(UnavailableError):
        coordinator.trigger(world.request(LAST))
    assert stands(world).waits
    world.run_epoch(LAST)
    assert_whole(world, stop(world, drain=LAST))


# A job that was drained, and does not stop (semantics P2).


def drained(world: World) -> int:
    """Bring the job's last run to its end; its savepoint is not made yet."""
    stop(world, drain=LAST)
    world.run_epoch(LAST)
    entry = stands(world)
    assert entry.source is not None
    return entry.source.checkpoint


def damaged(world: World) -> None:
    world.files.delete([next(key for key in sorted(world.referred(), reverse=True) if "/state/" in key)])
    stop(world, drain=LAST)


def too_late(world: World) -> None:
    world.clock.advance(timedelta(hours=25))
    world.coordinator().progress("e3")


@pytest.mark.parametrize("retained", [1, 3])
@pytest.mark.parametrize("way", [damaged, too_late, lambda world: world.coordinator().resume()])
def test_a_drained_job_goes_back_to_the_checkpoint_before(world: World, way: Way, retained: int) -> None:
    # semantics P2
    world.config = replace(CONFIG, retained=retained)
    world.run_epoch("e2")
    before = world.coordinator().head().latest_id()
    checkpoint = drained(world)
    way(world)
    entry = stands(world)
    assert entry.status is Status.FAILED
    assert (
        f"The job goes back to the checkpoint before, because its last run had drained it. Clear the run {LAST} to"
        in (entry.detail)
    )
    head = world.coordinator().head()
    assert head.latest_id() == before
    assert (head.rewinds[-1].to, head.rewinds[-1].drained, head.stopped) == (before, checkpoint, None)
    assert world.trigger("e3").pending.restore is not None
    world.run_epoch("e3")
    again = world.trigger(LAST).pending
    assert again.draining is False, "its run is no last one any more, and its input is read"
    world.run_epoch(LAST)
    assert world.folded()["clean"] == ["e1", "e2", "e3", LAST]
    assert all(each.whole for each in world.coordinator().verify())


def test_a_job_that_was_drained_by_its_first_run_goes_back_to_its_start() -> None:  # semantics P2
    world = World()
    world.ask("e0")
    world.coordinator().abort(1, Reason.JOB_FAILURE, "so that there is a job")
    drained(world)
    world.coordinator().resume()
    assert world.coordinator().head().completed == ()
    world.run_epoch("e1")
    assert world.folded()["clean"] == ["e1"]


def test_a_stop_that_has_succeeded_is_not_undone(world: World) -> None:  # semantics P2
    checkpoint = drained(world)
    assert_whole(world, stop(world, drain=LAST))
    world.coordinator().resume()
    assert world.coordinator().head().latest_id() == checkpoint


# Commits owed to two-phase sinks (semantics P2, C4).


def test_a_stop_is_not_reported_before_its_sinks_have_committed(world: World) -> None:  # semantics P2, C4
    complete_staged(world, "e2")
    entry = stop(world)
    assert (entry.status, entry.source is not None) == (Status.PENDING, True)
    coordinator = world.coordinator()
    assert coordinator.held_by_listeners(entry) == ("sink",)
    awaited = coordinator.awaited_by(entry)
    assert "to be notified that a checkpoint has completed: sink. Their run's wait_for_checkpoint" in awaited
    assert coordinator.head().stopped is None, "the sensor and the triggers still run, and tell the sink"
    assert isinstance(world.coordinator().trigger(world.request("e3")), Declined)
    coordinator.deliver(world.ears)
    assert [each.committables[0].value for each in world.ears[0].heard if each.committables] == [{"of": "e2"}]
    assert_whole(world, stop(world))


def test_a_listener_that_is_given_up_holds_no_stop(world: World) -> None:  # semantics P2, C4
    complete_staged(world, "e2")
    assert stop(world).status is Status.PENDING
    world.coordinator().forget_listener("sink")
    assert_whole(world, stop(world))


def test_a_savepoint_that_stops_nothing_waits_for_sinks_alone(world: World) -> None:  # semantics P1, C4
    world.listen("mail")
    world.run_epoch("e2")
    assert_whole(world, take(world, asked("before any sink")))
    complete_staged(world, "e3")
    held = take(world, asked("nightly"))
    assert (held.status, world.coordinator().held_by_listeners(held)) == (Status.PENDING, ("sink",))
    assert not [each for each in world.store.list("") if each.key.startswith(held.folder) and "state" in each.key]
    world.run_epoch("e4")
    world.coordinator().deliver(world.ears)
    made = take(world, asked("nightly"))
    assert (known(made.source).checkpoint, made.epoch) == (known(held.source).checkpoint, "e3")
    assert_whole(world, made)


def test_a_savepoint_whose_sink_never_commits_fails_with_its_name(world: World) -> None:  # semantics P1, D2
    complete_staged(world, "e2")
    take(world, asked("nightly"))
    world.clock.advance(timedelta(hours=2))
    failed = take(world, asked("nightly"))
    assert (failed.status, failed.reason) == (Status.FAILED, Reason.CHECKPOINT_EXPIRED)
    assert failed.detail.endswith("these listeners had not been notified that a checkpoint has completed: sink")
    world.coordinator().forget_listener("sink")
    assert_whole(world, take(world, asked("later")))


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_a_damage_found_while_a_savepoint_waits(world: World, stops: bool, back: bool) -> None:  # semantics C3, C4, P2
    """The savepoint keeps what is left of its checkpoint; who puts the file back, or gives the notice up, ends it."""
    complete_staged(world, "e2")
    wish = asked("nightly", stop=stops)
    entry = take(world, wish)
    metadata = known(entry.source).metadata.key
    whole = world.memory.get(world.files.full(metadata)).data
    world.files.delete([metadata])
    coordinator = world.coordinator()
    if not stops:
        coordinator.rewind(1)  # a stop would be given up by that
    with raises_code("listener", match=r"checkpoint 2 cannot be read.*give the notice up: cairn forget-listener"):
        coordinator.deliver(world.ears)
    assert take(world, wish) == entry
    report = coordinator.clean()
    assert [each.key for each in report.failures] == [world.files.full(metadata)], "it is still to be copied"
    if back:
        world.memory.put(world.files.full(metadata), whole)
        world.coordinator().deliver(world.ears)
        assert_whole(world, take(world, wish))
        return
    world.coordinator().forget_listener("sink", 2)
    failed = take(world, wish)
    assert (failed.status, failed.reason, standing(world, failed)) == (Status.FAILED, Reason.IO_EXCEPTION, [])
    assert "the checkpoint that the savepoint is to be made from is damaged" in failed.detail
    assert world.coordinator().head().stopped is None
    world.coordinator().rewind(1)
    world.coordinator().clean()
    report = world.coordinator().clean()
    assert (report.deleted, report.failures) == (0, ()), "nothing keeps the damaged checkpoint any more"
    assert not [each for each in world.memory.all_keys() if each.startswith("flights/chk-0000000002/state")]
