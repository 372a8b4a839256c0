"""Values at the edges of each type come out of Cairn as they went in: by Spark, plain readers and `cairn`."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa
import pytest

from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.cli.main import main
from airflow_cairn.spark import Epoch, StateTtl, state, table
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.spark.stored.outputs import as_text, text_of
from tests.real.spark.edges import BEYOND, EDGES, VALUES
from tests.real.spark.pipeline import Pipeline, configured, in_zone, rows
from tests.support.documented import marked
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAGE = "reference/tables.md"
KINDS = {kind: f"t{number}" for number, kind in enumerate(VALUES)}
"""By type, the name of its table and its state."""
SITE = {
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
}
"""Conf that a site may have for readers of its own."""


@pytest.fixture
def site(spark: SparkSession) -> Iterator[None]:
    """Set the session as that site does; a test leaves it so."""
    with configured(spark, SITE):
        yield
        assert {key: spark.conf.get(key) for key in SITE} == SITE


def values_of(kind: str, without: Collection[str] = ()) -> list[str]:
    """Give the values of a type but some."""
    return [value for value in VALUES[kind] if value not in without]


def rows_of(spark: SparkSession, kind: str, without: Collection[str] = ()) -> DataFrame:
    """Give the values of a type: each in `v`, with its number in `n`."""
    selects = (f"SELECT {number} AS n, {value} AS v" for number, value in enumerate(values_of(kind, without)))
    return spark.sql(" UNION ALL ".join(selects)).coalesce(1)


def rows_of_all(spark: SparkSession, without: Collection[str] = ()) -> DataFrame:
    """Give the values of all types, each type's in a column of its own, of which the last fills the rest."""
    columns = {name: values_of(kind, without) for kind, name in KINDS.items()}
    selects = (
        f"SELECT {number} AS n, "
        + ", ".join(f"{each[min(number, len(each) - 1)]} AS {name}" for name, each in columns.items())
        for number in range(max(map(len, columns.values())))
    )
    return spark.sql(" UNION ALL ".join(selects)).coalesce(1)


def raw(column: Any) -> list[Any]:
    """Give the values of an Arrow column as numbers and bytes, which Python has all of."""

    def of(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([(field.name, of(field.type)) for field in kind])
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return pa.list_(of(kind.value_type))
        if pa.types.is_map(kind):
            return pa.map_(of(kind.key_type), of(kind.item_type))
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
            return pa.binary()
        return {"date32[day]": pa.int32()}.get(str(kind), pa.int64() if pa.types.is_timestamp(kind) else kind)

    micros = {True: pa.timestamp("us"), False: column.type}[pa.types.is_timestamp(column.type)]
    found = column.cast(micros).cast(of(column.type)).to_pylist()
    return [repr(each) for each in found]  # NaN is not NaN


def _by_pyarrow(pipeline: Pipeline, name: str) -> Any:
    scope: dict[str, Any] = {"storage": pipeline.storage, "job": "flights", "name": name}
    exec(marked(PAGE, "pyarrow"), scope)
    return scope["league"].sort_by("n")


def _by_pandas(pipeline: Pipeline, name: str) -> Any:
    table = _by_pyarrow(pipeline, name)
    frame, columns = table.to_pandas(), dict[str, Any]()
    for field in table.schema:
        found = pa.array(frame[field.name], field.type if pa.types.is_map(field.type) else None)
        # On the way back a NaN would be null.
        columns[field.name] = found.fill_null(float("nan")) if pa.types.is_floating(found.type) else found
    return pa.table(columns)


def _files(pipeline: Pipeline, name: str) -> str:
    folder = pipeline.coordinator.head().completed[-1].tables[name]
    return f"{pipeline.storage.removeprefix('file://')}/flights/{folder}*.parquet"


READERS: dict[str, Callable[[Pipeline, str], Any]] = {
    "pyarrow": _by_pyarrow,
    "pandas": _by_pandas,
    "polars": lambda pipeline, name: polars.from_arrow(_by_pyarrow(pipeline, name)).to_arrow(),
    "polars alone": lambda pipeline, name: polars.read_parquet(_files(pipeline, name)).sort("n").to_arrow(),
    "duckdb": lambda pipeline, name: (
        duckdb.connect().sql(f"FROM read_parquet('{_files(pipeline, name)}') ORDER BY n").to_arrow_table()
    ),
}


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.soak)], ids=["waited for", "in the background"])
def background(request: pytest.FixtureRequest) -> bool:
    """Whether the block goes on while a snapshot or a table is written."""
    return bool(request.param)


def test_each_reader_on_the_page_gives_each_value(
    spark: SparkSession, pipeline: Pipeline, site: None, background: bool
) -> None:  # semantics W12
    """`whole` has all of the values, `plain` those that each reader can give."""
    whole, plain = rows_of_all(spark), rows_of_all(spark, BEYOND)
    with pipeline.running("one") as epoch:
        epoch.publish("whole", whole, background=background)
        epoch.publish("plain", plain, background=background)
    # Arrow has no type for the others in Python.
    names = {name: kind for kind, name in KINDS.items() if not kind.startswith("interval")}
    wanted, able = (each.select("n", *names).orderBy("n").toArrow().combine_chunks() for each in (whole, plain))
    found = _by_pyarrow(pipeline, "whole").combine_chunks()
    for name, kind in names.items():
        assert raw(found[name]) == raw(wanted[name]), kind
    for reader, read in READERS.items():
        found = read(pipeline, "plain").combine_chunks()
        for name, kind in names.items():
            assert raw(found[name]) == raw(able[name]), (kind, reader)
    read_back = table(spark, pipeline.storage, "flights", "whole")
    texts = [as_text(each.orderBy("n").select(*KINDS.values())).collect() for each in (read_back, whole)]
    assert texts[0] == texts[1]


def as_cairn(text: str | None, kind: str) -> Any:
    """Give Spark's text of a value as `cairn state` shows that."""
    if kind in ("float", "double"):
        return {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(str(text)) or float(str(text))
    if kind.startswith("timestamp"):
        return f"{text}".replace(" ", "T") + ("+00:00" if kind == "timestamp" else "")
    if kind[:3] in ("dec", "dat", "str"):
        return text
    return text == "true" if kind == "boolean" else int(str(text))


KEYS = ("decimal(38,38)", "string", "timestamp_ntz", "struct<a:date,b:string>")
"""Types that differ in how a key of them is compared, hashed and shown; test_histories.py has NaN."""
KEYED = [
    pytest.param(KEYS, id="some"),
    pytest.param(tuple(kind for kind in EDGES if kind not in KEYS), marks=pytest.mark.soak, id="the others"),
]
FLAT = [kind for kind in EDGES if "<" not in kind and kind != "binary" and not kind.startswith("interval")]


@pytest.mark.soak  # the edges of types; test_round_trips.py has the types
@pytest.mark.parametrize("kinds", KEYED)
def test_values_go_past_python_as_spark_means_them(
    spark: SparkSession,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kinds: tuple[str, ...],
) -> None:  # semantics W12, K1
    """Keys are looked up and updated, by deltas of both kinds of timestamps, and shown without Spark."""
    monkeypatch.setattr(deltas, "SCANNED_BYTES", -1)
    monkeypatch.setattr(merges, "WHOLE_BYTES", -1)
    pipeline.config = replace(pipeline.config, retained=2)
    names = {kind: KINDS[kind] for kind in kinds}
    for run_id in ("one", "two"):
        with pipeline.running(run_id) as epoch:
            for kind, name in names.items():
                epoch.update(name, rows_of(spark, kind), key="v")
    pipeline.trigger("three")
    with pipeline.epoch("three") as epoch:
        for kind, name in names.items():
            found = known(epoch.state(name, keys=rows_of(spark, kind)))
            assert found.count() == len(EDGES[kind]), kind
    for kind, name in names.items():
        common = ["flights", "routes", name, "--json", "--storage", pipeline.storage]
        assert main(["state", *common]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert len(rows) == len(EDGES[kind]), kind
        assert main(["diff", *common, "--from", "1", "--to", "2"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["added"], said["removed"], said["changed"]) == (0, 0, 0), kind
        if kind in FLAT:
            texts = as_text(rows_of(spark, kind).orderBy("n").select("v")).collect()
            shown = [row["v"] for row in sorted(rows, key=lambda row: row["n"])]
            expected = [as_cairn(text_of(text[0]), kind) for text in texts]
            if kind == "float":  # in Python it has more digits
                expected = [
                    each if isinstance(each, str) else struct.unpack("f", struct.pack("f", each))[0]
                    for each in expected
                ]
            assert shown == expected, kind


@pytest.mark.soak  # by each type; test_updates.py has a key that is given twice
@pytest.mark.parametrize("kinds", KEYED)
def test_a_key_twice_and_a_broken_row_are_named_by_each_value(
    spark: SparkSession, pipeline: Pipeline, kinds: tuple[str, ...]
) -> None:
    # semantics W12
    with pipeline.running("one") as epoch:
        assert epoch.check("none", "n < 0", rows_of_all(spark), warn=True) is False
        for kind in kinds:
            rows = rows_of(spark, kind)
            with pytest.raises(InvalidStateError, match="a key is more than once in one update"):
                epoch.update(KINDS[kind], rows.union(rows), key="v")


@pytest.mark.soak  # tests/unit/checkpoint/store/test_stored_schemas.py compares types
def test_a_comment_is_no_part_of_a_type(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics K5
    from pyspark.sql import types as T

    def rows(city: str, comment: str) -> DataFrame:
        inner = T.StructType([T.StructField("city", T.StringType(), True, {"comment": comment} if comment else {})])
        of = T.StructType([T.StructField("n", T.LongType()), T.StructField("at", inner)])
        return spark.createDataFrame([(1, (city,))], of)

    for number, comment in enumerate(("", "where to send it")):
        with pipeline.running(f"run {number}") as epoch:
            given = rows(f"c{number}", comment)
            epoch.update("places", given, key="at", deletes=rows("gone", "another") if number else None)
            epoch.aggregate("sums", given, key="at", merge={"n": "sum"})
            epoch.append("log", given)
            if number:
                assert epoch.state("places", keys=rows("c0", "more")).count() == 1  # type: ignore[union-attr]
    assert state(spark, pipeline.storage, "flights", "routes", "places").count() == 2


NAMED = {  # by name, the moment in microseconds and as Spark's text
    "first": (-(2**63), "-290308-12-21 19:59:05.224192"),
    "year 0": (-62135596800000001, "0000-12-31 23:59:59.999999"),
    "year 1": (-62135596800000000, "0001-01-01 00:00:00"),
    "1969": (-1, "1969-12-31 23:59:59.999999"),
    "skipped": (1772937000000000, "2026-03-08 02:30:00"),  # by the clocks of New York
    "9999": (253402300799999999, "9999-12-31 23:59:59.999999"),
    "10000": (253402300800000000, "+10000-01-01 00:00:00"),
    "last": (2**63 - 1, "+294247-01-10 04:00:54.775807"),
}


def of_edges(spark: SparkSession, kind: str, *names: str) -> DataFrame:
    """Make a frame of these edges: their names as routes."""
    zone = "Z" if kind == "TIMESTAMP" else ""
    selects = (f"SELECT '{name}' AS route, {kind} '{NAMED[name][1]}{zone}' AS time" for name in names or NAMED)
    return spark.sql(" UNION ALL ".join(selects)).coalesce(1)


@pytest.mark.soak  # the edges of time; test_event_time.py has watermark, timers and lives
@pytest.mark.parametrize("kind", [pytest.param("TIMESTAMP", marks=pytest.mark.soak), "TIMESTAMP_NTZ"])
def test_moments_that_no_datetime_holds_count_as_spark_means_them(
    spark: SparkSession, pipeline: Pipeline, background: bool, kind: str
) -> None:  # semantics K6, W12
    from pyspark.sql import functions as F

    far = ("10000", "last")
    known = [name for name in NAMED if name not in far]

    def body(newest: str, delay: timedelta, started: int | None) -> Callable[[Epoch], Any]:
        def read(epoch: Epoch) -> Any:
            every = of_edges(spark, kind)
            late = rows(epoch.late(every, "time").select("route"))
            assert late == sorted((name,) for name in NAMED if started is not None and NAMED[name][0] < started)
            for name in far:
                beyond = of_edges(spark, kind, name)
                shown = beyond.select(F.col("time").cast("string")).collect()[0][0]
                said = rf"later than the year 9999.*moment=`{re.escape(shown)}` column=`time`"
                with pytest.raises(InvalidStateError, match=said):
                    epoch.watermark(beyond, "time")
                with pytest.raises(InvalidStateError, match=said):
                    epoch.timers("all", "route").set(beyond)
            if started is None:
                epoch.timers("all", "route").set(of_edges(spark, kind, *known))
            before = epoch.state("seen")
            alive = [(n,) for n in NAMED if started is None or NAMED[n][0] > started - 1]
            assert before is None or rows(before.select("route")) == sorted(alive)
            epoch.watermark(of_edges(spark, kind, newest), "time", delay=delay)
            epoch.snapshot("seen", every, ttl=StateTtl(timedelta(microseconds=1), "time"), background=background)
            due = epoch.timers("all", "route").due()
            assert due is not None
            return epoch.current_watermark, rows(due.select("route"))

        return read

    nothing, micro = timedelta(0), timedelta(microseconds=1)
    started: int | None = None
    with in_zone(spark, "America/New_York"):
        for number, (newest, delay, reached, current) in enumerate(
            (
                ("first", timedelta.max, "first", None),
                ("year 0", nothing, "year 0", None),
                ("year 1", micro, None, None),
                ("year 1", nothing, "year 1", datetime.min.replace(tzinfo=UTC)),
                ("1969", nothing, "1969", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
                ("skipped", nothing, "skipped", datetime(2026, 3, 8, 2, 30, tzinfo=UTC)),
                ("9999", nothing, "9999", datetime.max.replace(tzinfo=UTC)),
            )
        ):
            found = pipeline.run(f"run {number}", body(newest, delay, started))
            assert found == (current, [(reached,)] if reached else []), newest
            started = NAMED[reached or "year 0"][0]


def test_a_watermark_that_the_application_gives_has_the_same_bounds(pipeline: Pipeline) -> None:
    """semantics K6"""
    west, east = (timezone(timedelta(hours=hours)) for hours in (-5, 5))

    with pipeline.running("one") as epoch:
        last = datetime.max.replace(tzinfo=west)
        with pytest.raises(InvalidStateError, match=r"later than the year 9999.*9999-12-31T23:59:59.999999-05:00"):
            epoch.advance_watermark(last)
        epoch.advance_watermark(datetime.min.replace(tzinfo=east))
        assert epoch.current_watermark is None, "it is before the year 1 in UTC"

    said = r"is before the year 1 \(-62135614800000000 microseconds"
    with pipeline.running("two") as epoch, pytest.raises(InvalidStateError, match=said):
        epoch.advance_watermark(datetime.min.replace(tzinfo=timezone(timedelta(hours=6))))


@pytest.mark.soak  # test_partitions.py replaces odd values
@pytest.mark.parametrize(
    "kinds",
    [("bigint", "string", "date"), pytest.param(("boolean", "tinyint", "smallint", "int"), marks=pytest.mark.soak)],
)
def test_partitions_of_each_value_are_replaced_alone(
    spark: SparkSession, pipeline: Pipeline, kinds: tuple[str, ...]
) -> None:
    """Tables are partitioned by each type that may be; semantics W12, W14."""
    for run_id, step in (("one", 1), ("two", 2), ("three", 3)):
        with pipeline.running(run_id) as epoch:
            for kind in kinds:
                left_out = {value for number, value in enumerate(EDGES[kind]) if number % step}
                given = rows_of(spark, kind, left_out).selectExpr("v", f"'{run_id}' AS run")
                epoch.append(KINDS[kind], given, partition_by="v", overwrite_partitions=True)
    for kind in kinds:
        values = as_text(rows_of(spark, kind).orderBy("n").select("v")).collect()
        last = ["three" if number % 3 == 0 else "one" if number % 2 else "two" for number in range(len(values))]
        found = table(spark, pipeline.storage, "flights", KINDS[kind])
        expected = sorted((bytes(value[0]), run) for value, run in zip(values, last, strict=True))
        shown = found.selectExpr("CAST(CAST(v AS STRING) AS BINARY)", "run").collect()
        assert sorted((bytes(row[0]), row[1]) for row in shown) == expected, kind
