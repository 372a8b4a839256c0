"""Barriers: what an epoch reads, the step before the snapshot, and cancellation passed on (semantics B1 to B5)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from airflow_cairn.checkpoint.answers import Cancelled, Failed, Ready, StageAcknowledged, Submit, Waiting
from airflow_cairn.checkpoint.documents.attempt import Execution, Slice
from airflow_cairn.checkpoint.errors import CheckpointNotReadyError, InvalidStateError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.spark import Epoch
from tests.real.spark.pipeline import Pipeline
from tests.support.narrowing import known
from tests.support.world.lagging import ALIGNMENT, UNALIGNED, complete_without, run_some
from tests.support.world.world import STAGES, World
from tests.support.wrapped_stores import RecordingStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("stage", ["routes", "report"])
def test_who_reads_from_a_stage_that_declined_submits_nothing(world: World, stage: str) -> None:  # semantics B4
    pending = world.trigger("a").pending
    world.decline(world.submit("a", "clean").handover, "ValueError: bad row")
    answer = world.coordinator().begin("a", stage, world.new_claimant())
    assert answer == Cancelled(1, 1, "clean", "ValueError: bad row")
    found = known(acks.read_decline(world.files, stage, pending.executions[stage]))
    assert found.reason is Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
    assert "clean" in found.detail


def test_behind_tasks_that_have_succeeded_no_decline_is_looked_for(world: World) -> None:  # semantics B4
    world.trigger("a")
    world.run_stage("a", "clean")
    store = RecordingStore(world.store)
    begun = world.coordinator(store).begin("a", "routes", world.new_claimant(), after_success=True)
    assert isinstance(begun, Submit)
    assert store.requests == {"get": 1, "create": 1}, "the head, the handover"


def test_the_cause_is_the_stage_that_declined_by_itself(world: World) -> None:  # semantics B4, D1
    world.trigger("a")
    world.run_stage("a", "clean")
    world.decline(world.submit("a", "routes").handover, "ValueError: bad row")
    assert isinstance(world.coordinator().begin("a", "report", world.new_claimant()), Cancelled)
    assert isinstance(world.coordinator().begin("a", "airports", world.new_claimant()), Submit), "reads nothing from it"
    # `report` sorts before `routes`, and is not to blame.
    expected = Failed(1, 1, Reason.CHECKPOINT_DECLINED, "routes: ValueError: bad row", job_failed=True)
    assert world.coordinator().progress("a") == expected


def test_the_next_attempt_runs_both_anew(world: World) -> None:  # semantics B4, F1, F2
    world.run_epoch("a")
    world.trigger("b")
    world.run_stage("b", "clean", "airports")
    world.decline(world.submit("b", "routes").handover)
    cancelled = world.new_claimant()
    assert isinstance(world.coordinator().begin("b", "report", cancelled), Cancelled)
    world.coordinator().fail("b", "report", cancelled, "cancelled")
    world.run_stage("b", "routes")
    assert isinstance(world.coordinator().begin("b", "airports", world.new_claimant()), StageAcknowledged)
    assert isinstance(world.coordinator().begin("b", "report", world.new_claimant()), Submit)
    world.run_epoch("b")
    world.audit("a", "b")


def _opened(folder: Path) -> tuple[Pipeline, Submit, Epoch]:
    """Give a stage's epoch that needs no Spark, because it only puts values."""
    pipeline = Pipeline(f"file://{folder}/lake", None)
    pipeline.trigger("day1")
    submit = pipeline.begin("day1")
    return pipeline, submit, Epoch(cast("SparkSession", None), pipeline.store, submit.handover)


def _execution(submit: Submit) -> Execution:
    return Execution(submit.handover.token, submit.handover.checkpoint, submit.handover.attempt)


def test_a_pre_barrier_step_runs_without_other_writes(tmp_path: Path) -> None:  # semantics B5
    pipeline, submit, epoch = _opened(tmp_path)
    with epoch:
        epoch.before_snapshot(lambda: epoch.put("sequence", 7))
        assert epoch.get("sequence") is None
    assert acks.read_ack(pipeline.coordinator.files, "routes", _execution(submit)).values == {"sequence": 7}


def test_a_stage_whose_pre_barrier_step_fails_declines(tmp_path: Path) -> None:  # semantics B5, D1
    pipeline, submit, epoch = _opened(tmp_path)

    def fail() -> None:
        raise OSError("no buffer")

    with pytest.raises(OSError, match="no buffer"), epoch:
        epoch.before_snapshot(fail)
    files = pipeline.coordinator.files
    assert not acks.has_acknowledged(files, "routes", _execution(submit))
    declined = known(acks.read_decline(files, "routes", _execution(submit)))
    assert "no buffer" in declined.detail
    with pytest.raises(InvalidStateError, match="after the epoch's block"):
        epoch.before_snapshot(fail)


def test_it_starts_aligned_and_turns_unaligned(world: World) -> None:  # semantics B3
    world.config = UNALIGNED
    run_some(world, "a", "clean", "routes", "report")
    checkpoint = world.pending_id("a")
    world.clock.advance(ALIGNMENT - timedelta(milliseconds=1))
    assert isinstance(world.coordinator().progress("a"), Waiting)
    with pytest.raises(CheckpointNotReadyError) as caught:
        world.coordinator().complete(checkpoint)
    assert caught.value.fields["missing"] == "airports"
    world.clock.advance(timedelta(milliseconds=1))
    assert complete_without(world, "a", "airports") == checkpoint
    entry = known(world.coordinator().head().latest_completed())
    assert (entry.left_out, entry.acks) == (("airports",), 3)
    world.audit("a")


def test_whoever_acknowledges_in_time_is_not_left_out(world: World) -> None:  # semantics B3
    world.config = UNALIGNED
    run_some(world, "a", *(each.uid for each in STAGES))
    world.clock.advance(2 * ALIGNMENT)
    assert world.coordinator().progress("a") == Ready(world.pending_id("a"))


def test_who_lags_reads_the_epochs_that_it_owes_in_order(world: World) -> None:  # semantics B3
    world.config = UNALIGNED
    for epoch in ("a", "b"):
        run_some(world, epoch, "clean", "routes", "report")
        complete_without(world, epoch, "airports")
    assert world.owed()["airports"] == ["a", "b"]
    world.trigger("c")
    handover = world.submit("c", "airports").handover
    assert [each.epoch for each in handover.backlog] == ["a", "b"]
    assert [each.slice for each in handover.backlog] == [Slice(detail={"of": "a"}), Slice(detail={"of": "b"})]
    world.run_stage("c", "clean", "routes", "report")
    world.clock.advance(2 * ALIGNMENT)
    assert isinstance(world.coordinator().progress("c"), Waiting), "max_backlog is 2"
    world.run_epoch("c")
    assert world.owed() == {each.uid: [] for each in STAGES}
    world.audit("a", "b", "c")
