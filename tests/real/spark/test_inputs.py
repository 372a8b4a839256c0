"""Inputs of a stage whose upstreams need not have acknowledged, found in the store (semantics B2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_cairn.checkpoint.documents.attempt import Execution, Handover, StageSpec
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.input import slices
from airflow_cairn.spark.input.inputs import Inputs
from airflow_cairn.spark.input.restored import Backlog, RestoredState
from airflow_cairn.spark.stored.outputs import Stored
from tests.real.spark.pipeline import TWO_STAGES, At, Pipeline, counts, rows
from tests.support.world.early import EARLY, EarlyWorld
from tests.support.world.world import CONFIG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGES = (StageSpec("report"), StageSpec("routes", ("report",)))
"""`report` writes an exchange, a state and the table `league`."""


def opened(world: EarlyWorld, handover: Handover) -> Inputs:
    """Inputs that the driver of an execution can read, once it has restored."""
    backlog = Backlog(handover.backlog)
    RestoredState(handover.stage).load(world.files, handover.restore, backlog)
    return Inputs(world.files, handover, backlog)


def told(world: EarlyWorld, parts: list[Stored]) -> list[list[str]]:
    """The epochs that the files of some outputs name."""
    paths = [file.handle.path for part in parts for file in part.files]
    return [json.loads(world.files.get(path, max_bytes=10_000).data) for path in paths]


def early(epoch: str, world: EarlyWorld) -> Inputs:
    """Give what `routes` can read before `report` has run."""
    world.trigger(epoch)
    return opened(world, world.submit(epoch, "routes").handover)


def test_nothing_is_there_in_the_first_epoch() -> None:
    inputs = early("a", EarlyWorld(stages=STAGES))
    for name, kind in ((None, None), ("main", None), (None, "exchange"), ("league", "table"), (None, "state")):
        assert inputs.parts("report", name, kind) == []
    assert inputs.consumed == {}


def test_what_is_owed_comes_first_then_what_the_upstream_wrote() -> None:
    world = EarlyWorld(stages=STAGES)
    world.trigger("a")
    for stage in ("routes", "report"):
        world.run_stage("a", stage)
    world.coordinator().complete(1)
    world.trigger("b")
    world.run_stage("b", "report")
    at = world.submit("b", "routes").handover
    inputs = opened(world, at)
    assert inputs.consumed == {}, "nothing has been read"
    assert told(world, inputs.parts("report", None, None)) == [["a"], ["b"]]
    assert told(world, inputs.parts("report", "league", None)) == [["a", "b"]], "a table is as it is now"
    assert inputs.consumed == {"report": at.upstream["report"].token}
    assert [each.detail for each in slices.slices_of(at)] == [{"of": "b"}], "the slice of a has been read"


def test_tables_and_states_of_who_still_runs_are_those_of_the_checkpoint() -> None:
    world = EarlyWorld(stages=STAGES)
    world.run_epoch("a")
    inputs = early("b", world)
    assert told(world, inputs.parts("report", "league", None)) == [["a"]]
    assert told(world, inputs.parts("report", None, "table")) == [["a"]]
    assert told(world, inputs.parts("report", "totals", "state")) == [["a"]]
    assert inputs.parts("report", None, None) == [], "its exchange is meant, and all of that has been read"


def test_what_was_read_first_stays_for_the_epoch() -> None:
    """Otherwise the acknowledgement would name what a part of the application has not seen."""
    world = EarlyWorld(stages=STAGES)
    inputs = early("a", world)
    assert inputs.parts("report", None, None) == []
    world.run_stage("a", "report")
    assert inputs.parts("report", None, None) == []
    assert inputs.consumed == {}


def test_what_is_wrong_is_an_error_as_ever() -> None:  # semantics B1, B2
    inputs = early("a", EarlyWorld(stages=STAGES))
    with pytest.raises(InvalidStateError, match="no kind 'frame' of output"):
        inputs.parts("report", None, "frame")
    with pytest.raises(InvalidStateError, match="'clean' is not an upstream"):
        inputs.parts("clean", None, None)
    waiting = early("b", EarlyWorld(config=CONFIG, stages=STAGES))
    with pytest.raises(InvalidStateError, match="has not acknowledged in this epoch"):
        waiting.parts("report", None, None)


def test_the_acknowledgement_names_what_was_read(tmp_path: Path) -> None:  # semantics B2, A1
    """No DataFrame is made here, so no Spark is needed: the upstream has acknowledged and wrote nothing."""
    pipeline = Pipeline(f"file://{tmp_path}/lake", None, TWO_STAGES)
    pipeline.config = EARLY
    pipeline.trigger("e0")
    no_spark = cast("SparkSession", None)
    with Epoch(no_spark, pipeline.store, pipeline.begin("e0", "clean").handover):
        pass
    at = pipeline.begin("e0", "routes").handover
    with Epoch(no_spark, pipeline.store, at) as epoch, pytest.raises(InvalidStateError, match="written no exchange"):
        epoch.read("clean")
    ack = acks.read_ack(pipeline.coordinator.files, "routes", Execution(at.token, at.checkpoint, at.attempt))
    assert ack.consumed == {"clean": at.upstream["clean"].token}


@pytest.mark.spark
def test_a_stage_reads_what_is_there(spark: SparkSession, at: At) -> None:
    """Early in the first epoch, early in the second and in time in the third: each row once, in order."""
    pipeline = at(stages=TWO_STAGES)
    pipeline.config = EARLY
    given: list[list[tuple[object, ...]]] = []

    def write(number: int) -> None:
        with pipeline.epoch(f"e{number}", "clean") as epoch:
            epoch.write(counts(spark, ("A-B", number)))

    for number in range(3):
        pipeline.trigger(f"e{number}")
        if number == 2:
            write(number)
        with pipeline.epoch(f"e{number}", "routes") as epoch:
            if number == 0:
                assert epoch.read("clean").columns == []
            found = epoch.read("clean", schema="route string, flights bigint")
            assert found.columns == ["route", "flights"]
            given.append(rows(found))
        if number < 2:
            write(number)
        pipeline.complete(f"e{number}")
    assert given == [[], [("A-B", 0)], [("A-B", 1), ("A-B", 2)]]


def test_the_instances_of_a_mapped_task_are_read_in_order() -> None:  # semantics B1
    parts = tuple(StageSpec(f"report-{index}", member_of="report") for index in range(11))
    stages = (StageSpec("routes", tuple(part.uid for part in parts)), *parts)
    world = EarlyWorld(stages=stages)
    world.trigger("a")
    for part in reversed(parts):
        world.run_stage("a", part.uid)
    inputs = opened(world, world.submit("a", "routes").handover)
    found = inputs.parts("report", None, None)
    assert [file.handle.path.split("/")[2] for each in found for file in each.files] == [part.uid for part in parts]
    (fourth,) = inputs.parts("report-3", None, None)
    assert fourth == found[3]
    with pytest.raises(InvalidStateError, match="'other' is not an upstream"):
        inputs.parts("other", None, None)


@pytest.mark.spark
def test_of_a_stage_without_input_an_empty_frame_is_read(spark: SparkSession, at: At) -> None:  # semantics B6
    """On a quiet day a stage writes nothing; its state is never taken for what it would have written."""
    pipeline = at(stages=TWO_STAGES)

    def clean(run: str, *outputs: str) -> None:
        pipeline.trigger(run)
        with pipeline.epoch(run, "clean") as epoch:
            if "state" in outputs:
                epoch.snapshot("seen", spark.sql("SELECT 'x' AS id"))
            if "exchange" in outputs:
                epoch.write(counts(spark, ("A-B", 1)))
            if "of one name" in outputs:
                epoch.write(counts(spark, ("A-B", 1)), "seen")

    def read(run: str, *name: str, **options: Any) -> tuple[list[str], int]:
        with pipeline.epoch(run) as epoch:
            frame = epoch.read("clean", *name, **options)
            found = frame.columns, frame.count()
        pipeline.complete(run)
        return found

    def refused(run: str, said: str, *name: str, **options: Any) -> None:
        with pipeline.epoch(run) as epoch, pytest.raises(InvalidStateError, match=said):
            epoch.read("clean", *name, **options)
        pipeline.complete(run)

    columns, schema = ["route", "flights"], "route string, flights long"
    for number, name in enumerate(((), ("main",))):
        clean(f"quiet-{number}")
        assert read(f"quiet-{number}", *name, schema=schema) == (columns, 0)
    clean("without columns")
    refused("without columns", "write an empty DataFrame where it has no rows, or give the columns .* schema='…'")
    clean("busy", "exchange", "state")
    assert read("busy", schema=schema) == (columns, 1)
    clean("misspelt", "exchange")
    refused("misspelt", "no such output named 'mian'", "mian", schema=schema)
    for number, columns_of in enumerate((schema, "id string")):
        clean(f"quiet with a state {number}")
        found = read(f"quiet with a state {number}", schema=columns_of)
        assert found == ([field.split()[0] for field in columns_of.split(", ")], 0), "also where the state has the same"
    for run, outputs in (("without a schema", ()), ("written today", ("state",))):
        clean(run, *outputs)
        refused(run, "'clean' has written no exchange .* schema='…'. Its state is read by its name: 'seen'")
    clean("named")
    refused("named", "no such output named 'main'.*give kind='exchange' and schema", "main", schema=schema)
    clean("kind")
    assert read("kind", "main", kind="exchange", schema=schema) == (columns, 0)
    clean("the state")
    assert read("the state", "seen") == (["id"], 1)
    clean("of one name", "of one name")
    refused("of one name", "more than one such output named 'seen'; give its kind", "seen")
