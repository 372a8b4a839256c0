"""Iceberg and Delta tables: Spark stages Parquet in the table's own location, the sink commits it (decision 0056)."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.documents.staged_tables import Format, digest_of_list
from airflow_cairn.checkpoint.errors import CallbackError, DamagedError, InvalidStateError
from airflow_cairn.spark import staged_files, staged_tables
from airflow_cairn.spark.staged_tables import EpochTable
from airflow_cairn.tables.declared import DeltaTable, IcebergTable
from airflow_cairn.tables.postgres import NEW_TYPES
from airflow_cairn.tables.sink import TableSink
from airflow_cairn.tables.staged_files import listed
from tests.real.spark.pipeline import Pipeline, in_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ARROW = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("region", pa.string()),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("share", pa.float64()),
        ("open", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("where", pa.struct([("x", pa.float64())])),
    ]
)
ICEBERG = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "price", DecimalType(10, 2)),
    NestedField(5, "at", TimestamptzType()),
    NestedField(6, "local", TimestampType()),
    NestedField(7, "share", DoubleType()),
    NestedField(8, "open", BooleanType()),
    NestedField(9, "tags", ListType(10, StringType(), element_required=False)),
    NestedField(11, "where", StructType(NestedField(12, "x", DoubleType()))),
)
REGIONS = ("eu", "a/b c=d%", "", None, "ümlaut 'x'._COPYING_")
"""Spark's own listing passes over a folder with the name of the last one."""


class Lake:
    """Two tables, partitioned by region, and a job that writes both."""

    def __init__(self, folder: Path, pipeline: Pipeline) -> None:
        self.folder = folder
        self.pipeline = pipeline
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
        self.catalog = SqlCatalog("lake", **{k: v for k, v in self.properties.items() if k != "type"})
        self.catalog.create_namespace("sales")
        fields = ((2, 1000, "region"), (8, 1001, "open"))
        by = PartitionSpec(*(PartitionField(column, at, IdentityTransform(), name) for column, at, name in fields))
        self.catalog.create_table("sales.orders", ICEBERG, partition_spec=by)
        self.uri = f"file://{folder}/the events"
        deltalake.DeltaTable.create(self.uri, deltalake.Schema.from_arrow(ARROW), partition_by=["region", "open"])
        self.sinks: tuple[TableSink, ...] = (
            TableSink("orders", IcebergTable("lake.sales.orders", conn_id="c", read=True), lambda _: self.properties),
            TableSink("events", DeltaTable(self.uri, read=True), lambda _: {}),
            TableSink(
                "new_orders",
                IcebergTable("lake.sales.new", conn_id="c", read=True, create=True, partition_by=["region", "open"]),
                lambda _: self.properties,
            ),
            TableSink(
                "new_events", DeltaTable(f"{self.uri}, new", create=True, partition_by=["region", "open"]), lambda _: {}
            ),
        )

    def trigger(self, run_id: str) -> None:
        self.pipeline.trigger(run_id, hooks=self.sinks, listeners=tuple(each.name for each in self.sinks))

    def advance(self, run_id: str, write: Callable[[EpochTable], None]) -> None:
        """Complete an epoch that writes both tables in one way."""
        self.trigger(run_id)
        with self.pipeline.epoch(run_id) as epoch:
            for name in ("orders", "events"):
                write(epoch.table(name))
        self.complete(run_id)

    def complete(self, run_id: str) -> None:
        self.pipeline.complete(run_id)
        self.pipeline.coordinator.deliver(self.sinks)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Give what other readers find."""
        found = {
            "orders": self.catalog.load_table("sales.orders").scan().to_arrow(),
            "events": deltalake.DeltaTable(self.uri).to_pyarrow_table(),
        }
        return {name: [seen(row) for row in rows.sort_by("id").to_pylist()] for name, rows in found.items()}

    def ids(self) -> tuple[list[int], list[int]]:
        iceberg = self.catalog.load_table("sales.orders").scan().to_arrow()
        delta = deltalake.DeltaTable(self.uri).to_pyarrow_table()
        return sorted(iceberg["id"].to_pylist()), sorted(delta["id"].to_pylist())

    def staged(self) -> list[Path]:
        found = [each for each in self.folder.rglob("*") if "_cairn" in each.parts and each.is_file()]
        return [each for each in found if each.parent.name != "read"]


@pytest.fixture
def lake(pipeline: Pipeline, tmp_path: Path) -> Lake:
    return Lake(tmp_path, pipeline)


def seen(row: dict[str, Any]) -> tuple[Any, ...]:
    """Give what two readers see alike: an empty partition value is null for Delta, and a moment may lack its zone."""
    return tuple(
        row[name] or None if name == "region" else row[name] for name in ARROW.names if name not in ("at", "where")
    )


def orders(spark: SparkSession, first: int, count: int = 5) -> DataFrame:
    regions = ", ".join("NULL" if each is None else '"' + each + '"' for each in REGIONS)
    return spark.range(first, first + count).selectExpr(
        "id",
        f"element_at(array({regions}), int(id % {len(REGIONS)}) + 1) AS region",
        "date_add(DATE'2026-01-01', int(id)) AS day",
        "CAST(id AS DECIMAL(10, 2)) AS price",
        "TIMESTAMP'2026-01-01 12:00:00' AS at",
        "TIMESTAMP_NTZ'2026-01-01 12:00:00' AS local",
        "id / 2 AS share",
        "id % 2 = 0 AS open",
        "array('a', NULL) AS tags",
        "named_struct('x', double(id)) AS where",
    )


def counted(df: DataFrame, into: Any) -> DataFrame:
    """Give the same rows, each counted when it is made."""

    def counting(rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            into.add(1)
            yield row

    return df.sparkSession.createDataFrame(df.rdd.mapPartitions(counting), df.schema)


def test_two_tables_advance_with_one_checkpoint(spark: SparkSession, lake: Lake) -> None:  # semantics C4
    """Formats' partitions, types and names; a failed try, a dead driver; each row once, and no file besides."""
    from pyspark.sql.functions import expr

    pipeline = lake.pipeline

    def body(epoch: Any) -> None:
        for name in ("orders", "events"):
            epoch.table(name).append(orders(spark, 0))

    lake.trigger("a")
    pipeline.failed("a", body)
    assert lake.staged() == [], "the failed driver has deleted what it staged"
    for column, value, why in (
        ("id", "nullif(id, 3)", "takes no null in the column 'id'"),
        ("region", "repeat('x', 1025)", "'region' has more than 1024 bytes"),
    ):
        with pytest.raises(Exception, match=why), pipeline.epoch("a") as epoch:
            epoch.table("orders").append(orders(spark, 0).withColumn(column, expr(value)))
    assert lake.staged() == []
    with pipeline.epoch("a") as epoch:
        with pytest.raises(InvalidStateError, match="the group has no table 'order'"):
            epoch.table("order")
        for df, why in (
            (orders(spark, 0).drop("day"), "'day' is missing"),
            (orders(spark, 0).selectExpr("*", "1 AS more"), "has no column 'more'"),
            (orders(spark, 0).withColumn("id", expr("string(id)")), "'id' is string and not bigint"),
        ):
            with pytest.raises(InvalidStateError, match=why):
                epoch.table("orders").append(df)
        body(epoch)
        assert all("data" in each.parts for each in lake.staged()), "the manifests are acknowledged"
        with pytest.raises(InvalidStateError, match="the table 'orders' was written before"):
            epoch.table("orders").append(orders(spark, 0))
    assert lake.ids() == ([], []), "nothing is visible before the checkpoint completes"
    assert deltalake.DeltaTable(lake.uri).vacuum(0, dry_run=True, enforce_retention_duration=False, full=True) == []
    pipeline.complete("a")
    assert lake.ids() == ([], [])
    assert [pipeline.coordinator.deliver(lake.sinks) for _ in range(2)] == [16, 0], "three tries have failed"
    assert lake.ids() == ([*range(5)], [*range(5)])
    iceberg = lake.catalog.load_table("sales.orders")
    delta = deltalake.DeltaTable(lake.uri)
    named = {each["file_path"].removeprefix("file://") for each in iceberg.inspect.files().to_pylist()}
    named |= {unquote(each["path"]) for each in pa.table(delta.get_add_actions()).to_pylist()}
    assert len(named) == 5 + 5
    assert {str(each) for each in lake.staged()} == {
        each if each.startswith("/") else f"{lake.folder}/the events/{each}" for each in named
    }
    expected = {row["id"]: row["region"] for row in orders(spark, 0).collect()}
    for found in (iceberg.scan().to_arrow(), delta.to_pyarrow_table()):
        assert {row["id"]: row["region"] or None for row in found.to_pylist()} == {
            each: region or None for each, region in expected.items()
        }
    assert iceberg.scan(row_filter="region = 'a/b c=d%'").to_arrow()["id"].to_pylist() == [1]
    assert iceberg.scan().to_arrow().sort_by("id").to_pylist()[2]["price"] == 2


@pytest.mark.parametrize(
    "names", [("by_hour", "by_day"), pytest.param(("by_local_hour", "by_month", "by_year"), marks=pytest.mark.soak)]
)
def test_spans_of_time_and_the_order_of_rows(
    spark: SparkSession, lake: Lake, names: tuple[str, ...]
) -> None:  # semantics C4
    """The format counts years, months, days and hours in UTC, and says how its files are written."""
    # Around 1970, at a change of Adelaide's clock, and after what nanoseconds can count.
    around = ("1969-12-31 23:59:59.999999", "1970-01-01 00:00:00", "1969-12-31 23:10:00", "1969-12-31 12:00:00")
    moments = (*around, "1950-02-28 12:00:00", "2026-10-04 02:30:00", "2026-10-04 03:10:00", "2299-12-31 23:59:59.999")
    columns = (NestedField(2, "at", TimestamptzType()), NestedField(3, "local", TimestampType()))
    schema = Schema(NestedField(1, "id", LongType()), *columns, NestedField(4, "day", DateType()))
    # By table, the transforms of its columns, and how much of a moment's text they keep.
    tables: dict[str, tuple[dict[int, Any], int]] = {
        "by_hour": ({2: HourTransform()}, 13),
        "by_local_hour": ({3: HourTransform()}, 13),
        "by_day": ({2: DayTransform(), 3: MonthTransform(), 4: YearTransform()}, 10),
        "by_month": ({2: YearTransform(), 4: MonthTransform()}, 7),
        "by_year": ({2: YearTransform()}, 4),
    }
    tables = {name: tables[name] for name in names}
    for name, (units, _) in tables.items():
        lake.catalog.create_table(
            f"sales.{name}",
            schema,
            partition_spec=PartitionSpec(
                *(PartitionField(at, 1000 + at, unit, f"p{at}") for at, unit in units.items())
            ),
            sort_order=SortOrder(SortField(1, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST)),
            properties={
                "write.parquet.compression-codec": "gzip",
                "write.parquet.bloom-filter-enabled.column.id": "true",
                "write.parquet.bloom-filter-max-bytes": "65536",
            },
        )
    lake.sinks = tuple(
        TableSink(name, IcebergTable(f"lake.sales.{name}", conn_id="c"), lambda _: lake.properties) for name in tables
    )
    numbers = dict(enumerate((*moments, None)))

    def rows(given: dict[int, str | None], ids: Sequence[int]) -> DataFrame:
        listed = ", ".join(f"({number}L, {'NULL' if text is None else repr(text)})" for number, text in given.items())
        made = spark.sql(f"SELECT * FROM VALUES {listed} AS (number, text)").crossJoin(
            spark.createDataFrame([(each,) for each in ids], "at int")
        )
        return made.selectExpr(
            "10 * number + at AS id",
            "CAST(text || ' UTC' AS TIMESTAMP) AS at",
            "CAST(text AS TIMESTAMP_NTZ) AS local",
            "DATE(text) AS day",
        )

    changed = {number: numbers[number] for number in (0, 5, len(moments))}
    with in_zone(spark, "Australia/Adelaide"):
        for mode, given, ids in (("append", numbers, (0, 2, 1)), ("overwrite_partitions", changed, (5,))):
            lake.trigger(mode)
            with lake.pipeline.epoch(mode) as epoch:
                for name in tables:
                    getattr(epoch.table(name), mode)(rows(given, ids))
            lake.complete(mode)
    for name, (_, kept) in tables.items():
        spans = {number: text and text[:kept] for number, text in numbers.items()}
        gone = {spans[number] for number in changed}
        expected = [10 * number + at for number, span in spans.items() if span not in gone for at in range(3)]
        table = lake.catalog.load_table(f"sales.{name}")
        found = table.scan().to_arrow()["id"].to_pylist()
        assert sorted(found) == sorted([*expected, *(10 * number + 5 for number in changed)]), name
        files = table.inspect.files().to_pylist()
        assert len(files) == len({*spans.values()}), f"{name}: a file for each partition"
        for each in files:
            file = pq.ParquetFile(each["file_path"].removeprefix("file://"))
            ids_of_file = file.read()["id"].to_pylist()
            assert ids_of_file == sorted(ids_of_file, reverse=True)
            assert file.metadata.row_group(0).column(0).compression == "GZIP"
            assert 1 << 16 < each["file_size_in_bytes"] < 1 << 17, "the Bloom filter"


@pytest.mark.soak  # test_connect.py has such a table, test_partition_values.py the values
def test_buckets_and_truncated_values(spark: SparkSession, lake: Lake) -> None:  # semantics C4
    """Each file has the partition that the format's library gives its rows, and is found by a filter of any column."""
    kinds = (LongType(), StringType(), IntegerType(), DecimalType(38, 2), BinaryType(), TimestamptzType(), DateType())
    names = ("id", "name", "n", "price", "raw", "at", "day")
    schema = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(zip(names, kinds, strict=True), 1)))
    tables: dict[str, list[tuple[int, Any]]] = {
        "by_two": [(1, BucketTransform(2)), (2, TruncateTransform(1))],
        "by_many": [*((at, BucketTransform(2)) for at in range(2, 8)), (1, TruncateTransform(10))],
        "by_one_twice": [(3, TruncateTransform(10)), (3, BucketTransform(2)), (7, MonthTransform())],
    }
    for name, by in tables.items():
        fields = (PartitionField(at, 1000 + number, how, f"p{number}") for number, (at, how) in enumerate(by))
        lake.catalog.create_table(f"sales.{name}", schema, partition_spec=PartitionSpec(*fields))
    lake.sinks = tuple(
        TableSink(name, IcebergTable(f"lake.sales.{name}", conn_id="c"), lambda _: lake.properties) for name in tables
    )

    def rows(first: int, last: int, mark: str) -> DataFrame:
        some = spark.range(first, last).selectExpr("id", "IF(id % 7 = 0, NULL, id) AS x")
        return some.selectExpr(
            "id",
            f"substr('äb😀d', int(x % 4) + 1, 2) || '{mark}' AS name",
            "int(-x) AS n",
            "CAST(x * 1234567890123456789.01 - 5e18 AS DECIMAL(38, 2)) AS price",
            "unhex(hex(x * 12345)) AS raw",
            "timestamp_micros(x * 86400000000 * 9 - 1) AS at",
            "date_from_unix_date(int(x - 30)) AS day",
        )

    def advance(run: str, mode: str, given: DataFrame) -> None:
        lake.trigger(run)
        with lake.pipeline.epoch(run) as epoch:
            for name in tables:
                getattr(epoch.table(name), mode)(given)
        lake.complete(run)

    def partition(name: str, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(how.transform(kinds[at - 1])(row[names[at - 1]]) for at, how in tables[name])

    def found(name: str) -> dict[int, dict[str, Any]]:
        """Give the rows, after a look for each by its values, which passes over the files of other partitions."""
        table, equal_to = lake.catalog.load_table(f"sales.{name}"), cast("Any", EqualTo)
        rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        for at, _ in tables[name]:
            for value in {row[names[at - 1]] for row in rows.values()} - {None}:
                same = table.scan(row_filter=equal_to(names[at - 1], value)).to_arrow()["id"].to_pylist()
                assert sorted(same) == [each for each, row in sorted(rows.items()) if row[names[at - 1]] == value]
        for each in table.inspect.files().to_pylist():
            of_file = pq.read_table(each["file_path"].removeprefix("file://")).to_pylist()
            assert {partition(name, row) for row in of_file} == {tuple(each["partition"].values())}, name
        return rows

    spark.conf.set(staged_files._STATISTICS, "false")  # a site's own; the commit reads partitions from them
    try:
        advance("a", "append", rows(0, 24, ""))
    finally:
        spark.conf.unset(staged_files._STATISTICS)
    before = {name: found(name) for name in tables}
    assert all({*each} == {*range(24)} for each in before.values())
    advance("b", "overwrite_partitions", rows(28, 30, ""))
    for name, old in before.items():
        now = found(name)
        gone = {partition(name, now[each]) for each in (28, 29)}
        left = {each for each, row in old.items() if partition(name, row) not in gone}
        assert {*now} == {*left, 28, 29}, name
        assert left != {*old}, name
        before[name] = now
    upserted = [name for name in tables if name != "by_one_twice"]
    lake.trigger("c")
    with lake.pipeline.epoch("c") as epoch:
        for name in upserted:
            epoch.table(name).upsert(rows(20, 34, "!"), "id", deletes=rows(2, 4, ""))
        with pytest.raises(InvalidStateError, match="does not take upsert: it is partitioned twice by one column"):
            epoch.table("by_one_twice").upsert(rows(20, 34, "!"), "id")
    lake.complete("c")
    for name in upserted:
        now = found(name)
        assert {*now} == {*before[name], *range(20, 34)} - {2, 3}
        assert {each for each in now if str(now[each]["name"]).endswith("!")} == {*range(20, 34)} - {21, 28}


def test_a_client_without_a_file_system_has_a_job_list_the_files(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark Connect has none either. Names that the job would pass over are refused where they are written."""
    monkeypatch.setattr(staged_files, "is_remote", lambda _: True)
    lake.trigger("a")
    why = "a value of the partition column 'region' ends with ._COPYING_"
    with pytest.raises(Exception, match=why), lake.pipeline.epoch("a") as epoch:
        epoch.table("events").append(orders(spark, 0))
    with lake.pipeline.epoch("a") as epoch:
        for name in ("orders", "events"):
            epoch.table(name).append(orders(spark, 0, 4))
    lake.complete("a")
    assert lake.ids() == ([*range(4)], [*range(4)])


def test_a_text_that_stands_for_null_is_refused(spark: SparkSession, lake: Lake) -> None:
    """Where the files hold the partition columns, as Iceberg's do, it is a text as any other."""
    from pyspark.sql.functions import lit

    rows = orders(spark, 0, 1).withColumn("region", lit("__HIVE_DEFAULT_PARTITION__"))
    lake.trigger("a")
    why = "a value of the partition column 'region' is __HIVE_DEFAULT_PARTITION__, which stands for null"
    with pytest.raises(Exception, match=why), lake.pipeline.epoch("a") as epoch:
        epoch.table("events").append(rows)
    with lake.pipeline.epoch("a") as epoch:
        epoch.table("orders").append(rows)
    lake.complete("a")
    assert [row[1] for row in lake.rows()["orders"]] == ["__HIVE_DEFAULT_PARTITION__"]


ODD = """.ü a'b"c`d\\e/f%g?h#i*j[k]$l,m=n{o}日本"""
"""A name of a column; Iceberg's library finds no partition by one with a dot."""


@pytest.mark.soak  # names alone
def test_names_with_quotes_dots_and_unicode(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics C4
    names = {"delta": ODD, "colon": "a:b", "iceberg": ODD[1:]}
    parts = ("ü 'x'", 'the "table"')
    lake.catalog.create_namespace(parts[:1])
    columns = NestedField(1, "id", LongType()), NestedField(2, names["iceberg"], StringType())
    by = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), names["iceberg"]))
    lake.catalog.create_table(parts, Schema(*columns), partition_spec=by)
    uris = {name: f"{lake.uri} {name}" for name in ("delta", "colon")}
    for name, uri in uris.items():
        arrow = pa.schema([("id", pa.int64()), (names[name], pa.string())])
        deltalake.DeltaTable.create(uri, deltalake.Schema.from_arrow(arrow), partition_by=[names[name]])
    lake.sinks = (
        *(TableSink(name, DeltaTable(uri, read=True), lambda _: {}) for name, uri in uris.items()),
        TableSink("iceberg", IcebergTable(("lake", *parts), conn_id="c", read=True), lambda _: lake.properties),
    )

    def rows(name: str, first: int, last: int, value: str) -> DataFrame:
        return spark.range(first, last).selectExpr("id", value).toDF("id", names[name])

    def upsert(name: str, table: EpochTable) -> None:
        if name == "colon":
            why = "does not take upsert: it is partitioned by a:b, and no reader finds"
            with pytest.raises(InvalidStateError, match=why):
                table.upsert(rows(name, 2, 3, "'v3'"), "id")
            table.append(rows(name, 2, 3, "'v3'"))
        else:
            table.upsert(rows(name, 2, 3, "'v3'"), ["id", names[name]], deletes=rows(name, 2, 3, "'v0'"))

    epochs: tuple[tuple[Callable[[str, EpochTable], None], list[tuple[int, str]]], ...] = (
        (lambda name, table: table.append(rows(name, 0, 4, "'v' || id % 2")), []),
        (
            lambda name, table: table.overwrite_partitions(rows(name, 4, 5, "'v1'")),
            [(0, "v0"), (1, "v1"), (2, "v0"), (3, "v1")],
        ),
        (upsert, [(0, "v0"), (2, "v0"), (4, "v1")]),
    )
    for number, (write, before) in enumerate(epochs):
        lake.trigger(f"{number}")
        with lake.pipeline.epoch(f"{number}") as epoch:
            for name in names:
                assert sorted(map(tuple, epoch.table(name).read().collect())) == before
                write(name, epoch.table(name))
        lake.complete(f"{number}")
    merged = [(0, "v0"), (2, "v3"), (4, "v1")]
    delta = [deltalake.DeltaTable(uri).to_pyarrow_table() for uri in uris.values()]
    tables = [*delta, lake.catalog.load_table(parts).scan().to_arrow()]
    found = [sorted(tuple(row.values()) for row in table.to_pylist()) for table in tables]
    assert found == [merged, [(0, "v0"), (2, "v0"), (2, "v3"), (4, "v1")], merged]
    refused = "has the column .*, which is named otherwise in files of Iceberg"
    with pytest.raises(CallbackError, match=refused):  # the library has merged, and written the rows that stay
        lake.trigger("refused")
    lake.sinks = lake.sinks[:1]
    monkeypatch.setattr(staged_files, "is_remote", lambda _: True)  # as over Spark Connect
    lake.trigger("hidden")
    why = r"is partitioned by '\.ü .* Connect does not see what lies in a folder whose name begins with a dot"
    with pytest.raises(InvalidStateError, match=why), lake.pipeline.epoch("hidden") as epoch:
        epoch.table("delta").append(rows("delta", 5, 6, "'v1'"))


@pytest.mark.soak  # the edges of time
def test_days_and_moments_that_python_has_not(spark: SparkSession, lake: Lake) -> None:  # semantics C4
    """Partitions and keys of such days are refused where they are written; other columns have no bounds in a file."""
    kinds = (("id", LongType()), ("day", DateType()), ("at", TimestamptzType()))
    schema = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(kinds, 1)))
    parts: dict[str, tuple[int, Any]] = {"by_year": (2, YearTransform()), "by_hour": (3, HourTransform())}
    for name, (number, transform) in parts.items():
        by = PartitionSpec(PartitionField(number, 1000, transform, "part"))
        lake.catalog.create_table(f"sales.{name}", schema, partition_spec=by)
    lake.catalog.create_table("sales.plain", schema)
    arrow = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    uri, tables = f"{lake.uri} plain", (*parts, "plain")
    for where, column in ((uri, None), (f"{lake.uri} parts", "day")):
        deltalake.DeltaTable.create(where, deltalake.Schema.from_arrow(arrow), partition_by=column)
    lake.sinks = (
        *(
            TableSink(name, IcebergTable(f"lake.sales.{name}", conn_id="c"), lambda _: lake.properties)
            for name in tables
        ),
        TableSink("delta", DeltaTable(uri), lambda _: {}),
        TableSink("by_day", DeltaTable(f"{lake.uri} parts"), lambda _: {}),
    )

    def rows(first: int, last: int) -> DataFrame:  # microseconds since 1970
        made = spark.sql(f"SELECT * FROM VALUES (1L, {first}L), (2L, {last}L) AS (id, us)")
        day = "date_from_unix_date(int((us - pmod(us, 86400000000)) / 86400000000))"
        return made.selectExpr("id", f"{day} AS day", "timestamp_micros(us) AS at")

    there = rows(-62_135_596_800_000_000, 253_402_300_799_999_999)
    beyond = rows(-62_135_596_800_000_001, 253_402_300_800_000_000)
    with in_zone(spark, "Australia/Adelaide"):
        lake.trigger("a")
        for name, column in (("by_year", "day"), ("by_hour", "at"), ("by_day", "day")):
            for each in (beyond.where("id = 1"), beyond.where("id = 2")):
                why = f"the partition column '{column}' .*is not in the years 1 to 9999"
                with pytest.raises(Exception, match=why), lake.pipeline.epoch("a") as epoch:
                    epoch.table(name).append(each)
        why = "the key column 'day' has a day that is not in the years 1 to 9999, by which no row is found"
        with pytest.raises(Exception, match=why), lake.pipeline.epoch("a") as epoch:
            epoch.table("plain").upsert(None, "day", deletes=beyond)
        why = "the column 'day' has a day or moment before the year 1, which .* does not take"
        with pytest.raises(Exception, match=why), lake.pipeline.epoch("a") as epoch:
            in_postgres(epoch.table("delta")).append(beyond)
        with lake.pipeline.epoch("a") as epoch:
            for name in parts:
                epoch.table(name).append(there)
            for name in ("plain", "delta"):
                epoch.table(name).append(there.union(beyond))
        lake.complete("a")
        lake.trigger("b")
        with lake.pipeline.epoch("b") as epoch:
            for name in parts:
                epoch.table(name).overwrite_partitions(there)
        lake.complete("b")
    counts = {name: lake.catalog.load_table(f"sales.{name}").scan().to_arrow().num_rows for name in tables}
    assert counts == {"by_year": 2, "by_hour": 2, "plain": 4}
    assert deltalake.DeltaTable(uri).to_pyarrow_table().num_rows == 4
    files = lake.catalog.load_table("sales.plain").inspect.files().to_pylist()
    bounded = {column for each in files for column, of in each["readable_metrics"].items() if of["lower_bound"]}
    assert bounded == {"id", "day", "at"}, "of a file whose days and moments all have one"


def test_a_column_keeps_its_values_under_another_name(spark: SparkSession, lake: Lake) -> None:  # semantics C4
    """A new column may get the name that it had, because the files have the columns' numbers."""
    columns = NestedField(1, "id", LongType(), required=True), NestedField(2, "a", StringType())
    by = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    lake.catalog.create_table("sales.plain", Schema(*columns))
    lake.catalog.create_table("sales.parts", Schema(*columns), partition_spec=by)
    tables = ("plain", "parts")
    lake.sinks = tuple(
        TableSink(each, IcebergTable(f"lake.sales.{each}", conn_id="c"), lambda _: lake.properties) for each in tables
    )

    def advance(run: str, df: DataFrame) -> None:
        lake.trigger(run)
        with lake.pipeline.epoch(run) as epoch:
            for each in tables:
                epoch.table(each).append(df)
        lake.complete(run)

    advance("a", spark.sql("SELECT 1L AS id, 'old' AS a"))
    for each in tables:
        for change in (
            lambda update: update.rename_column("a", "b"),
            lambda update: update.add_column("a", StringType()),
        ):
            with lake.catalog.load_table(f"sales.{each}").update_schema() as update:
                change(update)
    advance("b", spark.sql("SELECT 2L AS id, 'new a' AS a, 'new b' AS b"))
    expected = [{"id": 1, "b": "old", "a": None}, {"id": 2, "b": "new b", "a": "new a"}]
    for each in tables:
        found = lake.catalog.load_table(f"sales.{each}").scan().to_arrow()
        assert found.sort_by("id").to_pylist() == expected
    lake.trigger("c")
    with lake.pipeline.epoch("c") as epoch:
        epoch.table("plain").append(spark.sql("SELECT 3L AS id, 'x' AS a, 'y' AS b"))
    for change in (lambda update: update.delete_column("a"), lambda update: update.add_column("a", StringType())):
        with lake.catalog.load_table("sales.plain").update_schema() as update:
            change(update)
    lake.pipeline.complete("c")
    with pytest.raises(CallbackError, match=r"has changed since .*: the column a is not the one of that name before"):
        lake.pipeline.coordinator.deliver(lake.sinks)


def test_rows_take_the_place_of_others(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics C4
    """Partitions, keys, all of them; and what is refused where it is written."""
    from pyspark.sql.functions import expr

    keys = spark.range(4, 6).selectExpr("id", "'x' AS more")
    lake.advance("a", lambda table: table.append(orders(spark, 0, 10)))
    # Regions eu, with characters that a folder cannot have, and null, which Delta takes an empty text for.
    some = orders(spark, 10, 2).union(orders(spark, 13, 1))
    with monkeypatch.context() as patch:
        patch.setattr(staged_tables, "_SHARE", 0)  # as if the manifests were long
        lake.advance("b", lambda table: table.overwrite_partitions(some))
    assert lake.ids() == ([2, 4, 5, 6, 7, 8, 9, 10, 11, 13], [2, 4, 5, 6, 8, 9, 10, 11, 13])
    changed = orders(spark, 11, 2).withColumn("share", expr("-1D"))
    lake.advance("c", lambda table: table.upsert(changed, "id", deletes=keys))
    assert lake.ids() == ([2, 6, 7, 8, 9, 10, 11, 12, 13], [2, 6, 8, 9, 10, 11, 12, 13])
    for found in (lake.catalog.load_table("sales.orders").scan().to_arrow(), deltalake.DeltaTable(lake.uri)):
        rows = (found if isinstance(found, pa.Table) else found.to_pyarrow_table()).sort_by("id").to_pylist()
        assert [row["id"] for row in rows if row["share"] == -1] == [11, 12]
        assert next(row for row in rows if row["id"] == 11)["region"] == REGIONS[1]
    # A date before the calendar changed, which a site's setting would shift.
    old = {"id": 14, "region": "old", "open": True, "day": datetime.date(1500, 1, 1)}
    deltalake.write_deltalake(lake.uri, pa.Table.from_pylist([old], ARROW), mode="append")
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    lake.trigger("d")
    wanted = lake.rows()
    with lake.pipeline.epoch("d") as epoch:
        for name in ("orders", "events"):
            table = epoch.table(name)
            found = table.read()
            assert [seen(row.asDict()) for row in found.orderBy("id").collect()] == wanted[name]
            assert found.schema.names == ARROW.names
            table.replace(found.where("region = 'eu' OR id = 11").union(orders(spark, 1, 1)))
    lake.complete("d")
    assert lake.ids() == ([1, 10, 11], [1, 10, 11])
    lake.trigger("e")
    [named, *_] = lake.catalog.load_table("sales.orders").inspect.files()["file_path"].to_pylist()
    file = Path(named.removeprefix("file://"))
    with lake.pipeline.epoch("e") as epoch:
        found = epoch.table("orders").read()
        file.rename(f"{file}.away")
        with pytest.raises(Exception, match=file.name):
            found.collect()
        for each in ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.files.ignoreMissingFiles"):
            spark.conf.unset(each)
        with pytest.raises(DamagedError, match=r"a file of the version of lake\.sales\.orders .* is gone"):
            epoch.table("orders").read()
        Path(f"{file}.away").rename(file)
        orders_table = epoch.table("orders")
        altered = replace(orders_table, description=replace(orders_table.description, read_sha256="0" * 64))
        with pytest.raises(DamagedError, match=r"the list of the files of .* was altered .*`cairn rewind` lists"):
            altered.read()
        events = epoch.table("events")
        folder = Path(events.description.read.removeprefix("file://"))
        plain = [
            (each["path"].removeprefix("file://"), dict(each["given"])) for each in pq.read_table(folder).to_pylist()
        ]
        pq.write_table(listed(plain), folder / "files.parquet")
        (folder / ".files.parquet.crc").unlink(missing_ok=True)
        described = replace(events.description, read_sha256=digest_of_list(plain))
        without_scheme = replace(events, description=described).read()
        assert without_scheme.collect() and without_scheme.schema.names == ARROW.names
        fresh = epoch.table("new_orders")
        described = replace(fresh.description, format=Format.POSTGRES, new_types=NEW_TYPES, partition_by=())
        of_postgres = replace(fresh, description=described)
        of_delta = replace(fresh, description=replace(described, format=Format.DELTA))
        for call, why in (
            (lambda: of_delta.append(spark.range(1).toDF("a b")), "'a b' has a character in its name that Delta's"),
            (
                lambda: of_postgres.append(orders(spark, 0)),
                "'tags' is of the type array; .*'where' is of the type struct",
            ),
            (lambda: of_postgres.append(spark.range(1).toDF("ü" * 32)), "'üü.*' has more than 63 bytes"),
            (fresh.read, r"does not exist yet.*epoch\.table\('new_orders'\)\.exists"),
            (lambda: fresh.upsert(None, "id", deletes=keys), "does not exist yet, so there is no key to delete"),
            (lambda: fresh.append(orders(spark, 0).drop("open")), "no column 'open', by which it is partitioned"),
            (lambda: fresh.append(orders(spark, 0).withColumn("open", expr("1D"))), "by 'open', whose type is double"),
            (lambda: fresh.append(orders(spark, 0).withColumn("x", expr("array(1Y)"))), "'x' is of the type byte"),
        ):
            with pytest.raises(InvalidStateError, match=why):
                call()
        assert not fresh.exists
        for name in ("new_orders", "new_events"):
            epoch.table(name).upsert(orders(spark, 0), "id")
        for call, why in (
            (lambda: epoch.publish("totals", some, to="nix"), "the group has no table 'nix'"),
            (lambda: epoch.publish("totals", some.drop("day"), to="orders"), "'day' is missing"),
            (lambda: epoch.publish("totals", some, to="orders", background=True), "leave background out, or to"),
        ):
            with pytest.raises(InvalidStateError, match=why):
                call()
        made = epoch.spark.sparkContext.accumulator(0)
        for name, df in (("totals", counted(orders(spark, 0, 2), made)), ("regions", orders(spark, 0, 2))):
            epoch.publish(name, df, to="orders" if name == "totals" else "events")
        assert made.value == 2, "what is published and copied is computed once"
    lake.complete("e")
    assert lake.ids() == ([0, 1], [0, 1])
    created = lake.catalog.load_table("sales.new")
    kinds = [re.sub(r"\d+: ", "", str(each.field_type)) for each in (*created.schema().fields, *ICEBERG.fields)]
    assert kinds[: len(ICEBERG.fields)] == kinds[len(ICEBERG.fields) :]
    assert len(created.spec().fields) == 2
    there = deltalake.DeltaTable(f"{lake.uri}, new")
    assert (there.metadata().partition_columns, len(there.to_pyarrow_table())) == (["region", "open"], 5)
    assert sorted(created.scan().to_arrow()["id"].to_pylist()) == [*range(5)]

    twice = orders(spark, 0).union(orders(spark, 4, 1))
    at_write: list[tuple[str, Callable[[EpochTable], None], str]] = [
        ("orders", lambda table: table.upsert(twice, "id"), r"key more than once: \(4,\)"),
        ("events", lambda table: table.upsert(orders(spark, 0), ["id"], deletes=keys), "key more than once"),
        ("events", lambda table: few(table).upsert(orders(spark, 0), "id"), "5 rows with .* too much for an upsert"),
        ("orders", lambda table: few(table).upsert(None, ["id", "day"], deletes=orders(spark, 0, 2)), "2 combinations"),
        ("orders", lambda table: table.upsert(orders(spark, 3, 1), ["id", "region"]), "no null in the column 'region'"),
    ]
    for number, (name, write, why) in enumerate(at_write):
        lake.trigger(f"bad {number}")
        with pytest.raises(Exception, match=why), lake.pipeline.epoch(f"bad {number}") as epoch:
            write(epoch.table(name))
        lake.pipeline.coordinator.progress(epoch_name(f"bad {number}"))  # which fails what no retry cures
    assert lake.ids() == ([0, 1], [0, 1])
    with lake.pipeline.epoch(f"bad {number}") as epoch:  # only Spark's own failure is tried again
        table = epoch.table("orders")
        for key, deletes, why in (
            ("nix", None, "the key column 'nix' is not in the DataFrame"),
            ((), None, r"upsert\(df, key="),
            ("share", None, "cannot be upserted by 'share', whose type is double"),
            ("id", keys.selectExpr("string(id) AS id"), "'id' of the deletes is string, and in .* bigint"),
        ):
            with pytest.raises(InvalidStateError, match=why):
                table.upsert(orders(spark, 0), key, deletes=deletes)
        with pytest.raises(InvalidStateError, match="holds nothing"):
            table.upsert(None, "id")
        bare = replace(table, description=replace(table.description, refused={"replace": "may only grow"}))
        with pytest.raises(InvalidStateError, match="does not take replace: it may only grow"):
            bare.replace(orders(spark, 0))


def in_postgres(table: EpochTable) -> EpochTable:
    """Give a table as if it were one of PostgreSQL."""
    return replace(table, description=replace(table.description, format=Format.POSTGRES))


def few(table: EpochTable) -> EpochTable:
    """Give a table whose commit takes fewer rows."""
    return replace(table, description=replace(table.description, upsert_rows=4, upsert_terms=1))
