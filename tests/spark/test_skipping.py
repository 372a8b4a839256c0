"""What a skipped stage leaves: its state and tables as they were, and nothing to read (semantics A2, B1, R3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint import acks
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.model import Handover, StageSpec
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.backlog import Backlog
from airflow_cairn.spark.carried import Carried
from airflow_cairn.spark.inputs import Inputs
from airflow_cairn.spark.skipping import acknowledge_skipped
from airflow_cairn.spark.stored import StageContents, of_acknowledgement
from tests.checkpoint.world import World
from tests.spark.pipeline import Pipeline, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGES = (StageSpec("report"), StageSpec("routes", ("report",)))
MAPPED = (
    *(StageSpec(f"part-{index}", member_of="part") for index in range(2)),
    StageSpec("routes", ("part-0", "part-1")),
)


def opened(world: World, handover: Handover) -> Inputs:
    backlog = Backlog(handover.backlog)
    Carried(handover.stage).load(world.files, handover.restore, backlog)
    return Inputs(world.files, handover, backlog)


def left(world: World, handover: Handover, stage: str) -> StageContents:
    return of_acknowledgement(world.files, acks.read_ack(world.files, stage, handover.upstream[stage]))


def test_state_and_tables_go_on_as_they_were() -> None:  # semantics R3
    world = World(stages=STAGES)
    world.run_epoch("a")
    world.trigger("b")
    assert acknowledge_skipped(world.coordinator(), "b", "report", "the sensor")
    routes = world.submit("b", "routes").handover
    restored = Carried("report")
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
    after = Carried("report")
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
