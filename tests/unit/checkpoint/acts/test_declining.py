"""Declining, expiring, aborting, racing each other and a finisher, and what counts (semantics D1 to D5, F6, T7)."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from airflow_cairn.checkpoint.answers import EpochCompleted, Failed, Submit, Waiting
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import DeclineDocument
from airflow_cairn.checkpoint.documents.attempt import DocumentRef
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidStateError
from airflow_cairn.checkpoint.reasons import COUNTED, DECLINES, Reason, Status
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.checkpoint.rules.partial_completion import Without
from airflow_cairn.checkpoint.rules.transitions import Assembled, Ending
from airflow_cairn.storage import CairnError
from tests.support.narrowing import expect, known
from tests.support.world.failing import fail_once, tolerant
from tests.support.world.lagging import REGIONAL, UNALIGNED, run_some
from tests.support.world.listeners import Listener, trigger_told
from tests.support.world.parties import Ids
from tests.support.world.saved import saved
from tests.support.world.savepoints import take
from tests.support.world.world import CONFIG, JOB, TIMEOUT, World


def test_a_later_decline_changes_nothing(world: World) -> None:  # semantics D1
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    world.decline(handover, "the first")
    world.decline(handover, "the second")
    progress = expect(Failed, world.coordinator().progress("a"))
    assert progress.detail == "clean: the first"
    before = world.coordinator().head()
    world.decline(world.submit("a", "clean").handover, "of the next attempt")
    after = world.coordinator().head().history[:1]
    assert before.history == tuple(replace(each, restarted=()) for each in after)


def test_a_decline_for_another_job_or_for_no_reason_of_a_stage_is_an_error(world: World) -> None:  # semantics D1
    world.trigger("a")
    token = world.submit("a", "clean").handover.token
    before = world.memory.all_keys()
    foreign = DeclineDocument("weather", 1, "a", "clean", token, Reason.CHECKPOINT_DECLINED, "boom")
    with pytest.raises(InvalidStateError, match="of another job"):
        world.coordinator().decline(foreign)
    for reason in (Reason.JOB_FAILOVER_REGION, Reason.CHECKPOINT_EXPIRED, Reason.CHECKPOINT_SUBSUMED):
        with pytest.raises(InvalidStateError, match="cannot decline for this reason"):
            world.coordinator().decline(replace(foreign, job=JOB, reason=reason))
    assert world.memory.all_keys() == before


def test_half_a_decline_has_declined(world: World) -> None:  # semantics D1, W5
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    world.memory.put(f"{JOB}/{layout.decline(1, 'clean', handover.token)}", b'{"kind":"cairn.dec')
    progress = expect(Failed, world.coordinator().progress("a"))
    assert "cannot be read" in progress.detail


Touch = Callable[[World], object]
TOUCHES: dict[str, Touch] = {
    "progress": lambda world: world.coordinator().progress("a"),
    "progress of another epoch": lambda world: world.coordinator().progress("b"),
    "trigger of another epoch": lambda world: world.coordinator().trigger(world.request("b")),
    "complete": lambda world: _quiet(lambda: world.coordinator().complete(1)),
    "begin": lambda world: world.coordinator().begin("a", "clean", "try-9"),
    "fail": lambda world: world.coordinator().fail("a", "clean", "try-1", "boom"),
    "restore": lambda world: world.coordinator().restore_latest(),
}


def _quiet(act: Callable[[], object]) -> None:
    with pytest.raises(CairnError):
        act()


@pytest.mark.parametrize("touch", TOUCHES)
def test_whoever_touches_the_job_next_settles_an_expiry(world: World, touch: str) -> None:  # semantics D2
    world.trigger("a")
    world.submit("a", "clean", "try-1")
    world.clock.advance(TIMEOUT)
    TOUCHES[touch](world)
    first = world.coordinator().head().history[0]
    assert (first.id, first.reason) == (1, Reason.CHECKPOINT_EXPIRED)
    assert first.detail == "not complete after 600 s"


def _complete(world: World) -> object:
    try:
        return world.coordinator().complete(1)
    except CheckpointFailedError as error:
        return error.message


def _abort(world: World) -> object:
    return world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")


def _expire(world: World) -> object:
    world.clock.advance(TIMEOUT)
    return world.coordinator().progress("a")


PARTIES: dict[str, Touch] = {"finisher": _complete, "finisher too": _complete, "aborter": _abort, "expirer": _expire}


@pytest.mark.parametrize("order", list(permutations(PARTIES, 2)), ids=" then ".join)
def test_exactly_one_outcome_and_all_learn_which(order: tuple[str, str]) -> None:  # semantics D3
    """Who comes between the other's look and its swap meets it in `tests/protocol/test_crash_points.py`."""
    world = World()
    world.run_stages("a")
    for party in order:
        PARTIES[party](world)
    (ended,) = world.coordinator().head().history
    answers = [_complete(world), _complete(world)]
    if ended.status is Status.COMPLETED:
        assert answers == [EpochCompleted("a", 1)] * 2
        assert world.coordinator().progress("a") == EpochCompleted("a", 1)
    else:
        assert answers == [f"checkpoint 1 did not complete: {ended.detail} ({ended.reason})"] * 2
        expected = Failed(1, 1, ended.reason or Reason.JOB_FAILURE, ended.detail, job_failed=ended.job_failed)
        assert world.coordinator().progress("a") == expected
    assert not _abort(world), "it has its outcome"
    assert world.coordinator().head().history == (ended,)
    world.run_epoch("a")
    world.audit("a")


def test_details_are_one_short_line(world: World) -> None:  # semantics D1
    world.trigger("a")
    world.decline(world.submit("a", "clean").handover, "first\nsecond\t" + "x" * 9000)
    progress = expect(Failed, world.coordinator().progress("a"))
    assert progress.detail.startswith("clean: first second xxx")
    assert len(progress.detail) == 500


def test_a_detail_that_is_no_utf8_is_kept_as_far_as_it_is(world: World) -> None:  # semantics W5
    checkpoint = world.trigger("a").pending.checkpoint
    assert world.coordinator().abort(checkpoint, Reason.JOB_FAILURE, "caf\udce9")
    assert world.coordinator().head().history[-1].detail == "caf?"


@pytest.mark.parametrize("reason", sorted(DECLINES))
def test_the_first_decline_aborts_with_its_reason(world: World, reason: Reason) -> None:  # semantics D1, D4
    trigger_told(world, "a")
    world.run_stage("a", "clean")
    world.decline(world.submit("a", "routes").handover, "ValueError: bad row", reason=reason)
    expected = Failed(1, 1, reason, "routes: ValueError: bad row", job_failed=reason in COUNTED)
    assert [world.coordinator().progress("a") for _ in range(2)] == [expected, expected]
    ended = world.coordinator().head().history[-1]
    assert (ended.status, ended.acks, ended.stages) == (Status.FAILED, 1, 4)
    listener = Listener()
    world.coordinator().deliver([listener])
    assert listener.told == [(1, reason, None)]


def test_an_id_is_counted_once(world: World) -> None:  # semantics D5, D1
    """Two stages decline, three parties look, and later it would have expired too."""
    world = tolerant(5)
    world.trigger("a")
    world.run_stage("a", "clean")
    handovers = [world.submit("a", stage).handover for stage in ("routes", "airports")]
    for handover in handovers:
        world.decline(handover)
    for _ in range(3):
        world.coordinator().progress("a")
    world.coordinator().abort(1, Reason.CHECKPOINT_DECLINED, "again")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    assert world.coordinator().head().failures == 1


def test_each_attempt_counts_and_a_success_resets() -> None:  # semantics D5
    world = tolerant(2)
    world.trigger("a")
    fail_once(world)
    fail_once(world)
    assert world.coordinator().head().failures == 2
    world.run_epoch("a")
    assert world.coordinator().head().failures == 0
    world.trigger("b")
    fail_once(world, "b")
    assert world.coordinator().head().failures == 1
    world.run_epoch("b")
    world.audit("a", "b")


def test_an_older_failure_does_not_count_after_a_newer_success() -> None:  # semantics D5, C2
    world = tolerant(2)
    world.trigger("a")
    head = world.coordinator().head()
    newer = replace(head.pending[0], checkpoint=2, epoch="b", token="f" * 16)
    completed = transitions.complete(
        replace(head, pending=(newer,), next_id=3),
        newer,
        Assembled(DocumentRef(layout.metadata(2, "f" * 16), 1, "ab" * 32)),
        Without(),
        world.clock.now_ms,
    )
    declined = Ending(Reason.CHECKPOINT_DECLINED, "")
    after = transitions.abort(replace(completed, pending=head.pending), head.pending[0], declined, world.clock.now_ms)
    assert after.failures == 0


def test_above_the_limit_the_job_fails_and_the_count_starts_anew() -> None:  # semantics D5
    world = tolerant(1, concurrent=2)
    world.trigger("a")
    world.trigger("b")
    fail_once(world, "a", "a first time")
    assert world.coordinator().head().pending_of_epoch("b") is not None
    fail_once(world, "a", "a second time")
    head = world.coordinator().head()
    assert (head.pending, head.failures) == ((), 0)
    why = "2 checkpoints in a row failed and tolerable_failed_checkpoints is 1: checkpoint 3: "
    assert [(entry.id, entry.reason, entry.detail, entry.job_failed) for entry in head.history] == [
        (1, Reason.CHECKPOINT_DECLINED, "clean: a first time", False),
        (3, Reason.CHECKPOINT_DECLINED, "clean: a second time", True),
        (2, Reason.JOB_FAILURE, f"{why}clean: a second time (CHECKPOINT_DECLINED)", False),
    ]
    # Nothing takes it up by itself; a retry of a stage starts it again, from where it was.
    expected = Failed(3, 2, Reason.CHECKPOINT_DECLINED, "clean: a second time", tolerated=False, job_failed=True)
    assert world.coordinator().go_on("a") == expected
    assert world.coordinator().go_on("b") == Failed(
        2, 1, Reason.JOB_FAILURE, f"{why}clean: a second time (CHECKPOINT_DECLINED)"
    )
    world.run_epoch("a", "b")
    assert world.folded() == {stage.uid: ["a", "b"] for stage in world.stages}


def test_a_failed_task_does_not_count() -> None:  # semantics D5, F2
    """A retry of the stage, or its callback, comes before anybody looks: that is a failover, and the job goes on."""
    world = tolerant(0)
    world.trigger("a")
    world.decline(world.submit("a", "clean", "first try").handover)
    world.coordinator().fail("a", "clean", "first try", "exit status 1")
    head = world.coordinator().head()
    assert (head.history[-1].reason, head.failures) == (Reason.JOB_FAILOVER_REGION, 0)
    assert isinstance(world.coordinator().go_on("a"), Waiting)


def test_a_decline_after_the_ack_cancels_and_reruns_nothing(world: World) -> None:  # semantics B4, D1, F2
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    world.drive(handover)
    world.decline(handover)
    assert isinstance(world.coordinator().progress("a"), Waiting)
    world.submit("a", "routes", "first")
    world.coordinator().fail("a", "routes", "first", "killed")
    entry = world.coordinator().head().pending[0]
    document = known(world.coordinator().pending_document(entry))
    assert (document.attempt, document.executions["clean"].token) == (2, handover.token), "carried over"
    world.run_epoch("a")
    world.audit("a")


def test_of_two_that_expire_at_once_each_ends_once() -> None:  # semantics D2, D3, D5
    """The first is one too many, so the job fails, and that ends the second."""
    world = tolerant(0, concurrent=2)
    world.trigger("a")
    world.trigger("b")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    head = world.coordinator().head()
    assert [(entry.id, entry.reason) for entry in head.history] == [
        (1, Reason.CHECKPOINT_EXPIRED),
        (2, Reason.JOB_FAILURE),
    ]
    assert (head.pending, head.counters.failed) == ((), 2)


Look = Callable[[World], object]

LOOKS: dict[str, Look] = {
    "the sensor": lambda world: world.coordinator().progress("b"),
    "go on": lambda world: world.coordinator().go_on("b"),
    "complete": lambda world: world.coordinator().complete(2),
    "abort": lambda world: world.coordinator().abort(2, Reason.JOB_FAILURE, "by hand"),
    "the same trigger": lambda world: world.ask("b"),
    "another trigger": lambda world: world.ask("c"),
    "the next try": lambda world: world.coordinator().begin("b", "clean", "a new try"),
    "a callback": lambda world: world.coordinator().fail("b", "report", "the last try", "killed"),
    "pause": lambda world: world.coordinator().pause(),
    "unpause": lambda world: world.coordinator().unpause(),
    "resume": lambda world: world.coordinator().resume(),
    "restore by hand": lambda world: world.coordinator().restore_latest(),
    "a rewind": lambda world: world.coordinator().rewind(1, abort_pending=True),
    "the plan of a rewind": lambda world: world.coordinator().rewind_plan(1),
    "a savepoint": take,
    "a start from a savepoint": lambda world: world.coordinator().start_from(saved(world)),
    "the plan of a start": lambda world: world.coordinator().start_plan(saved(world)),
}


def _second(config: object = CONFIG, *stages: str) -> World:
    """A job whose first epoch is complete, and of whose second these stages have acknowledged."""
    world = World(config=config)  # type: ignore[arg-type]
    world.run_epoch("a")
    run_some(world, "b", *(stages or [each.uid for each in world.stages[:-1]]))
    if not stages:
        answer = expect(Submit, world.coordinator().begin("b", "report", "the last try"))
        world.drive(answer.handover)
    world.clock.advance(10 * TIMEOUT)
    return world


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize(
    ("second", "facts"),
    [
        ((), {"status": Status.COMPLETED, "acks": 4, "left_out": ()}),
        ((REGIONAL, "clean", "routes", "report"), {"status": Status.COMPLETED, "left_out": ("airports",)}),
        # The alignment timeout was over long before the checkpoint's, and nobody looked.
        ((UNALIGNED, "clean", "routes", "report"), {"status": Status.COMPLETED, "left_out": ("airports",)}),
        ((CONFIG, "clean"), {"reason": Reason.CHECKPOINT_EXPIRED, "acks": 1}),
    ],
    ids=["all have acknowledged", "it may do without the silent stage", "without one that lags", "it lacks a stage"],
)
def test_how_a_late_checkpoint_ends_whoever_looks(look: Look, second: Any, facts: Any) -> None:  # semantics D2, F6
    world = _second(*second)
    with suppress(CairnError):
        look(world)
    world.coordinator().resume()
    head = world.coordinator().head()
    ended = known(head.ended_by_id(2))
    assert {name: getattr(ended, name) for name in facts} == facts
    assert second or head.failures == 0


def test_the_ack_that_makes_it_whole_counts_though_it_is_late() -> None:  # semantics D2, A2
    world = World()
    run_some(world, "a", "clean", "routes", "airports")
    last = world.submit("a", "report").handover
    world.clock.advance(TIMEOUT)
    assert world.drive(last) == "SUCCESS"
    assert world.coordinator().progress("a") == EpochCompleted("a", 1)


@pytest.mark.parametrize("seen", [False, True], ids=["first seen by the hook", "seen by another before"])
def test_an_answer_of_a_hook_after_the_timeout_counts_for_nothing(seen: bool) -> None:  # semantics D2, T7
    class Slow(Ids):
        """A hook that answers after its checkpoint has expired."""

        slow = True

        def trigger(self, checkpoint: int, timestamp_ms: int) -> object:
            if self.slow:
                world.clock.advance(TIMEOUT)
                if seen:
                    world.coordinator().progress("a")
            self.slow = False
            return super().trigger(checkpoint, timestamp_ms)

    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=1))
    world.hooks = (Slow(),)
    with pytest.raises(CheckpointFailedError, match="ended while its master hooks were being asked"):
        world.ask("a")
    ended = known(world.coordinator().head().ended_by_id(1))
    assert ended.reason is Reason.CHECKPOINT_EXPIRED
    found = expect(Waiting, world.coordinator().go_on("a"))
    assert found.hooks == ("ids",), "they are asked again"
    world.run_epoch("a")
    world.audit("a")
