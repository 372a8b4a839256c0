"""Epoch after epoch on a real Spark: state, values, exchanges and tables go from checkpoint to checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import Execution, Slice
from airflow_cairn.checkpoint.documents.metadata import HandleLine, StageLine
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store import acks, metadata_file
from airflow_cairn.spark import Epoch
from tests.real.spark.pipeline import TWO_STAGES, At, Pipeline, counts, rows
from tests.support.narrowing import known
from tests.support.wrapped_stores import RecordingStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_state_goes_from_epoch_to_epoch(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics B1, R3
    window = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00", {"files": ["a"]})
    with pipeline.running("scheduled__2026-01-01T00:00:00+00:00", window) as epoch:
        assert (epoch.job, epoch.stage, epoch.attempt, epoch.checkpoint) == ("flights", "routes", 1, 1)
        assert epoch.run_id == "scheduled__2026-01-01T00:00:00+00:00"
        assert epoch.slice == window
        assert epoch.slices == [window]
        assert epoch.restored_from is None
        assert epoch.spark is spark
        assert epoch.state("totals") is None
        assert epoch.get("days", 0) == 0
        epoch.snapshot("totals", counts(spark, ("A-B", 1), ("B-C", 2)), key=["route"])
        epoch.put("days", 1)
        assert epoch.get("days") == 1
    with pipeline.running("day 2") as epoch:
        assert epoch.restored_from == 1
        before = known(epoch.state("totals"))
        merged = before.union(counts(spark, ("A-B", 5))).groupBy("route").sum("flights").toDF("route", "flights")
        epoch.snapshot("totals", merged, key="route")
        assert rows(epoch.state("totals")) == [("A-B", 1), ("B-C", 2)], "what was restored stays what it was"
        epoch.put("days", epoch.get("days") + 1)

    with pipeline.running("day 3") as epoch:
        assert rows(epoch.state("totals")) == [("A-B", 6), ("B-C", 2)]
        assert epoch.get("days") == 2
        assert epoch.state("other") is None


def test_only_data_files_are_left_and_described(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics A1, A5
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch:
        epoch.snapshot("totals", counts(spark, *((f"A-{number}", number) for number in range(20))).repartition(2))
        epoch.snapshot("keyed", counts(spark, ("A-B", 1)), key="route")
    ack = pipeline.ack()
    written = pipeline.listing("chk-0000000001/state/")
    assert len(written) == 3
    assert all(re.search(r"/state\.(keyed/part-00000|totals/part-0000[01])-[^/]*\.parquet\Z", key) for key in written)
    handles = [handle for subtask in ack.subtasks for handle in subtask.handles]
    assert sorted(handle.path for handle in handles) == written
    for handle in handles:
        found = pipeline.coordinator.files.stat(handle.path)
        assert (found.size_bytes, found.etag) == (handle.size_bytes, handle.checksum)
    assert [sum(each.rows or 0 for each in subtask.handles) for subtask in ack.subtasks] == [11, 10]
    assert [subtask.index for subtask in ack.subtasks] == [0, 1]
    assert ack.parallelism == 2
    assert [(output.key, output.key_groups) for output in ack.outputs] == [(("route",), 128), ((), None)]
    assert ack.metrics.sync_ms > 0


def test_an_upstream_is_read_through_its_acknowledgement(spark: SparkSession, at: At) -> None:  # semantics B1
    pipeline = at(stages=TWO_STAGES)
    pipeline.trigger("one")
    with pipeline.epoch("one", "clean") as epoch:
        epoch.write(counts(spark, ("A-B", 1)))
        epoch.publish("airports", counts(spark, ("A", 10)))
        epoch.snapshot("airports", counts(spark, ("A", 20)))
        epoch.snapshot("seen", counts(spark, ("A", 30)))
    with pipeline.epoch("one", "routes") as epoch:
        assert rows(epoch.read("clean")) == [("A-B", 1)]
        assert rows(epoch.read("clean", "main")) == [("A-B", 1)]
        assert rows(epoch.read("clean", "seen")) == [("A", 30)]
        assert rows(epoch.read("clean", "airports", kind="table")) == [("A", 10)]
        assert rows(epoch.read("clean", kind="exchange")) == [("A-B", 1)]
        asked: tuple[tuple[tuple[str, ...], Any, str], ...] = (
            (
                ("clean", "airports"),
                None,
                "more than one such output named 'airports'.*exchange main, state airports, state seen, table airports",
            ),
            (("clean", "nothing"), None, "has no such output named 'nothing'"),
            (("routes",), None, r"is not an upstream .*\[stage=`routes` declared=`clean`\]"),
            (("clean",), "view", "there is no kind 'view' of output"),
        )
        for names, kind, text in asked:
            with pytest.raises(InvalidStateError, match=text):
                epoch.read(*names, kind=kind)
    pipeline.complete("one")
    assert not [key for key in pipeline.listing() if "exchange.main" in key], "an exchange is dropped with its epoch"


def test_an_upstream_that_has_not_acknowledged_is_an_error(at: At) -> None:
    pipeline = at(stages=TWO_STAGES)
    pipeline.trigger("one")
    with pipeline.epoch("one", "routes") as epoch:
        with pytest.raises(InvalidStateError, match="'clean' has not acknowledged in this epoch"):
            epoch.read("clean")
        epoch.put("ran", value=True)


def test_what_is_not_written_again_is_carried_over_by_reference(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics C3"""
    with pipeline.running("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)).repartition(1), key="route")
        epoch.snapshot("airports", counts(spark, ("A", 3)))
        epoch.publish("league", counts(spark, ("A-B", 7)))
        epoch.put("days", 1)
        epoch.put("since", "2026-01-01")
    first = pipeline.listing("chk-0000000001/state/")
    for number in (2, 3):
        with pipeline.running(f"run {number}") as epoch:
            epoch.snapshot("airports", counts(spark, ("A", 3 + number)))
            epoch.put("days", number)
        kept = pipeline.listing("chk-0000000001/state/")
        assert kept == [key for key in first if "state.airports" not in key], "the cleaner keeps what is referred to"

    head = pipeline.coordinator.head()
    lines = list(metadata_file.read(pipeline.coordinator.files, head.completed[-1].metadata))
    [stage] = [line for line in lines if isinstance(line, StageLine)]
    assert {output.id: output.folder[:14] for output in stage.outputs} == {
        "state.totals": "chk-0000000001",
        "state.airports": "chk-0000000003",
        "table.league": "chk-0000000001",
    }
    assert {output.id: output.key for output in stage.outputs}["state.totals"] == ("route",)
    files = {line.handle.path for line in lines if isinstance(line, HandleLine)}
    assert files == {*pipeline.parquet()}
    assert head.completed[-1].tables["league"].startswith("chk-0000000001/")

    with pipeline.running("run 4") as epoch:
        assert rows(epoch.state("totals")) == [("A-B", 1)]
        assert rows(epoch.state("airports")) == [("A", 6)]
        assert (epoch.get("days"), epoch.get("since")) == (3, "2026-01-01")
        epoch.drop("totals")
        epoch.drop("league", kind="table")
        epoch.drop("since")
        with pytest.raises(InvalidStateError, match="nothing to drop by the name 'totals'"):
            epoch.drop("totals")
        assert rows(epoch.state("totals")) == [("A-B", 1)], "dropped from the next checkpoint, readable in this one"
    assert pipeline.listing("chk-0000000001/") == []

    with pipeline.running("run 5") as epoch:
        assert epoch.state("totals") is None
        assert epoch.get("since") is None
        assert rows(epoch.state("airports")) == [("A", 6)]
    assert pipeline.coordinator.head().completed[-1].tables == {}


def test_a_stage_without_any_output_acknowledges_one_subtask(pipeline: Pipeline) -> None:  # semantics A4
    pipeline.trigger("one")
    with pipeline.epoch("one"):
        pass
    ack = pipeline.ack()
    assert ack.parallelism == 1
    assert [(subtask.index, subtask.handles) for subtask in ack.subtasks] == [(0, ())]
    pipeline.complete("one")


def test_parallelism_is_what_the_dag_says(spark: SparkSession, at: At) -> None:  # semantics A1, A4
    pipeline = at(4)
    pipeline.trigger("one")
    many = spark.range(1000).selectExpr("cast(id % 97 as string) as `a.b``c`", "id as flights")
    with pipeline.epoch("one") as epoch:
        epoch.snapshot("totals", many, key="a.b`c")
        epoch.snapshot("few", counts(spark, ("A", 1)))
    ack = pipeline.ack()
    assert ack.parallelism == 4
    assert [subtask.index for subtask in ack.subtasks] == [0, 1, 2, 3]
    for subtask in ack.subtasks:
        [totals] = [handle for handle in subtask.handles if handle.output == "state.totals"]
        assert f"/part-{subtask.index:05d}-" in totals.path
    pipeline.complete("one")

    smaller = at(3)
    smaller.trigger("two")
    with smaller.epoch("two") as epoch:
        state = known(epoch.state("totals"))
        assert state.count() == 1000
        one_file = state.where("input_file_name() like '%part-00000-%'").select("`a.b``c`").distinct()
        others = state.where("input_file_name() not like '%part-00000-%'").select("`a.b``c`").distinct()
        assert one_file.intersect(others).count() == 0, "rows of one key lie in one subtask's file"
    carried = smaller.ack()
    assert [subtask.index for subtask in carried.subtasks] == [0, 1, 2]
    assert sum(handle.output == "state.totals" for subtask in carried.subtasks for handle in subtask.handles) == 4


def test_replayed_input_is_part_of_the_slice(spark: SparkSession, at: At, tmp_path: Path) -> None:  # semantics R1, T8
    pipeline = at(retained=3)
    days = [f"2026-01-0{day}T00:00:00+00:00" for day in range(1, 6)]
    for number in (0, 1):
        with pipeline.running(f"run {number}", Slice(days[number], days[number + 1])) as epoch:
            epoch.snapshot("totals", counts(spark, ("A-B", number)))
    [damaged] = pipeline.listing("chk-0000000002/state/")
    Path(tmp_path, "lake", "flights", damaged).unlink()

    pipeline.trigger("run 2", Slice("2026-01-03T01:00:00+01:00", days[3]))
    epoch = pipeline.epoch("run 2")
    assert epoch.restored_from == 1
    assert [each.end for each in epoch.slices] == [days[2], days[3]]
    assert epoch.slice == Slice(days[1], days[3])
    with epoch:
        assert rows(epoch.state("totals")) == [("A-B", 0)]


def test_requests_do_not_grow_with_the_number_of_subtasks(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics A6"""
    store = RecordingStore(pipeline.store)
    pipeline.trigger("one")
    with Epoch(spark, store, pipeline.begin("one").handover) as epoch:
        epoch.snapshot("few", spark.range(0, 10, 1, 1))
        epoch.snapshot("many", spark.range(0, 1000, 1, 40))
    assert len(pipeline.listing("chk-0000000001/state/")) == 41
    calls = store.requests
    assert (calls["list"], calls["delete"], calls["create"]) == (2, 2, 1), "one list and delete an output, one marker"
    assert calls["get"] <= 5, "the head and the pending document, when entering and when leaving"


def test_the_execution_of_the_handover_is_the_one_that_acknowledges(pipeline: Pipeline) -> None:  # semantics W4
    pipeline.trigger("one")
    submit = pipeline.begin("one")
    with pipeline.submitted(submit):
        pass
    at = submit.handover
    ack = acks.read_ack(pipeline.coordinator.files, "routes", Execution(at.token, at.checkpoint, at.attempt))
    assert ack.run != at.token
