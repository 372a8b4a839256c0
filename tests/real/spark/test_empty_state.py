"""A state without rows is no file, and is read as empty with its columns (semantics A4)."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from airflow_cairn.spark import table
from tests.real.spark.pipeline import At, Pipeline, counts, rows
from tests.support.covering import covering
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def files_of(pipeline: Pipeline, kind: str) -> list[Path]:
    root = Path(pipeline.storage.removeprefix("file://"), pipeline.job)
    return [root / key for key in pipeline.listing() if f"/{kind}." in key]


def none(spark: SparkSession) -> DataFrame:
    return counts(spark, ("A-B", 1)).where("flights < 0")


@pytest.mark.parametrize(("key", "parallelism"), covering(product(("", "route"), (None, 1, 3)), iter))
def test_a_state_without_rows_writes_no_file(spark: SparkSession, at: At, key: str, parallelism: int | None) -> None:
    pipeline = at(parallelism)
    pipeline.run("one", lambda epoch: epoch.snapshot("totals", none(spark), key=key or ()))
    assert files_of(pipeline, "state") == []
    with pipeline.running("two") as epoch:
        state = known(epoch.state("totals"))
        assert state.dtypes == [("route", "string"), ("flights", "bigint")]
        assert rows(state) == []
        if key and parallelism:
            assert [rows(epoch.state("totals", subtask=each)) for each in range(parallelism)] == [[]] * parallelism
        epoch.snapshot("totals", state.union(counts(spark, ("A-B", 1))), key=key or ())
    with pipeline.running("three") as epoch:
        assert rows(epoch.state("totals")) == [("A-B", 1)]


@pytest.mark.parametrize("keys", range(3))
def test_an_empty_first_partition_is_no_file(spark: SparkSession, at: At, keys: int) -> None:
    """Spark opens a file for the first partition whether or not it has rows."""
    pipeline = at(4)
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch:
        epoch.snapshot("totals", counts(spark, *((f"{keys}-{each}", each) for each in range(2))), key="route")
        epoch.write(none(spark))
    found = files_of(pipeline, "state")
    assert sum(pq.read_metadata(each).num_rows for each in found) == 2
    assert all(pq.read_metadata(each).num_rows for each in found)
    assert files_of(pipeline, "exchange") == []
    pipeline.complete("one")


def test_columns_may_be_null_as_those_of_files(spark: SparkSession, pipeline: Pipeline) -> None:
    """A state without rows has the schema that it has with rows, down to what may be null."""
    schema = "a int not null, b struct<c: array<map<string, int>> not null> not null"
    one = spark.createDataFrame([(1, ([{"k": 1}],))], schema)
    with pipeline.running("one") as epoch:
        epoch.snapshot("some", one)
        epoch.snapshot("none", one.where("a < 0"))
        epoch.snapshot("never", spark.createDataFrame([], schema))
    with pipeline.running("two") as epoch:
        some, empty, never = (known(epoch.state(name)) for name in ("some", "none", "never"))
        assert some.schema == empty.schema == never.schema
        assert empty.schema["a"].nullable
        assert rows(empty) == rows(never) == []


def test_a_file_with_one_row_of_nulls_stays(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.run("one", lambda epoch: epoch.snapshot("nulls", spark.createDataFrame([(None,)], "route string")))
    assert len(files_of(pipeline, "state")) == 1


def test_a_published_table_keeps_its_columns(spark: SparkSession, pipeline: Pipeline) -> None:
    """Plain readers take them from a file; Cairn's own knows them (docs/reference/tables.md)."""
    pipeline.run("one", lambda epoch: epoch.publish("league", none(spark)))
    (file,) = files_of(pipeline, "table")
    assert pq.read_schema(file).names == ["route", "flights"]
    assert rows(table(spark, pipeline.storage, pipeline.job, "league")) == []


def test_small_state_without_items_is_no_file(at: At) -> None:
    pipeline = at(2)
    with pipeline.running("one") as epoch:
        epoch.snapshot_list("offsets", [[], []])
        epoch.put("cursor", {})
    assert files_of(pipeline, "list") == files_of(pipeline, "value") == []
    with pipeline.running("two") as epoch:
        assert epoch.list_state("offsets") == [[], []]
        assert epoch.get("cursor") == {}
