"""Bounds on what ended attempts leave in the store; epochs that wait keep their way back."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint.answers import BeginAnswer, Failed, Queued, Submit, Triggered, UpstreamsNotReady
from airflow_cairn.checkpoint.documents.attempt import Owner, StageSpec
from airflow_cairn.checkpoint.documents.head import MAX_UNFINISHED
from airflow_cairn.checkpoint.errors import InvalidConfigError, NotTriggeredError
from airflow_cairn.checkpoint.reasons import Reason, RequestKind
from tests.support.narrowing import expect
from tests.support.shut_down import shut_down
from tests.support.world.world import CONFIG, TIMEOUT, World
from tests.support.wrapped_stores import RecordingStore

pytestmark = pytest.mark.usefixtures("parsed_documents")

MANY = MAX_UNFINISHED + 6
MANY_ATTEMPTS = 8
"""Number of attempts of each of `MAX_UNFINISHED` epochs; the history holds fewer."""
LINE = (StageSpec("clean"), StageSpec("enrich", upstream=("clean",)))


def expire(world: World) -> None:
    world.clock.advance(TIMEOUT + timedelta(seconds=1))
    world.coordinator().progress("first")  # the next look at the job settles it


def pause(world: World) -> None:
    world.coordinator().pause()
    world.coordinator().unpause()


def decline(world: World) -> None:
    (entry,) = world.coordinator().head().pending
    world.coordinator().abort(entry.id, Reason.CHECKPOINT_DECLINED, "clean: ValueError: bad row")


ENDS = {"expired": expire, "paused": pause, "declined": decline}


def job(tolerable: int = 1_000, places: int = 1) -> World:
    """A job with one completed epoch and one stage."""
    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=tolerable, max_concurrent_checkpoints=places))
    world.stages = world.stages[:1]
    world.run_epoch("first")
    return world


def leave(world: World, epochs: list[str], end: Callable[[World], None] = expire) -> None:
    """Run epochs whose attempt ends, and that are heard of no more."""
    for epoch in epochs:
        world.trigger(epoch)
        world.run_stage(epoch, "clean") if end is pause else world.submit(epoch, "clean")
        end(world)
        world.coordinator().clean()


def names(number: int) -> list[str]:
    return [f"lost-{index:03d}" for index in range(number)]


def documents(world: World) -> list[str]:
    return [key for key in world.memory.all_keys() if "/pending-" in key]


@pytest.mark.parametrize("completes", [True, False], ids=["others complete", "nothing completes"])
@pytest.mark.parametrize("tolerable", [1_000, 0], ids=["tolerated", "job failed"])
@pytest.mark.parametrize("end", ENDS)
def test_what_ended_attempts_leave_is_bounded(end: str, tolerable: int, completes: bool) -> None:  # semantics C3, D5
    world = job(tolerable)
    sizes, listings = [], []
    for index, epoch in enumerate(names(MANY)):
        leave(world, [epoch], ENDS[end])
        if completes:
            world.run_epoch(f"between-{index}")
        cleaning = RecordingStore(world.store)
        world.coordinator(cleaning).clean()
        sizes.append(len(world.memory.all_keys()))
        listings.append(sum(cleaning.requests.values()))
        assert len(documents(world)) <= MAX_UNFINISHED + 1
    # An epoch that never completed keeps its fixed slice (T8).
    assert sizes[-1] - sizes[-2] <= 1
    assert listings[-1] <= max(listings[: MAX_UNFINISHED + 1])


def test_the_newest_of_them_go_on_by_themselves() -> None:  # semantics D5, S1
    world = job()
    epochs = names(MAX_UNFINISHED)
    leave(world, epochs)
    oldest = epochs[0]
    assert world.next_attempt(oldest).attempt == 2
    world.run_stage(oldest, "clean")
    world.coordinator().complete(world.pending_id(oldest))


def test_one_that_is_left_behind_says_so_and_runs_again_from_its_trigger() -> None:  # semantics T8, F2
    world = job()
    epochs = names(MAX_UNFINISHED + 1)
    leave(world, epochs[:1])
    document = documents(world)
    leave(world, epochs[1:])
    oldest = epochs[0]
    assert document[0] not in documents(world)
    found = expect(Failed, world.coordinator().go_on(oldest))
    assert found.left_behind
    assert not found.tolerated
    with pytest.raises(InvalidConfigError, match="clear\\) the task that triggers"):
        world.coordinator().begin(oldest, "clean", world.new_claimant())
    fixed = world.trigger(oldest).pending
    assert (fixed.attempt, fixed.slice.detail) == (2, {"of": oldest})
    assert world.run_epoch(oldest) == fixed.checkpoint
    assert world.folded()["clean"] == ["first", oldest]


def test_what_was_left_behind_stays_so() -> None:
    """The cleaner builds on it: what it deletes may not be asked for by a slower one."""
    world = job()
    epochs = names(MAX_UNFINISHED + 1)
    leave(world, epochs)
    world.run_epoch(*epochs[1:])
    found = expect(Failed, world.coordinator().go_on(epochs[0]))
    assert found.left_behind


def test_an_epoch_in_the_line_goes_on_however_many_have_ended() -> None:  # semantics T2, C2
    """A run of the schedule whose attempt was tolerated, and people who ask for one run after the other before it."""
    world = job()
    scheduled = replace(world.request("waits", Owner("flights", "waits")), kind=RequestKind.PERIODIC)
    assert isinstance(world.coordinator().trigger(scheduled), Triggered)
    expire(world)
    world.trigger("by-hand")
    assert isinstance(world.coordinator().begin("waits", "clean", world.new_claimant()), Queued)
    for epoch in names(MANY):
        world.coordinator().trigger(world.request(epoch, Owner("flights", epoch)))
        (entry,) = world.coordinator().head().pending
        world.coordinator().abort(entry.id, Reason.CHECKPOINT_EXPIRED, "slow")
        assert isinstance(world.coordinator().trigger(world.request(epoch)), Triggered)
        world.coordinator().clean()
    (entry,) = world.coordinator().head().pending
    world.coordinator().abort(entry.id, Reason.CHECKPOINT_EXPIRED, "slow")
    assert world.next_attempt("waits").attempt == 2


def test_all_that_may_be_pending_at_once_go_on_after_a_pause() -> None:  # semantics S1
    places = 2 * MAX_UNFINISHED
    world = job(places=places)
    epochs = names(places)
    for epoch in epochs:
        world.trigger(epoch)
    pause(world)
    world.coordinator().clean()
    assert len(documents(world)) == places
    for epoch in epochs:
        assert world.next_attempt(epoch).attempt == 2


@pytest.mark.parametrize("later", [0, 1, MAX_UNFINISHED - 1, MAX_UNFINISHED, MAX_UNFINISHED + 3])
@pytest.mark.parametrize("attempts", [1, MANY_ATTEMPTS], ids=["an attempt each", "many attempts each"])
def test_a_cleared_stage_of_a_failed_run_goes_on_as_long_as_it_is_promised(
    later: int, attempts: int
) -> None:  # semantics F4, O1
    """The attempt failed for good, other runs have completed since, and cleaners have come by."""
    world = World(stages=LINE)
    world.run_epoch("first")
    world.trigger("failed")
    world.run_stage("failed", "clean")
    claimant = world.submit("failed", "enrich").handover.claimant
    world.coordinator().fail("failed", "enrich", claimant, "boom", final=True, curable=False)
    for epoch in names(later):
        for _ in range(attempts - 1):
            world.trigger(epoch)
            (entry,) = world.coordinator().head().pending
            world.coordinator().abort(entry.id, Reason.JOB_FAILOVER_REGION, "one of many")
        world.run_epoch(epoch)
    world.coordinator().clean()

    def begin() -> BeginAnswer:
        return world.coordinator().begin("failed", "enrich", "the cleared try", cleared_by_user=True)

    if later >= MAX_UNFINISHED and attempts == 1:
        with pytest.raises(NotTriggeredError, match="the task that triggers"):
            begin()
        return
    answer = begin()
    if not later:
        assert isinstance(answer, Submit), "clean has acknowledged on the same base"
        return
    assert isinstance(answer, UpstreamsNotReady), "another checkpoint has completed since, so clean runs again too"
    assert [each.stage for each in answer.restarted] == ["clean"]
    assert answer.restarted[0].claimant, "the process that clears it can compare"
    world.run_epoch("failed")
    assert world.folded()["enrich"] == ["first", *names(later), "failed"]


def test_a_job_that_was_stopped_starts_its_epoch_over() -> None:  # semantics S1, R5
    """Whether a cleaner has come by makes no difference."""
    for cleaned in (False, True):
        world = World(stages=LINE)
        world.trigger("stopped")
        world.run_stage("stopped", "clean")
        shut_down(world.coordinator())
        world.coordinator().resume()
        if cleaned:
            world.coordinator().clean()
        with pytest.raises(NotTriggeredError, match="the task that triggers"):
            world.coordinator().begin("stopped", "enrich", "cleared", cleared_by_user=True)
