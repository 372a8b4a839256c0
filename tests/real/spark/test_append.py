"""Tables that grow: an epoch adds rows, a checkpoint names all of the files (decision 0047)."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import TableDocument
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.checkpoint.views import data_sets
from airflow_cairn.spark import table
from airflow_cairn.spark.output import outputs
from airflow_cairn.spark.stored import growing_table
from airflow_cairn.storage import open_store
from tests.real.spark.pipeline import Pipeline, rows
from tests.support.documented import marked
from tests.support.world.savepoints import asked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PAGE = "reference/tables.md"


def day(spark: SparkSession, number: int, *values: int) -> DataFrame:
    """Give the rows of one day."""
    listed = ", ".join(f"('2026-01-{number:02d}', {value})" for value in values)
    return spark.sql(f"SELECT DATE(day) AS day, value FROM VALUES {listed} AS t(day, value)").coalesce(1)


def append(pipeline: Pipeline, run_id: str, df: DataFrame, **options: Any) -> None:
    """Let an epoch append to the table `daily`, and complete it."""
    with pipeline.running(run_id) as epoch:
        epoch.append("daily", df, **options)


def daily(pipeline: Pipeline, as_of: str | None = None) -> DataFrame:
    assert pipeline.spark is not None
    return table(pipeline.spark, pipeline.storage, pipeline.job, "daily", as_of=as_of)


def values(pipeline: Pipeline, as_of: str | None = None) -> list[int]:
    return sorted(row["value"] for row in daily(pipeline, as_of).collect())


def listed(pipeline: Pipeline, which: int = -1) -> TableDocument:
    """Give the list of a retained checkpoint's table."""
    folder = pipeline.coordinator.head().completed[which].tables["daily"]
    files = pipeline.coordinator.files
    return files.read(TableDocument, f"{folder}all.json")[0]


def parquet_files(pipeline: Pipeline) -> set[str]:
    return {*pipeline.parquet()}


def test_a_table_grows_and_manifests_are_shared(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics C3, C4
    pipeline.config = replace(pipeline.config, retained=2)
    seen: Counter[str] = Counter()
    for number in range(1, 6):
        append(pipeline, f"run {number}", day(spark, number, number))
        assert values(pipeline) == list(range(1, number + 1))
        keys = [each.document.key for each in listed(pipeline).manifests]
        assert len(keys) <= 3, "four of a file each become one"
        seen.update(keys)
    assert max(seen.values()) > 2, "a manifest is named by several checkpoints"
    assert values(pipeline, "run 4") == list(range(1, 5))
    entry = pipeline.coordinator.head().completed[-1]
    assert entry.table_files == {"daily": 5}
    lines = list(metadata_file.read(pipeline.coordinator.files, entry.metadata))
    assert sum(type(line).__name__ == "HandleLine" for line in lines) == 2, "the list, and the file that is new"
    assert len(parquet_files(pipeline)) == 5
    alive = {each.document.key for each in listed(pipeline).manifests}
    standing = {key for key in pipeline.listing() if "/manifest-" in key}
    assert alive <= standing
    assert len(standing) <= len(alive) + 2, "those of the checkpoint before, and no others"
    assert all(found.whole for found in pipeline.coordinator.verify(deep=True))


@pytest.mark.parametrize("partition_by", [pytest.param((), marks=pytest.mark.soak), "day"])
def test_small_files_become_one_with_all_columns(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, partition_by: str | tuple[str, ...]
) -> None:  # semantics C3, C4
    monkeypatch.setattr(growing_table, "FAN_IN", 4)
    monkeypatch.setattr(growing_table, "ALIKE_FILES", 2)
    pipeline.config = replace(pipeline.config, retained=2)
    for number, which in enumerate((1, 2, 1), start=1):
        append(pipeline, f"run {number}", day(spark, which, number), partition_by=partition_by)
    assert pipeline.coordinator.head().completed[-1].table_files == {"daily": 3}
    more = day(spark, 2, 4).selectExpr("day", "BIGINT(value)", "'x' AS more")
    append(pipeline, "run 4", more, partition_by=partition_by)
    # Three files have become one; by day, two of one day have, and that of the other day stays.
    expected = 3 if partition_by else 2
    assert pipeline.coordinator.head().completed[-1].table_files == {"daily": expected}
    assert rows(daily(pipeline).select("value", "more")) == [(1, None), (2, None), (3, None), (4, "x")]
    assert values(pipeline, "run 3") == [1, 2, 3], "an older checkpoint has its files still"
    [merged] = [key for key in pipeline.listing() if "/small.daily/" in key and key.endswith(".parquet")]
    newest = pipeline.coordinator.head().completed[-1].id
    assert data_sets.rows_written(pipeline.coordinator, newest) == {"daily": 1}, "and not those that were merged"
    found = spark.read.parquet(f"{pipeline.storage}/flights/{merged}")
    assert found.schema.simpleString() == "struct<day:date,value:bigint,more:string>"
    assert all(checked.whole for checked in pipeline.coordinator.verify(deep=True))
    append(pipeline, "run 5", more.selectExpr("day", "value + 1 AS value", "more"), partition_by=partition_by)
    append(pipeline, "run 6", more.selectExpr("day", "value + 2 AS value", "more"), partition_by=partition_by)
    assert values(pipeline) == [1, 2, 3, 4, 5, 6]
    assert parquet_files(pipeline) == named(pipeline, -1) | named(pipeline, -2), (
        "the merged ones go with their checkpoint"
    )


def test_an_old_file_that_cannot_be_read_is_not_merged_and_stops_no_epoch(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(growing_table, "FAN_IN", 3)
    monkeypatch.setattr(growing_table, "ALIKE_FILES", 2)
    for number in (1, 2):
        append(pipeline, f"run {number}", day(spark, 1, number))
    old = Path(pipeline.storage.removeprefix("file://"), "flights", sorted(parquet_files(pipeline))[0])
    whole = old.read_bytes()
    with pipeline.running("run 3") as epoch:
        old.write_bytes(b"no Parquet")
        epoch.append("daily", day(spark, 2, 3))
        old.write_bytes(whole)
    assert "Small files of table.daily were not merged, and stay as they are" in caplog.text
    assert pipeline.coordinator.head().completed[-1].table_files == {"daily": 3}
    assert not [key for key in pipeline.listing() if "/small.daily/" in key]
    assert values(pipeline) == [1, 2, 3]


def named(pipeline: Pipeline, which: int) -> set[str]:
    """Give the files of the table of a retained checkpoint."""
    listing = listed(pipeline, which).manifests
    return {each.path for it in listing for each in metadata_file.read_manifest(pipeline.coordinator.files, it)}


def test_a_try_that_runs_again_adds_its_rows_once(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics A5
    append(pipeline, "run 1", day(spark, 1, 1))
    pipeline.trigger("run 2")
    pipeline.failed("run 2", lambda epoch: epoch.append("daily", day(spark, 2, 2)))
    assert len(parquet_files(pipeline)) == 1, "what the failed try wrote is deleted"
    with pipeline.epoch("run 2") as epoch:
        epoch.append("daily", day(spark, 2, 2))
    pipeline.complete("run 2")
    assert values(pipeline) == [1, 2]
    # An epoch that does not append leaves the table as it is.
    pipeline.run("run 3", lambda epoch: epoch.put("rows", 2))
    assert values(pipeline) == [1, 2]
    append(pipeline, "run 4", day(spark, 4, 4))
    assert values(pipeline) == [1, 2, 4]


def test_a_rewind_takes_what_was_appended_since(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics C3
    pipeline.config = replace(pipeline.config, retained=3)
    for number in (1, 2, 3):
        append(pipeline, f"run {number}", day(spark, number, number))
    pipeline.coordinator.rewind(1)
    assert values(pipeline) == [1]
    append(pipeline, "run 2 again", day(spark, 2, 20))
    assert values(pipeline) == [1, 20]
    assert len(parquet_files(pipeline)) == 2


def test_partitions_are_replaced(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.config = replace(pipeline.config, retained=2)
    for number in (1, 2, 3):
        append(pipeline, f"run {number}", day(spark, number, number), partition_by="day")
    again = day(spark, 2, 20, 21).union(day(spark, 6, 6))
    append(pipeline, "run 4", again, partition_by=["day"], overwrite_partitions=True)
    assert values(pipeline) == [1, 3, 6, 20, 21]
    assert values(pipeline, "run 3") == [1, 2, 3], "what an older checkpoint names stays"
    assert listed(pipeline).files == pipeline.coordinator.head().completed[-1].table_files["daily"] == 4
    append(pipeline, "run 5", day(spark, 2, 22), partition_by="day")
    assert values(pipeline) == [1, 3, 6, 20, 21, 22]
    assert not [key for key in parquet_files(pipeline) if "chk-0000000002" in key], "no checkpoint names it any more"
    assert daily(pipeline).columns == ["day", "value"]


def test_nulls_and_odd_texts_are_partitions_of_their_own(spark: SparkSession, pipeline: Pipeline) -> None:
    odd = ["''", "NULL", "'null'", "'a/b=c%2F'", "'ü'", f"'{'x' * 300}'", f"'{'x' * 299}y'", "'a.b'"]

    def frame(first: int) -> DataFrame:
        listed_values = ", ".join(f"({text}, 'b', {first + at})" for at, text in enumerate(odd))
        return spark.sql(f"SELECT * FROM VALUES {listed_values} AS t(k, l, value)").coalesce(1)

    alike = spark.sql("SELECT 'a' AS k, 'b.b' AS l, 100 AS value")
    append(pipeline, "run 1", frame(0).union(alike).coalesce(1), partition_by=["k", "l"])
    assert listed(pipeline).files == len(odd) + 1
    append(pipeline, "run 2", frame(1000), partition_by=["k", "l"], overwrite_partitions=True)
    assert values(pipeline) == [100, *range(1000, 1000 + len(odd))]


def test_columns_are_added_and_types_widened(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = "SELECT CAST(1 AS TINYINT) AS value, CAST(1.5 AS FLOAT) AS share, CAST(1.25 AS DECIMAL(4, 2)) AS price"
    append(pipeline, "run 1", spark.sql(narrow))
    wide = "SELECT 'new' AS `a.b`, CAST(1.125 AS DECIMAL(9, 3)) AS price, 0.1D AS share, 5000000000L AS value"
    with pipeline.running("run 2") as epoch:
        with monkeypatch.context() as patch:
            patch.setattr(outputs, "READS_NARROWER", 99)  # this Spark is older
            with pytest.raises(InvalidStateError, match="cannot read the table's files"):
                epoch.append("daily", spark.sql(wide))
        epoch.append("daily", spark.sql(wide))
    append(pipeline, "run 3", spark.sql(narrow.replace("AS price", "AS price, 'x' AS `a.b`")))
    found = daily(pipeline)
    assert found.schema.simpleString() == "struct<value:bigint,share:double,price:decimal(9,3),a.b:string>"
    assert [tuple(map(str, row)) for row in found.orderBy("value", "`a.b`").collect()] == [
        ("1", "1.5", "1.250", "None"),
        ("1", "1.5", "1.250", "x"),
        ("5000000000", "0.1", "1.125", "new"),
    ]
    with pytest.raises(InvalidStateError) as refused, pipeline.running("run 4") as epoch:
        epoch.append("daily", spark.sql("SELECT 'x' AS value, 1 AS Share, DATE('2026-01-01') AS price"))
    assert "the column 'value' is of the type string; the column 'share' is missing" in str(refused.value)
    assert "the column 'Share' differs in case only" in str(refused.value)
    assert "table=`struct<value:bigint,share:double,price:decimal(9,3),a.b:string>`" in str(refused.value)
    assert "appended=`struct<value:string,Share:int,price:date>`" in str(refused.value)


def test_what_may_be_null_inside_a_column_is_no_other_type(spark: SparkSession, pipeline: Pipeline) -> None:
    never_null, may_be_null = "SELECT array(1) AS value", "SELECT array(CAST(NULL AS INT)) AS value"
    append(pipeline, "run 1", spark.sql(never_null))
    append(pipeline, "run 2", spark.sql(may_be_null))
    append(pipeline, "run 3", spark.sql(never_null))
    found = table(spark, pipeline.storage, "flights", "daily").collect()
    assert sorted(found, key=str) == [([1],), ([1],), ([None],)]


def test_bad_calls_are_refused(spark: SparkSession, pipeline: Pipeline) -> None:
    append(pipeline, "run 1", day(spark, 1, 1), partition_by="day")
    with pipeline.running("run 2") as epoch:
        more, odd, add = day(spark, 2, 2), cast("DataFrame", [1]), epoch.append
        share, taken = spark.sql("SELECT 1D AS share"), spark.sql("SELECT 1 AS day, 1 AS Cairn_Partition")
        for text, call in (
            (r"partitioned by other columns.*expected=`day` found=`none`", partial(add, "daily", more)),
            ("no partitions to overwrite", partial(add, "other", more, overwrite_partitions=True)),
            (r"column 'month' of table\.daily is not in the Data", partial(add, "daily", more, partition_by="month")),
            ("cannot be partitioned by 'share', whose type is d", partial(add, "other", share, partition_by="share")),
            ("may be called 'cairn_partition'", partial(add, "other", taken, partition_by="day")),
            ("must be a Spark DataFrame and is a list", partial(add, "other", odd)),
        ):
            with pytest.raises(InvalidStateError, match=text):
                call()
        epoch.append("daily", day(spark, 2, 2), partition_by="day")
        with pytest.raises(InvalidStateError, match="was written or dropped before in this epoch"):
            epoch.append("daily", day(spark, 2, 3), partition_by="day")
    assert values(pipeline) == [1, 2]


@pytest.mark.soak  # tables grow above
def test_a_published_table_goes_on_growing_and_an_empty_day_adds_no_file(
    spark: SparkSession, pipeline: Pipeline
) -> None:
    append(pipeline, "run 1", day(spark, 1, 1).limit(0))
    assert rows(daily(pipeline)) == []
    assert daily(pipeline).columns == ["day", "value"]
    pipeline.run("run 2", lambda epoch: epoch.publish("daily", day(spark, 2, 2)))
    append(pipeline, "run 3", day(spark, 3, 3))
    append(pipeline, "run 4", day(spark, 4, 4).where("value < 0"))
    assert values(pipeline) == [2, 3]
    assert pipeline.coordinator.head().completed[-1].table_files == {"daily": 2}


def test_plain_readers_read_all_of_it_or_fail(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics C4
    for number in (1, 2):
        append(pipeline, f"run {number}", day(spark, number, number), partition_by="day")
    append(pipeline, "run 3", day(spark, 3, 3).selectExpr("day", "BIGINT(value)", "'x' AS more"), partition_by="day")
    folder = pipeline.storage.removeprefix("file://")
    scope: dict[str, Any] = {"spark": spark, "storage": pipeline.storage, "folder": folder, "job": "flights"}
    scope["name"] = "daily"
    exec(marked(PAGE, "plain Spark, a table that grows"), scope)
    expected = daily(pipeline)
    assert scope["daily"].schema == expected.schema
    assert rows(scope["daily"].select("value")) == [(1,), (2,), (3,)]
    exec(marked(PAGE, "pyarrow, a table that grows"), scope)
    plain = scope["daily"].to_pylist()
    assert sorted((row["day"].isoformat(), row["value"], row["more"]) for row in plain) == [
        ("2026-01-01", 1, None),
        ("2026-01-02", 2, None),
        ("2026-01-03", 3, "x"),
    ]
    frame = scope["frame"].sort_values("value")
    assert [*frame.columns] == ["day", "value", "more"]
    assert [[each.isoformat() for each in frame["day"]], *(frame[name].to_list() for name in ("value", "more"))] == [
        ["2026-01-01", "2026-01-02", "2026-01-03"],
        [1, 2, 3],
        [None, None, "x"],
    ]
    query = marked(PAGE, "DuckDB, a table that grows")
    connection = duckdb.connect()
    found = connection.execute(query, {"files": scope["files"]})
    assert [each[0] for each in found.description] == ["day", "value", "more"]
    assert sorted(row[1] for row in found.fetchall()) == [1, 2, 3]
    exec(marked(PAGE, "polars, a table that grows"), scope)
    assert scope["daily"].columns == ["day", "value", "more"]
    assert sorted(row[1:] for row in scope["daily"].rows()) == [(1, None), (2, None), (3, "x")]
    Path(scope["files"][0]).unlink()  # a cleaner that is half-way
    with pytest.raises(Exception, match=r"PATH_NOT_FOUND|does not exist"):
        exec(marked(PAGE, "plain Spark, a table that grows"), scope)
    for library in ("pyarrow", "polars"):
        with pytest.raises(FileNotFoundError):
            exec(marked(PAGE, f"{library}, a table that grows"), scope)
    with pytest.raises(duckdb.Error, match="No files found"):
        connection.execute(query, {"files": scope["files"]})


def test_damage_is_found_and_bypassed(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics R1
    pipeline.config = replace(pipeline.config, retained=2)
    for number in (1, 2, 3):
        append(pipeline, f"run {number}", day(spark, number, number))
    root = Path(pipeline.storage.removeprefix("file://"), "flights")
    [old] = [key for key in parquet_files(pipeline) if "chk-0000000001" in key]
    whole = (root / old).read_bytes()
    (root / old).unlink()
    found = pipeline.coordinator.verify()
    assert [[damage.key for damage in each.damages] for each in found] == [[old], [old]], "a file that both name"
    (root / old).write_bytes(whole)
    newest = listed(pipeline).manifests[-1].document.key
    manifest = root / newest
    manifest.write_bytes(manifest.read_bytes().replace(b"part-", b"prat-"))
    found = pipeline.coordinator.verify()
    assert [[(damage.key, damage.problem) for damage in each.damages] for each in found] == [
        [(newest, "a manifest of a table has been altered")],
        [],
    ]
    before = parquet_files(pipeline)
    pipeline.coordinator.clean()
    assert parquet_files(pipeline) == before, "what is not known is not cleaned"


def test_a_savepoint_holds_all_of_a_table_and_starts_another_job(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics P1, R6
    for number in (1, 2, 3):
        append(pipeline, f"run {number}", day(spark, number, number), partition_by="day")
    taken = pipeline.coordinator.savepoint(asked("x", f"file://{tmp_path}/kept"), open_store)
    assert taken.status is Status.COMPLETED
    moved = shutil.move(taken.uri.removeprefix("file://"), tmp_path / "moved")
    folder = open_store(f"file://{moved}")
    assert list(integrity.damages(folder, integrity.load(folder))) == []

    other = Pipeline(f"file://{tmp_path}/other", spark)
    other.coordinator.start_from(folder)
    shutil.rmtree(moved)
    assert values(other) == [1, 2, 3]
    newest = other.coordinator.head().completed[-1]
    plain = spark.read.parquet(f"{other.storage}/flights/{newest.tables['daily']}")
    assert len(plain.inputFiles()) == newest.table_files["daily"] == 3, "plain readers find them in one folder"
    append(other, "run 4", day(spark, 2, 20), partition_by="day", overwrite_partitions=True)
    assert values(other) == [1, 3, 20]
    assert [each.files for each in listed(other).manifests] == [2, 1]
    assert all(found.whole for found in other.coordinator.verify())
