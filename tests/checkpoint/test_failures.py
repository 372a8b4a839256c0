"""The failure manager: what counts, once per id, and what a job that has failed does (semantics D5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import decisions, failures, layout
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidConfigError
from airflow_cairn.checkpoint.failures import Weighed, weigh
from airflow_cairn.checkpoint.model import DocumentRef
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.requests import EpochCompleted, Failed, Ready, Submit, Waiting
from tests.checkpoint.world import CONFIG, TIMEOUT, World

COUNTS = {
    Reason.CHECKPOINT_COORDINATOR_SHUTDOWN: False,
    Reason.PERIODIC_SCHEDULER_SHUTDOWN: False,
    Reason.ALREADY_QUEUED: False,
    Reason.TOO_MANY_CHECKPOINT_REQUESTS: False,
    Reason.TOO_MANY_CONCURRENT_CHECKPOINTS: False,
    Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS: False,
    Reason.NOT_ALL_REQUIRED_TASKS_RUNNING: False,
    Reason.IO_EXCEPTION: True,
    Reason.TRIGGER_CHECKPOINT_FAILURE: False,
    Reason.CHECKPOINT_DECLINED: True,
    Reason.CHECKPOINT_DECLINED_TASK_NOT_READY: False,
    Reason.CHECKPOINT_DECLINED_TASK_CLOSING: False,
    Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER: False,
    Reason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM: False,
    Reason.CHECKPOINT_ASYNC_EXCEPTION: True,
    Reason.CHECKPOINT_EXPIRED: True,
    Reason.CHECKPOINT_SUBSUMED: False,
    Reason.CHECKPOINT_COORDINATOR_SUSPEND: False,
    Reason.JOB_FAILURE: False,
    Reason.JOB_FAILOVER_REGION: False,
    Reason.FINALIZE_CHECKPOINT_FAILURE: False,
}


def tolerant(limit: int, concurrent: int = 1) -> World:
    return World(config=replace(CONFIG, tolerable_failed_checkpoints=limit, max_concurrent_checkpoints=concurrent))


def fail_once(world: World, epoch: str = "a", detail: str = "boom") -> None:
    """Let the epoch's first stage decline in the attempt that is pending, and somebody look."""
    world.decline(world.submit(epoch, "clean").handover, detail)
    world.coordinator().progress(epoch)


@pytest.mark.parametrize("reason", list(Reason))
def test_which_reasons_count(reason: Reason) -> None:  # semantics D5
    """Every reason there is stands in the table, so that a new one is decided about."""
    expected = Weighed(1, job_fails=False) if COUNTS[reason] else Weighed(0, job_fails=False)
    assert weigh(0, reason, 9, checkpoint=7, newest_success=None) == expected
    assert weigh(0, reason, 0, checkpoint=7, newest_success=None) == Weighed(0, job_fails=COUNTS[reason])


@pytest.mark.parametrize(
    ("checkpoint", "newest_success", "counted"),
    [(7, None, True), (7, 6, True), (7, 8, False), (None, None, True), (None, 8, True)],
    ids=["no success yet", "newer", "older", "no id", "no id, after a success"],
)
def test_what_is_older_than_the_last_success_is_not_counted(
    checkpoint: int | None, newest_success: int | None, counted: bool
) -> None:  # semantics D5
    found = weigh(1, Reason.IO_EXCEPTION, 9, checkpoint=checkpoint, newest_success=newest_success)
    assert found == Weighed(2 if counted else 1, job_fails=False)


@given(limit=st.integers(0, 5), reasons=st.lists(st.sampled_from(Reason), max_size=40))
def test_the_job_fails_after_one_more_than_it_puts_up_with(limit: int, reasons: list[Reason]) -> None:  # semantics D5
    count = failed = 0
    for checkpoint, reason in enumerate(reasons, 1):
        found = weigh(count, reason, limit, checkpoint=checkpoint, newest_success=None)
        count, failed = found.count, failed + found.job_fails
        assert 0 <= count <= limit
    counted = sum(COUNTS[reason] for reason in reasons)
    assert (failed, count) == divmod(counted, limit + 1)


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
    newer = replace(head.pending[0], id=2, epoch="b", token="f" * 16)
    completed = decisions.complete(
        replace(head, pending=(newer,), next_id=3),
        newer,
        metadata=DocumentRef(layout.metadata(2, "f" * 16), 1, "ab" * 32),
        size_bytes=0,
        tables={},
        now_ms=world.clock.now_ms,
    )
    after = decisions.abort(
        replace(completed, pending=head.pending), head.pending[0], Reason.CHECKPOINT_DECLINED, "", world.clock.now_ms
    )
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
    why = "2 checkpoints in a row failed and tolerable_failed_checkpoints is 1: checkpoint 3: CHECKPOINT_DECLINED: "
    assert [(entry.id, entry.reason, entry.detail, entry.job_failed) for entry in head.history] == [
        (1, Reason.CHECKPOINT_DECLINED, "clean: a first time", False),
        (3, Reason.CHECKPOINT_DECLINED, "clean: a second time", True),
        (2, Reason.JOB_FAILURE, f"{why}clean: a second time", False),
    ]
    # Nothing takes it up by itself; a retry of a stage starts it again, from where it was.
    expected = Failed(3, 2, Reason.CHECKPOINT_DECLINED, "clean: a second time", tolerated=False, job_failed=True)
    assert world.coordinator().go_on("a") == expected
    assert world.coordinator().go_on("b") == Failed(2, 1, Reason.JOB_FAILURE, f"{why}clean: a second time")
    world.run_epoch("a")
    world.run_epoch("b")
    assert world.folded() == {stage.uid: ["a", "b"] for stage in world.stages}


def test_by_default_the_first_failure_fails_the_job(world: World) -> None:  # semantics D5
    world.trigger("a")
    fail_once(world)
    head = world.coordinator().head()
    assert (head.history[-1].job_failed, head.failures) == (True, 0)


def test_a_failed_task_does_not_count() -> None:  # semantics D5, F2
    """A retry of the stage, or its callback, comes before anybody looks: that is a failover, and the job goes on."""
    world = tolerant(0)
    world.trigger("a")
    world.decline(world.submit("a", "clean", "first try").handover)
    world.coordinator().fail("a", "clean", "first try", "exit status 1")
    head = world.coordinator().head()
    assert (head.history[-1].reason, head.failures) == (Reason.JOB_FAILOVER_REGION, 0)
    assert isinstance(world.coordinator().go_on("a"), Waiting)


def test_whoever_comes_first_the_next_attempt_is_the_same() -> None:  # semantics D5, F5
    """Within the limit it makes no difference to the run whether the sensor or the stage's callback is quicker."""
    ends = []
    for sensor_first in (True, False):
        world = tolerant(1)
        world.trigger("a")
        world.run_stage("a", "clean")
        world.decline(world.submit("a", "routes", "first try").handover)
        if sensor_first:
            assert isinstance(world.coordinator().go_on("a"), Waiting)
            world.coordinator().fail("a", "routes", "first try", "exit status 1")
        else:
            world.coordinator().fail("a", "routes", "first try", "exit status 1")
            assert isinstance(world.coordinator().go_on("a"), Waiting)
        (pending,) = world.coordinator().head().pending
        document = world.coordinator().pending_document(pending)
        assert document is not None
        ends.append((pending.id, pending.attempt, {uid: each.home for uid, each in document.executions.items()}))
        world.run_epoch("a")
        world.audit("a")
    assert ends[0] == ends[1] == (2, 2, {"clean": 1, "routes": 2, "airports": 1, "report": 2})


def test_what_has_acknowledged_is_not_run_again() -> None:  # semantics D5, D2
    """All stages are done when the checkpoint expires: the next attempt is ready at once."""
    world = tolerant(1)
    world.run_stages("a")
    world.clock.advance(TIMEOUT)
    assert world.coordinator().go_on("a") == Ready(2)
    assert world.coordinator().complete(2) == EpochCompleted("a", 2)
    world.audit("a")


def test_a_stage_that_still_runs_goes_on() -> None:  # semantics D5, D2, F2
    world = tolerant(1)
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    world.clock.advance(TIMEOUT)
    assert isinstance(world.coordinator().go_on("a"), Waiting)
    assert world.drive(handover) == "SUCCESS"
    world.run_epoch("a")
    world.audit("a")


def test_a_broken_acknowledgement_counts() -> None:  # semantics D5
    world = tolerant(1)
    world.run_stages("a")
    key = next(each.key for each in world.files.listing("chk-0000000001/acks/clean/"))
    world.store.delete([world.files.full(key)])
    world.files.create_bytes(key, b"{}")
    with pytest.raises(CheckpointFailedError, match="IO_EXCEPTION"):
        world.coordinator().complete(1)
    assert world.coordinator().head().failures == 1
    found = world.coordinator().go_on("a")
    assert isinstance(found, Waiting)
    assert found.missing == ("airports", "clean", "report", "routes")


def test_metadata_that_cannot_be_written_does_not_count() -> None:  # semantics D5, C6
    world = tolerant(0)
    world.run_stages("a")
    entry = world.coordinator().head().pending[0]
    world.files.create_bytes(layout.metadata(entry.id, entry.token), b"somebody else's")
    with pytest.raises(CheckpointFailedError, match="FINALIZE_CHECKPOINT_FAILURE"):
        world.coordinator().complete(1)
    ended = world.coordinator().head().history[-1]
    assert (ended.job_failed, world.coordinator().head().failures) == (False, 0)
    found = world.coordinator().go_on("a")
    assert isinstance(found, Failed)
    assert not found.tolerated


def test_suspending_keeps_the_count() -> None:  # semantics S1, D5
    world = tolerant(2)
    world.trigger("a")
    fail_once(world)
    world.coordinator().begin("a", "clean", world.new_claimant())
    world.coordinator().suspend()
    head = world.coordinator().head()
    assert (head.pending, head.failures) == ((), 1)
    assert head.history[-1].reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND


def test_a_stopped_job_takes_nothing_up() -> None:  # semantics S1, D5
    world = tolerant(2)
    world.trigger("a")
    fail_once(world)
    world.coordinator().suspend()
    found = world.coordinator().go_on("a")
    assert isinstance(found, Failed)
    assert found.tolerated
    world.coordinator().resume()
    assert isinstance(world.coordinator().go_on("a"), Waiting)


def test_the_next_attempt_waits_for_a_place() -> None:  # semantics D5, T6
    world = tolerant(2)
    world.trigger("a")
    fail_once(world)
    world.trigger("b")
    assert isinstance(world.coordinator().go_on("a"), Failed)
    world.run_epoch("b")
    assert isinstance(world.coordinator().go_on("a"), Waiting)
    world.run_epoch("a")
    world.audit("b", "a")


def test_an_attempt_that_left_nothing_needs_a_trigger() -> None:  # semantics D5
    world = tolerant(2)
    pending = world.trigger("a").pending
    world.clock.advance(TIMEOUT)
    world.store.delete([world.files.full(layout.pending(pending.checkpoint, pending.token))])
    with pytest.raises(InvalidConfigError, match=r"run \(or clear\) the task that triggers the checkpoint"):
        world.coordinator().go_on("a")
    world.run_epoch("a")


def test_a_stage_may_start_the_job_again() -> None:  # semantics D5
    """Above the limit nobody waits any more; the stage's own retry is the restart."""
    world = World()
    world.trigger("a")
    fail_once(world)
    answer = world.coordinator().begin("a", "clean", world.new_claimant())
    assert isinstance(answer, Submit)
    assert answer.handover.attempt == 2
    assert world.coordinator().head().history[-1].status is Status.FAILED


def test_the_verdict_reads_well() -> None:
    assert failures.verdict(1, 0, "checkpoint 3: CHECKPOINT_EXPIRED: not complete after 60 s") == (
        "1 checkpoint failed and tolerable_failed_checkpoints is 0: checkpoint 3: CHECKPOINT_EXPIRED: not complete "
        "after 60 s"
    )
