"""A failure that is reported late: the dead try's driver acknowledges, and its next try has been and gone (F5).

The task's process was killed and its driver lives on. The callback runs in the dag processor; beside it the next try
finds the acknowledgement, and succeeds. Nobody would run the stage again, had the callback replaced its execution.
"""

import pytest

from airflow_cairn.checkpoint.answers import (
    FailedOver,
    NothingToDo,
    Restarted,
    StageAcknowledged,
    Submit,
    UpstreamsNotReady,
    Waiting,
)
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.reasons import AckAnswer
from tests.support.narrowing import expect
from tests.support.world.exchanges import CHAIN
from tests.support.world.world import World
from tests.support.wrapped_stores import InterleavingStore

ITSELF = Restarted("routes", "")


@pytest.fixture
def driver(world: World) -> Handover:
    """What the driver of `routes` was told by a try whose process is dead."""
    world.stages = CHAIN
    world.trigger("a")
    world.run_stage("a", "clean")
    return world.submit("a", "routes", "routes-1").handover


def late_report(world: World, driver: Handover, *, meanwhile: bool = True) -> FailedOver:
    """Report the dead try; right before the swap the driver acknowledges and the next try asks."""

    def others() -> None:
        assert world.drive(driver) is AckAnswer.SUCCESS
        answer = world.coordinator().begin("a", "routes", "routes-2", try_number=2, first_try=1)
        assert isinstance(answer, StageAcknowledged)

    store = InterleavingStore(world.store, "replace", 0, others if meanwhile else list, suffix="head.json")
    return expect(FailedOver, world.coordinator(store).fail("a", "routes", "routes-1", "killed"))


def test_a_stage_whose_next_try_has_passed_runs_again(world: World, driver: Handover) -> None:
    # semantics F5
    assert ITSELF in late_report(world, driver).restarted
    assert "routes" in world.coordinator().unclaimed("a")
    world.run_epoch("a")
    assert world.coordinator().unclaimed("a") == frozenset()
    world.audit("a")


def test_a_reader_that_came_and_went_before_the_swap_is_named(world: World, driver: Handover) -> None:
    # semantics F5
    def reads() -> None:
        assert world.drive(driver) is AckAnswer.SUCCESS
        world.run_stage("a", "report")

    store = InterleavingStore(world.store, "replace", 0, reads, suffix="head.json")
    answer = expect(FailedOver, world.coordinator(store).fail("a", "routes", "routes-1", "killed"))
    assert "report" in {each.stage for each in answer.restarted if each.claimant}
    assert "report" in world.coordinator().unclaimed("a")
    world.run_epoch("a")
    world.audit("a")


def test_who_waits_is_told_if_the_report_dies_right_after_its_swap(world: World, driver: Handover) -> None:
    # semantics F5
    late_report(world, driver)
    waiting = expect(Waiting, world.coordinator().progress("a"))
    assert ITSELF in waiting.restarted
    world.run_stage("a", "clean")
    answer = expect(UpstreamsNotReady, world.coordinator().begin("a", "report", "report-1"))
    assert ITSELF in answer.restarted


def test_a_stage_that_is_tried_again_by_itself_is_not_named_by_its_report(world: World, driver: Handover) -> None:
    # semantics F1, F5
    assert ITSELF not in late_report(world, driver, meanwhile=False).restarted


def test_a_report_after_the_acknowledgement_changes_nothing(world: World, driver: Handover) -> None:
    # semantics F5
    assert world.drive(driver) is AckAnswer.SUCCESS
    assert isinstance(world.coordinator().fail("a", "routes", "routes-1", "killed"), NothingToDo)


def test_the_end_of_a_cleared_try_is_reported_under_the_id_of_the_next(world: World) -> None:
    # semantics F5
    """Airflow gives a task that is cleared while it runs a new id, and reports the end of the old try under it."""
    world.trigger("a")
    assert isinstance(world.coordinator().begin("a", world.stages[0].uid, "next", try_number=3), Submit)
    before = world.coordinator().head()
    late = world.coordinator().fail("a", world.stages[0].uid, "next", "killed", try_number=2)
    assert late == NothingToDo("try 3 holds the current attempt; the failure is settled already")
    assert world.coordinator().head() == before
    assert isinstance(world.coordinator().fail("a", world.stages[0].uid, "next", "killed", try_number=3), FailedOver)
