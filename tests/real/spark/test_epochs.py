"""Epoch after epoch on a real Spark: state, values, exchanges and tables go from checkpoint to checkpoint."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import Execution, Slice, StageSpec
from airflow_cairn.checkpoint.documents.metadata import HandleLine, StageLine
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.store import acks, attempt_documents, metadata_file
from airflow_cairn.spark import Epoch
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.port import Blob, DeleteFailures, ObjectStat, WriteResult
from tests.real.spark.pipeline import Pipeline, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TWO_STAGES = (StageSpec("clean"), StageSpec("routes", upstream=("clean",)))


def ack_of(pipeline: Pipeline, stage: str = "routes") -> AckDocument:
    [entry] = pipeline.coordinator.head().pending
    files = pipeline.coordinator.files
    document = attempt_documents.read(files, entry)
    return acks.read_ack(files, stage, document.executions[stage])


def test_state_goes_from_epoch_to_epoch(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics B1, R3
    window = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00", {"files": ["a"]})
    pipeline.trigger("scheduled__2026-01-01T00:00:00+00:00", window)
    with pipeline.epoch("scheduled__2026-01-01T00:00:00+00:00") as epoch:
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
    assert pipeline.complete("scheduled__2026-01-01T00:00:00+00:00") == 1

    pipeline.trigger("day 2")
    with pipeline.epoch("day 2") as epoch:
        assert epoch.restored_from == 1
        before = epoch.state("totals")
        assert before is not None
        merged = before.union(counts(spark, ("A-B", 5))).groupBy("route").sum("flights").toDF("route", "flights")
        epoch.snapshot("totals", merged, key="route")
        assert rows(epoch.state("totals")) == [("A-B", 1), ("B-C", 2)], "what was restored stays what it was"
        epoch.put("days", epoch.get("days") + 1)
    pipeline.complete("day 2")

    pipeline.trigger("day 3")
    with pipeline.epoch("day 3") as epoch:
        assert rows(epoch.state("totals")) == [("A-B", 6), ("B-C", 2)]
        assert epoch.get("days") == 2
        assert epoch.state("other") is None


def test_only_data_files_are_left_and_described(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics A1, A5
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch:
        epoch.snapshot("totals", counts(spark, *((f"A-{number}", number) for number in range(20))).repartition(2))
        epoch.snapshot("keyed", counts(spark, ("A-B", 1)), key="route")
    ack = ack_of(pipeline)
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


def test_an_upstream_is_read_through_its_acknowledgement(spark: SparkSession, tmp_path: Path) -> None:  # semantics B1
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, TWO_STAGES)
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
        with pytest.raises(InvalidStateError) as ambiguous:
            epoch.read("clean", "airports")
        assert "more than one such output named 'airports'" in str(ambiguous.value)
        assert "exchange main, state airports, state seen, table airports" in str(ambiguous.value)
        with pytest.raises(InvalidStateError, match="has no such output named 'nothing'"):
            epoch.read("clean", "nothing")
        with pytest.raises(InvalidStateError, match=r"is not an upstream .*\[stage=`routes` declared=`clean`\]"):
            epoch.read("routes")
        with pytest.raises(InvalidStateError, match="there is no kind 'view' of output"):
            epoch.read("clean", kind="view")  # type: ignore[arg-type]
    pipeline.complete("one")
    assert not [key for key in pipeline.listing() if "exchange.main" in key], "an exchange is dropped with its epoch"


def test_an_upstream_that_has_not_acknowledged_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, TWO_STAGES)
    pipeline.trigger("one")
    with pipeline.epoch("one", "routes") as epoch:
        with pytest.raises(InvalidStateError, match="'clean' has not acknowledged in this epoch"):
            epoch.read("clean")
        epoch.put("ran", value=True)


def test_what_is_not_written_again_is_carried_over_by_reference(spark: SparkSession, pipeline: Pipeline) -> None:
    """semantics C3"""
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)).repartition(1), key="route")
        epoch.snapshot("airports", counts(spark, ("A", 3)))
        epoch.publish("league", counts(spark, ("A-B", 7)))
        epoch.put("days", 1)
        epoch.put("since", "2026-01-01")
    pipeline.complete("one")
    first = pipeline.listing("chk-0000000001/state/")
    for number in (2, 3):
        pipeline.trigger(f"run {number}")
        with pipeline.epoch(f"run {number}") as epoch:
            epoch.snapshot("airports", counts(spark, ("A", 3 + number)))
            epoch.put("days", number)
        pipeline.complete(f"run {number}")
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
    assert files == {key for key in pipeline.listing() if key.endswith(".parquet")}
    assert head.completed[-1].tables["league"].startswith("chk-0000000001/")

    pipeline.trigger("run 4")
    with pipeline.epoch("run 4") as epoch:
        assert rows(epoch.state("totals")) == [("A-B", 1)]
        assert rows(epoch.state("airports")) == [("A", 6)]
        assert (epoch.get("days"), epoch.get("since")) == (3, "2026-01-01")
        epoch.drop("totals")
        epoch.drop("league", kind="table")
        epoch.drop("since")
        with pytest.raises(InvalidStateError, match="nothing to drop by the name 'totals'"):
            epoch.drop("totals")
        assert rows(epoch.state("totals")) == [("A-B", 1)], "dropped from the next checkpoint, readable in this one"
    pipeline.complete("run 4")
    assert pipeline.listing("chk-0000000001/") == []

    pipeline.trigger("run 5")
    with pipeline.epoch("run 5") as epoch:
        assert epoch.state("totals") is None
        assert epoch.get("since") is None
        assert rows(epoch.state("airports")) == [("A", 6)]
    pipeline.complete("run 5")
    assert pipeline.coordinator.head().completed[-1].tables == {}


def test_a_stage_without_any_output_acknowledges_one_subtask(pipeline: Pipeline) -> None:  # semantics A4
    pipeline.trigger("one")
    with pipeline.epoch("one"):
        pass
    ack = ack_of(pipeline)
    assert ack.parallelism == 1
    assert [(subtask.index, subtask.handles) for subtask in ack.subtasks] == [(0, ())]
    pipeline.complete("one")


def test_empty_state_is_state(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)).where("flights < 0"))
        epoch.snapshot("none", spark.createDataFrame([], "route string, flights long"))
    pipeline.complete("one")
    pipeline.trigger("two")
    with pipeline.epoch("two") as epoch:
        for name in ("totals", "none"):
            state = epoch.state(name)
            assert state is not None
            assert state.dtypes == [("route", "string"), ("flights", "bigint")]
            assert rows(state) == []


def test_parallelism_is_what_the_dag_says(spark: SparkSession, tmp_path: Path) -> None:  # semantics A1, A4
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, (StageSpec("routes", parallelism=4),))
    pipeline.trigger("one")
    many = spark.range(1000).selectExpr("cast(id % 97 as string) as `a.b``c`", "id as flights")
    with pipeline.epoch("one") as epoch:
        epoch.snapshot("totals", many, key="a.b`c")
        epoch.snapshot("few", counts(spark, ("A", 1)))
    ack = ack_of(pipeline)
    assert ack.parallelism == 4
    assert [subtask.index for subtask in ack.subtasks] == [0, 1, 2, 3]
    for subtask in ack.subtasks:
        [totals] = [handle for handle in subtask.handles if handle.output == "state.totals"]
        assert f"/part-{subtask.index:05d}-" in totals.path
    pipeline.complete("one")

    smaller = Pipeline(f"file://{tmp_path}/lake", spark, (StageSpec("routes", parallelism=3),))
    smaller.trigger("two")
    with smaller.epoch("two") as epoch:
        state = epoch.state("totals")
        assert state is not None
        assert state.count() == 1000
        one_file = state.where("input_file_name() like '%part-00000-%'").select("`a.b``c`").distinct()
        others = state.where("input_file_name() not like '%part-00000-%'").select("`a.b``c`").distinct()
        assert one_file.intersect(others).count() == 0, "rows of one key lie in one subtask's file"
    carried = ack_of(smaller)
    assert [subtask.index for subtask in carried.subtasks] == [0, 1, 2]
    assert sum(handle.output == "state.totals" for subtask in carried.subtasks for handle in subtask.handles) == 4


def test_replayed_input_is_part_of_the_slice(spark: SparkSession, tmp_path: Path) -> None:  # semantics R1, T8
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, retained=3)
    days = [f"2026-01-0{day}T00:00:00+00:00" for day in range(1, 6)]
    for number in (0, 1):
        pipeline.trigger(f"run {number}", Slice(days[number], days[number + 1]))
        with pipeline.epoch(f"run {number}") as epoch:
            epoch.snapshot("totals", counts(spark, ("A-B", number)))
        pipeline.complete(f"run {number}")
    [damaged] = pipeline.listing("chk-0000000002/state/")
    Path(tmp_path, "lake", "flights", damaged).unlink()

    pipeline.trigger("run 2", Slice("2026-01-03T01:00:00+01:00", days[3]))
    epoch = pipeline.epoch("run 2")
    assert epoch.restored_from == 1
    assert [each.end for each in epoch.slices] == [days[2], days[3]]
    assert epoch.slice == Slice(days[1], days[3])
    with epoch:
        assert rows(epoch.state("totals")) == [("A-B", 0)]


class _Counting(LocalStore):
    """Counts the requests that an object store would bill."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: Counter[str] = Counter()

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        self.calls["list"] += 1
        return super().list(prefix, start_after=start_after)

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        self.calls["delete"] += 1
        return super().delete(keys)

    def create(self, key: str, data: bytes) -> WriteResult:
        self.calls["create"] += 1
        return super().create(key, data)

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        self.calls["get"] += 1
        return super().get(key, max_bytes=max_bytes)


def test_requests_do_not_grow_with_the_number_of_subtasks(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:
    """semantics A6"""
    store = _Counting(tmp_path / "lake")
    pipeline.trigger("one")
    with Epoch(spark, store, pipeline.begin("one").handover) as epoch:
        epoch.snapshot("few", spark.range(0, 10, 1, 1))
        epoch.snapshot("many", spark.range(0, 1000, 1, 40))
    assert len(pipeline.listing("chk-0000000001/state/")) == 41
    assert store.calls["list"] == 2, "one an output"
    assert store.calls["delete"] == 2, "one an output"
    assert store.calls["create"] == 1, "one marker"
    assert store.calls["get"] <= 5, "the head and the pending document, when entering and when leaving"


def test_the_execution_of_the_handover_is_the_one_that_acknowledges(pipeline: Pipeline) -> None:  # semantics W4
    pipeline.trigger("one")
    submit = pipeline.begin("one")
    with pipeline.submitted(submit):
        pass
    at = submit.handover
    ack = acks.read_ack(pipeline.coordinator.files, "routes", Execution(at.token, at.checkpoint, at.attempt))
    assert ack.run != at.token
