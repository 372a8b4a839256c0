"""States of uncommon shape: half of all rows in one key group, 64 columns, values of 1 MiB (semantics K1 to K3, R4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cairn.spark.stored import deltas, key_groups
from airflow_cairn.spark.tables import state
from tests.real.spark import row_groups
from tests.real.spark.pipeline import At, Pipeline, bounds, configured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

GROUPS = 16
ROWS = 4000
"""Half of them in one key group."""


def skewed_keys(spark: SparkSession) -> DataFrame:
    """Give keys of which half lie in one key group, and the others anywhere."""
    every = spark.range(ROWS * GROUPS).selectExpr("id AS key")
    in_one = every.where(key_groups.group_of(["key"], GROUPS) == 3).limit(ROWS // 2)
    return in_one.union(spark.range(-ROWS // 2, 0).selectExpr("id AS key")).localCheckpoint()


def wide(keys: DataFrame, epoch: int) -> DataFrame:
    """Give rows with 64 columns of an epoch."""
    return keys.selectExpr("key", *(f"CONCAT('{epoch}:', key, ':{at}') AS c{at}" for at in range(63)))


def same(found: DataFrame | None, wanted: DataFrame) -> bool:
    assert found is not None
    found = found.select(*wanted.columns)
    return not found.exceptAll(wanted).count() and not wanted.exceptAll(found).count()


def sizes(pipeline: Pipeline, kind: str) -> list[int]:
    """Give the sizes of the data files of bases (`state.`), runs (`run.`), merged runs (`merged.`) or tables."""
    return [pipeline.coordinator.files.stat(each).size_bytes for each in pipeline.parquet() if f"/{kind}" in each]


@pytest.mark.soak  # test_histories.py draws sizes, test_updates.py merges
def test_half_of_the_rows_in_one_key_group_and_64_columns(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K2, K3, R4
    """Epochs update, delete, merge runs and write a base at one parallelism, and others read it at more."""
    bounds(monkeypatch, 4)
    keys = skewed_keys(spark)
    whole = wide(keys, 0)
    for number in range(5):
        pipeline = at(2 + number % 2, GROUPS, retained=9)
        changed = keys.where(f"PMOD(key, 5) = {number}")
        gone = keys.where(f"PMOD(key, 5) = {(number + 1) % 5} AND key > 0")
        with pipeline.running(f"r{number}") as epoch:
            if number == 0:
                epoch.update("totals", whole, key="key")
            else:
                assert same(epoch.state("totals"), whole)
                parts = [epoch.state("totals", subtask=each) for each in range(2 + number % 2)]
                assert sum(part.count() for part in parts if part is not None) == whole.count()
                epoch.update("totals", wide(changed, number), key="key", deletes=gone)
                left = whole.join(changed.union(gone), "key", "left_anti")
                whole = left.unionByName(wide(changed, number)).localCheckpoint()
    assert same(state(spark, pipeline.storage, pipeline.job, "routes", "totals"), whole)
    assert len(sizes(pipeline, "state.")) == 2 + 2, "two bases, each with a file for each subtask that wrote it"
    assert len(sizes(pipeline, "run.")) == 2, "a run is one file, also of half of all rows in one group"
    assert len(sizes(pipeline, "merged.")) == 1


@pytest.mark.soak  # rows are above, and partials that merge in test_aggregates.py
def test_partials_of_which_half_lie_in_one_key_group(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K2, K3, R4
    monkeypatch.setattr(deltas, "FAN_IN_PARTIALS", 2)
    monkeypatch.setattr(deltas, "MAX_SHARE", 100.0)
    keys = skewed_keys(spark)
    merge = {f"c{at}": "sum" for at in range(63)}
    for number in range(4):
        pipeline = at(1 + number, GROUPS, retained=9)
        with pipeline.running(f"r{number}") as epoch:
            partials = keys.selectExpr("key", *(f"{number + at}L AS c{at}" for at in range(63)))
            epoch.aggregate("totals", partials, key="key", merge=merge)
    wanted = keys.selectExpr("key", *(f"{6 + 4 * at}L AS c{at}" for at in range(63)))
    assert same(state(spark, pipeline.storage, pipeline.job, "routes", "totals"), wanted)
    pipeline = at(3, GROUPS, retained=9)
    pipeline.trigger("r4")
    with pipeline.epoch("r4") as epoch:
        parts = [part for part in (epoch.state("totals", subtask=each) for each in range(3)) if part is not None]
        assert sum(part.count() for part in parts) == ROWS
    assert len(sizes(pipeline, "state.")) == 1


MIB = 1 << 20
"""Bytes of a value."""


def large(spark: SparkSession, epoch: int, first: int, last: int) -> DataFrame:
    """Give rows whose values have a mebibyte each, and no two parts alike."""
    parts = f"TRANSFORM(SEQUENCE(1, {MIB // 32}), part -> MD5(CONCAT({epoch}, ':', key, ':', part)))"
    return spark.range(first, last).selectExpr("id AS key").selectExpr("key", f"CONCAT_WS('', {parts}) AS value")


def brief(df: DataFrame | None) -> dict[int, str]:
    """Give the hash of each value by its key."""
    assert df is not None
    return {row.key: row.found for row in df.selectExpr("key", "MD5(value) AS found").collect()}


@pytest.mark.soak  # a size alone; what is read of a few keys: test_updates.py
def test_values_of_a_mebibyte(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K2, K3, R4
    """Files are as many as the subtasks, and as large as their rows; a few keys are read without the others."""
    monkeypatch.setattr(deltas, "MAX_EPOCHS", 3)
    monkeypatch.setattr(deltas, "MAX_SHARE", 100.0)
    pipeline = at(2, GROUPS, retained=9)
    whole: dict[int, str] = {}
    for number, (first, last) in enumerate([(0, 12), (9, 14), (2, 4), (0, 1)]):
        rows = large(spark, number, first, last)
        gone = spark.range(5, 7).selectExpr("id AS key") if number == 1 else None
        with pipeline.running(f"r{number}") as epoch, row_groups.small(spark, rows=1):
            if number:
                assert brief(epoch.state("totals")) == whole
            if number == 2:
                _read_one(spark, epoch.state("totals", keys=spark.sql("SELECT 10L AS key UNION ALL SELECT 6L")), whole)
            epoch.update("totals", rows, key="key", deletes=gone)
        whole = {key: value for key, value in whole.items() if number != 1 or key not in (5, 6)} | brief(rows)
        if number == 2:
            found = sizes(pipeline, "run.")
            assert len(found) <= 2 * 2, "two runs, each of no more files than there are cores"
            assert min(found) > 0.9 * MIB, "and none without a value"
            assert 7 * MIB < sum(found) < 7.5 * MIB
    assert brief(state(spark, pipeline.storage, pipeline.job, "routes", "totals")) == whole
    found = sizes(pipeline, "state.")
    assert len(found) == 2 + 2, "two bases, a file for each subtask"
    assert sum(found) < (12 + len(whole) + 1) * MIB, "no row twice"


def _read_one(spark: SparkSession, few: DataFrame | None, whole: dict[int, str]) -> None:
    assert few is not None
    with configured(spark, {"spark.sql.adaptive.enabled": "false"}):  # so that the plan that ran can be looked at
        read = few.selectExpr("key", "MD5(value) AS found")
        assert [row.asDict() for row in read.collect()] == [{"key": 10, "found": whole[10]}]
        assert row_groups.scanned(read) < len(whole), "row groups without such keys are left out"
