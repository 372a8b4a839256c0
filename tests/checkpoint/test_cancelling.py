"""A stage that cannot take part passes the cancellation on (semantics B4)."""

from __future__ import annotations

import pytest

from airflow_cairn.checkpoint import acks
from airflow_cairn.checkpoint.cancelling import root_cause
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.requests import Cancelled, Failed, StageAcknowledged, Submit
from tests.checkpoint.world import World


@pytest.mark.parametrize("stage", ["routes", "report"])
def test_who_reads_from_a_stage_that_declined_submits_nothing(world: World, stage: str) -> None:  # semantics B4
    pending = world.trigger("a").pending
    world.decline(world.submit("a", "clean").handover, "ValueError: bad row")
    answer = world.coordinator().begin("a", stage, world.new_claimant())
    assert answer == Cancelled(1, 1, "clean", "ValueError: bad row")
    found = acks.read_decline(world.files, stage, pending.executions[stage])
    assert found is not None
    assert found.reason is Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    assert "clean" in found.detail


def test_the_cause_is_the_stage_that_declined_by_itself(world: World) -> None:  # semantics B4, D1
    world.trigger("a")
    world.run_stage("a", "clean")
    world.decline(world.submit("a", "routes").handover, "ValueError: bad row")
    assert isinstance(world.coordinator().begin("a", "report", world.new_claimant()), Cancelled)
    # `report` sorts before `routes`, and is not to blame.
    expected = Failed(1, 1, Reason.CHECKPOINT_DECLINED, "routes: ValueError: bad row")
    assert world.coordinator().progress("a") == expected


def test_what_reads_nothing_from_it_takes_part(world: World) -> None:  # semantics B4
    world.trigger("a")
    world.run_stage("a", "clean")
    world.decline(world.submit("a", "routes").handover)
    assert isinstance(world.coordinator().begin("a", "airports", world.new_claimant()), Submit)


def test_a_decline_after_the_acknowledgement_cancels_nothing(world: World) -> None:  # semantics B4, D1
    world.trigger("a")
    handover = world.submit("a", "clean").handover
    world.drive(handover)
    world.decline(handover)
    assert isinstance(world.coordinator().begin("a", "routes", world.new_claimant()), Submit)


def test_the_next_attempt_runs_both_anew(world: World) -> None:  # semantics B4, F1, F2
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    world.run_stage("b", "airports")
    world.decline(world.submit("b", "routes").handover)
    cancelled = world.new_claimant()
    assert isinstance(world.coordinator().begin("b", "report", cancelled), Cancelled)
    world.coordinator().fail("b", "report", cancelled, "cancelled")
    world.submit("b", "routes")
    assert isinstance(world.coordinator().begin("b", "airports", world.new_claimant()), StageAcknowledged)
    assert isinstance(world.coordinator().begin("b", "report", world.new_claimant()), Submit)
    world.run_epoch("b")
    world.audit("a", "b")


def test_a_cause_is_asked_for_only_where_one_declined(world: World) -> None:
    with pytest.raises(ValueError, match="no stage has declined"):
        root_cause(world.files, {}, ())
