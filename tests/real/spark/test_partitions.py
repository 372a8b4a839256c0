"""Partitions of a table that grows: their names, and tables whose partitions have older names (decision 0047)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.views import data_sets
from airflow_cairn.spark.output.writer import Writer
from airflow_cairn.spark.stored import growing_table
from airflow_cairn.storage import open_store
from tests.real.spark.pipeline import Pipeline
from tests.real.spark.test_append import append, daily, named, parquet_files
from tests.support.world.savepoints import asked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

pytestmark = pytest.mark.spark

Key = tuple[str | None, str | None]
Row = tuple[str | None, str | None, int]

_SHOWN = "tenant/acme/region/eu-central-1/bucket/0"
ALIKE: tuple[Key, ...] = (
    (f"{_SHOWN}00000000/2026/01/01/part/number/00000000/of/1000/parquet", None),
    (f"{_SHOWN}DkohYZo4/2026/01/01/part/number/K28JmTHO/of/1000/parquet", None),
)
"""Two values that look alike and have one xxHash64, as a tenant can make one for another's in a second."""
ODD: tuple[Key, ...] = (
    (None, None),
    (None, ""),
    ("", None),
    ("", ""),
    ("null", "null"),
    ("-", "-"),
    ("0:", "0:"),
    ("__HIVE_DEFAULT_PARTITION__", "x"),
    ("ab", "c"),
    ("a", "bc"),
    ("a.b", "c"),
    ("a", "b.c"),
    ("a:1", "c"),
    ("a", "1:c"),
    ("a-1:c", None),
    ("a/b=c%2F..", "\\"),
    ("a\nb", "\t"),
    ("北京", "ü"),
    ("上海", "ü"),
    ("u\u0308", "u"),
    ("A", "B"),
    ("a", "b"),
    ("x" * 300, "y"),
    ("x" * 299 + "y", "y"),
)


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(rows, "k string, l string, value bigint").coalesce(1)


def names(pipeline: Pipeline) -> set[str]:
    return {growing_table.partition_of(key) for key in named(pipeline, -1)}


@contextmanager
def older_names() -> Iterator[None]:
    """Have tables written as they were when a partition's name ended in 64 bits."""
    from pyspark.sql import functions as F

    def told_apart(df: DataFrame, texts: Sequence[Column]) -> DataFrame:
        shown = F.concat_ws(".", *(F.coalesce(each, F.lit("null")) for each in texts))
        plain = F.substring(F.regexp_replace(shown, "[^A-Za-z0-9_.-]", "_"), 1, 40)
        marked = [part for each in texts for part in (each.isNull(), each)]
        return df.withColumn(growing_table.COLUMN, F.concat(plain, F.lit("-"), F.hex(F.xxhash64(*marked))))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_table, "told_apart", told_apart)
        yield


class Table:
    """The table `daily`, and beside it plainly the rows that it should have."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.rows: list[Row] = []
        self.more: tuple[str, ...] = ()
        """Columns that have been added."""
        self.epochs = 0

    def append(self, *keys: Key, overwrite: bool = False) -> None:
        """Add a row of each key in one epoch."""
        self.epochs += 1
        added: list[Row] = [(*key, self.epochs) for key in keys]
        self.rows = [row for row in self.rows if not overwrite or row[:2] not in keys] + added
        df = frame(self.spark, added).selectExpr("*", *self.more)
        append(self.pipeline, f"run {self.epochs}", df, partition_by=["k", "l"], overwrite_partitions=overwrite)
        self.check()

    def check(self) -> None:
        """Compare what readers see, and every file with its checksum."""
        found = daily(self.pipeline).select("k", "l", "value").collect()
        assert Counter(map(tuple, found)) == Counter(self.rows)
        assert all(found.whole for found in self.pipeline.coordinator.verify(deep=True))

    @property
    def written(self) -> int | None:
        """Number of rows that the newest epoch has written, as lineage has it."""
        newest = self.pipeline.coordinator.head().completed[-1].id
        rows = data_sets.rows_written(self.pipeline.coordinator, newest)
        assert rows is not None
        return rows["daily"]


def test_two_values_that_can_be_made_alike_are_two_partitions(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics W14
    hashed = frame(spark, [(*key, 1) for key in ALIKE]).selectExpr("xxhash64(k IS NULL, k)").distinct()
    assert hashed.count() == 1, "or this shows nothing"
    table = Table(spark, pipeline)
    table.append(*ALIKE)
    table.append(ALIKE[1], overwrite=True)
    assert len(names(pipeline)) == 2


def test_each_odd_value_is_a_partition_of_its_own(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "older_names", None)  # a table without older names costs no Spark job more
    table = Table(spark, pipeline)
    table.append(*ODD)
    assert len(names(pipeline)) == len(ODD)
    table.append(*ODD[::2], overwrite=True)
    table.append(*ODD[1::3], overwrite=True)
    assert len(names(pipeline)) == len(ODD)
    assert max(map(len, names(pipeline))) <= 57, "as long as an older name, for the limit of keys"


@pytest.mark.soak  # the test below has them too
def test_a_table_with_older_names_goes_on(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics W14
    table = Table(spark, pipeline)
    with older_names():
        table.append(*ODD, *ALIKE)
    assert len(names(pipeline)) == len(ODD) + 1, "what can be made alike shares a file"
    table.append(*ODD[:4], ALIKE[0])
    before = named(pipeline, -1)

    table.more = ("'new' AS extra",)
    table.append(ALIKE[1], overwrite=True)
    assert table.written == 1, "and not the rows that stay"
    [kept] = [key for key in named(pipeline, -1) if "/kept.daily/" in key]
    assert len(named(pipeline, -1) & before) == len(before) - 1, "all other files stay"
    table.append(("北京", "ü"), *ODD[2:6], overwrite=True)
    assert not [key for key in named(pipeline, -1) if "chk-0000000004" in key and "/kept.daily/" in key]
    assert kept in named(pipeline, -1)
    assert len([each for each in names(pipeline) if growing_table.is_older(each)]) == len(ODD) - 5

    taken = pipeline.coordinator.savepoint(asked("x", f"file://{tmp_path}/kept"), open_store)
    other = Table(spark, Pipeline(f"file://{tmp_path}/other", spark))
    other.pipeline.coordinator.start_from(open_store(taken.uri))
    other.rows, other.more, other.epochs = [*table.rows], table.more, table.epochs
    for each in (other, table):
        each.append(*ODD[6:], overwrite=True)
        each.append(*ODD, *ALIKE, overwrite=True)
    assert len(names(pipeline)) == len(ODD) + 2
    assert not any(map(growing_table.is_older, names(pipeline)))


def test_small_files_with_older_names_become_files_of_one_value(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_table, "FAN_IN", 4)
    monkeypatch.setattr(growing_table, "ALIKE_FILES", 2)
    table = Table(spark, pipeline)
    with older_names():
        for _ in range(3):
            table.append(*ALIKE)
    table.more = ("'new' AS extra",)
    table.append(*ALIKE)
    small = [key for key in named(pipeline, -1) if "/small.daily/" in key]
    assert len(small) == 2, "one for each value, of two files that held both"
    assert len(names(pipeline)) == 3, "and the first epoch's file stays beside them"
    table.append(ALIKE[0], overwrite=True)
    assert len(names(pipeline)) == 2


def test_no_row_is_lost_with_an_old_file_that_cannot_be_read(spark: SparkSession, pipeline: Pipeline) -> None:
    table = Table(spark, pipeline)
    with older_names():
        table.append(*ALIKE)
    [old] = parquet_files(pipeline)
    path = Path(pipeline.storage.removeprefix("file://"), "flights", old)
    whole = path.read_bytes()
    again = frame(spark, [(*ALIKE[0], 2)])

    def overwrite(what: bytes) -> None:
        with pipeline.epoch("run 2") as epoch:
            path.write_bytes(what)
            epoch.append("daily", again, partition_by=["k", "l"], overwrite_partitions=True)

    pipeline.trigger("run 2")
    with pytest.raises(Exception, match=path.name):
        overwrite(b"no Parquet")
    path.write_bytes(whole)
    assert parquet_files(pipeline) == {old}, "what the failed try wrote is deleted"
    overwrite(whole)
    pipeline.complete("run 2")
    table.rows = [(*ALIKE[0], 2), (*ALIKE[1], 1)]
    table.check()
