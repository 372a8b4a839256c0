"""Skipped stages: their state and tables stay as they were, and there is nothing to read (semantics A2, B1, R3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidStateError
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.acknowledging import acknowledge_skipped
from airflow_cairn.spark.input.inputs import Inputs
from airflow_cairn.spark.input.restored import Backlog, RestoredState
from airflow_cairn.spark.stored.outputs import StageContents, of_acknowledgement
from tests.real.spark.pipeline import Pipeline, counts, rows
from tests.support.world.early import EARLY, EarlyWorld
from tests.support.world.lagging import UNALIGNED, complete_without, run_some
from tests.support.world.world import CONFIG, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGES = (StageSpec("report"), StageSpec("routes", ("report",)))
MAPPED = (
    *(StageSpec(f"part-{index}", member_of="part") for index in range(2)),
    StageSpec("routes", ("part-0", "part-1")),
)


def opened(world: World, handover: Handover) -> Inputs:
    backlog = Backlog(handover.backlog)
    RestoredState(handover.stage).load(world.files, handover.restore, backlog)
    return Inputs(world.files, handover, backlog)


def left(world: World, handover: Handover, stage: str) -> StageContents:
    return of_acknowledgement(world.files, acks.read_ack(world.files, stage, handover.upstream[stage]))


def test_state_and_tables_go_on_as_they_were() -> None:  # semantics R3
    world = World(stages=STAGES)
    world.run_epoch("a")
    world.trigger("b")
    assert acknowledge_skipped(world.coordinator(), "b", "report", "the sensor")
    routes = world.submit("b", "routes").handover
    restored = RestoredState("report")
    restored.load(world.files, routes.restore, Backlog(()))
    skipped = left(world, routes, "report")
    assert skipped.skipped
    assert skipped.values == restored.values
    assert {name: stored.files for name, stored in skipped.outputs.items()} == {
        name: stored.files for name, stored in restored.outputs.items()
    }
    inputs = opened(world, routes)
    assert inputs.parts("report", "league", None), "a table can be read as it was"
    assert inputs.parts("report", None, None) == [], "without a name its exchange is meant"
    assert inputs.skipped("report")
    assert acknowledge_skipped(world.coordinator(), "b", "routes", "the sensor")
    world.coordinator().complete(2)
    world.trigger("c")
    after = RestoredState("report")
    after.load(world.files, world.submit("c", "report").handover.restore, Backlog(()))
    assert after.outputs == restored.outputs


def test_of_a_mapped_task_the_others_are_read() -> None:
    world = World(stages=MAPPED)
    world.trigger("a")
    world.run_stage("a", "part-1")
    assert acknowledge_skipped(world.coordinator(), "a", "part-0", "the sensor")
    inputs = opened(world, world.submit("a", "routes").handover)
    assert len(inputs.parts("part", None, None)) == 1
    assert inputs.parts("part-0", None, None) == []
    assert inputs.skipped("part-0")
    assert not inputs.skipped("part")


def skip_routes(world: World, epoch: str) -> int:
    """An epoch in which only `report` runs; gives the checkpoint."""
    world.trigger(epoch)
    world.run_stage(epoch, "report")
    assert acknowledge_skipped(world.coordinator(), epoch, "routes", "the sensor")
    checkpoint = world.pending_id(epoch)
    world.coordinator().complete(checkpoint)
    world.coordinator().clean()
    assert world.standing() == world.referred(), "no orphan, and nothing missing"
    return checkpoint


def test_a_branch_may_stay_untaken_where_stages_read_what_is_there() -> None:  # semantics B2
    early = EarlyWorld(stages=STAGES)
    for epoch in ("a", "b", "c"):
        checkpoint = skip_routes(early, epoch)
        assert early.owed_reads(checkpoint)["routes"] == {}, "its author chose not to read this"
    checkpoint = early.run_epoch("d")
    assert [epoch for epoch, _ in early.reads(checkpoint)["routes"]["report"]] == ["d"]


def test_a_skipped_stage_goes_on_owing_what_it_had_not_read() -> None:  # semantics B2, C3
    """The stage ran in `a`, before its upstream had acknowledged; that output is neither lost nor read twice."""
    early = EarlyWorld(config=replace(EARLY, retained=1), stages=STAGES)
    early.trigger("a")
    early.run_stage("a", "routes")
    early.run_epoch("a")
    for epoch in ("b", "c"):
        checkpoint = skip_routes(early, epoch)
        assert [owed for owed, _ in early.owed_reads(checkpoint)["routes"]["report"]] == ["a"]
        assert [found.whole for found in early.coordinator().verify()] == [True]
    checkpoint = early.run_epoch("d")
    assert [epoch for epoch, _ in early.reads(checkpoint)["routes"]["report"]] == ["a", "d"]
    assert early.owed_reads(checkpoint)["routes"] == {}


def test_what_it_goes_on_owing_may_be_lost_as_anything_else() -> None:  # semantics B2, R1
    early = EarlyWorld(config=replace(EARLY, retained=3), stages=STAGES)
    early.run_epoch("before")
    early.trigger("a")
    early.run_stage("a", "routes")
    early.run_epoch("a")
    skip_routes(early, "b")
    lost = next(key for key in sorted(early.referred()) if "exchange" in key)
    early.store.delete([f"flights/{lost}"])
    assert [each.epoch for each in early.trigger("c").pending.replay] == ["a", "b"]


def test_a_stage_that_was_left_out_must_not_be_skipped() -> None:  # semantics B1, B3
    """The stage owes a slice, and so may its readers: they would see that epoch of others, and not of it."""
    world = World(config=UNALIGNED, stages=STAGES)
    run_some(world, "a", "report")
    complete_without(world, "a", "routes")
    world.config = CONFIG
    world.trigger("b")
    with pytest.raises(CheckpointFailedError, match=r"has to read older epochs .* epochs=`a`"):
        acknowledge_skipped(world.coordinator(), "b", "routes", "the sensor")


@pytest.mark.spark
def test_an_empty_dataframe_needs_columns(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.stages = STAGES
    pipeline.trigger("day 1")
    with pipeline.epoch("day 1", "report") as epoch:
        epoch.write(counts(spark, ("A-B", 1)))
        epoch.publish("league", counts(spark, ("A-B", 2)))
    with pipeline.epoch("day 1") as epoch:
        assert rows(epoch.read("report")) == [("A-B", 1)]
    pipeline.complete("day 1")
    pipeline.trigger("day 2")
    assert acknowledge_skipped(pipeline.coordinator, "day.202", "report", "the sensor")
    with pipeline.epoch("day 2") as epoch:
        with pytest.raises(InvalidStateError, match=r"'report' was skipped in this epoch, .* schema='…'"):
            epoch.read("report")
        found = epoch.read("report", schema="route string, flights long")
        assert (found.columns, found.count()) == (["route", "flights"], 0)
        assert rows(epoch.read("report", "league")) == [("A-B", 2)]
    assert pipeline.complete("day 2") == 2
    assert isinstance(epoch, Epoch)
