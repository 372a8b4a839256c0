"""The failure manager: what counts, once per id, and what a job that has failed does (semantics D5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint.answers import Failed, Ready, Submit, Waiting
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason, Status
from airflow_cairn.checkpoint.rules.failures import FailureCount, count_failure
from tests.support.narrowing import expect, known
from tests.support.shut_down import shut_down
from tests.support.world.failing import COUNTS, fail_once, tolerant
from tests.support.world.world import TIMEOUT, World


@pytest.mark.parametrize(
    ("checkpoint", "newest_success", "counted"),
    [(7, None, True), (7, 6, True), (7, 8, False), (None, None, True), (None, 8, True)],
    ids=["no success yet", "newer", "older", "no id", "no id, after a success"],
)
def test_what_is_older_than_the_last_success_is_not_counted(
    checkpoint: int | None, newest_success: int | None, counted: bool
) -> None:  # semantics D5
    found = count_failure(1, Reason.IO_EXCEPTION, 9, checkpoint=checkpoint, newest_success=newest_success)
    assert found == FailureCount(2 if counted else 1, job_fails=False)


@given(limit=st.integers(0, 5), reasons=st.lists(st.sampled_from(Reason), max_size=40))
def test_the_job_fails_after_one_more_than_it_puts_up_with(limit: int, reasons: list[Reason]) -> None:  # semantics D5
    count = failed = 0
    for checkpoint, reason in enumerate(reasons, 1):
        found = count_failure(count, reason, limit, checkpoint=checkpoint, newest_success=None)
        count, failed = found.count, failed + found.job_fails
        assert 0 <= count <= limit
    counted = sum(COUNTS[reason] for reason in reasons)
    assert (failed, count) == divmod(counted, limit + 1)


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
        document = known(world.coordinator().pending_document(pending))
        ends.append((pending.id, pending.attempt, {uid: each.home for uid, each in document.executions.items()}))
        world.run_epoch("a")
        world.audit("a")
    assert ends[0] == ends[1] == (2, 2, {"clean": 1, "routes": 2, "airports": 1, "report": 2})


def test_what_has_acknowledged_or_still_runs_is_not_run_again() -> None:  # semantics D5, D2, F2
    """All stages but one are done when the checkpoint expires: the next attempt waits for that one alone."""
    world = tolerant(1)
    world.trigger("a")
    world.run_stage("a", *(stage.uid for stage in world.stages[:-1]))
    running = world.submit("a", "report").handover
    world.clock.advance(TIMEOUT)
    found = expect(Waiting, world.coordinator().go_on("a"))
    assert (found.checkpoint, found.missing) == (2, ("report",))
    assert world.drive(running) == "SUCCESS"
    assert world.coordinator().go_on("a") == Ready(2)
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
    found = expect(Waiting, world.coordinator().go_on("a"))
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
    found = expect(Failed, world.coordinator().go_on("a"))
    assert not found.tolerated


def test_stopping_keeps_the_count_and_takes_nothing_up() -> None:  # semantics S1, D5
    world = tolerant(2)
    world.trigger("a")
    fail_once(world)
    twin = world.fork()
    world.coordinator().begin("a", "clean", world.new_claimant())
    shut_down(world.coordinator())
    head = world.coordinator().head()
    assert (head.pending, head.failures) == ((), 1)
    assert head.history[-1].reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    shut_down(twin.coordinator())
    assert expect(Failed, twin.coordinator().go_on("a")).tolerated
    twin.coordinator().resume()
    assert isinstance(twin.coordinator().go_on("a"), Waiting)


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
    world.bulky = True
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
    head = world.coordinator().head()
    assert (head.history[-1].status, head.history[-1].job_failed, head.failures) == (Status.FAILED, True, 0)
    answer = expect(Submit, world.coordinator().begin("a", "clean", world.new_claimant()))
    assert answer.handover.attempt == 2
