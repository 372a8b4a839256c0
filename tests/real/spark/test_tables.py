"""Published tables: of completed epochs only, by Cairn's reader and by plain Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import duckdb
import polars
import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CheckpointFailedError, NoCheckpointError
from airflow_cairn.cli.main import main
from airflow_cairn.spark import state, table
from airflow_cairn.storage import UnsupportedStorageError
from airflow_cairn.storage.local.store import LocalStore
from scripts.harness.s3_server import S3Server
from tests.real.spark.pipeline import At, Pipeline, counts, rows
from tests.support.documented import marked
from tests.support.errors import raises_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = "reference/tables.md"


def publish(pipeline: Pipeline, run_id: str, flights: int) -> None:
    assert pipeline.spark is not None
    pipeline.trigger(run_id)
    with pipeline.epoch(run_id) as epoch:
        epoch.publish("league", counts(pipeline.spark, ("A-B", flights)))
        epoch.publish(f"only-{flights}", counts(pipeline.spark, ("x", flights)))


def test_readers_see_completed_epochs_only(spark: SparkSession, at: At) -> None:  # semantics C4
    """A frame goes on reading what it was made of."""
    pipeline = at(retained=2)
    with pytest.raises(NoCheckpointError, match="no checkpoint of the job has completed yet"):
        table(spark, pipeline.storage, "flights", "league")
    publish(pipeline, "manual__2026-01-01T00:00:00+00:00", 1)
    with pytest.raises(NoCheckpointError, match="no checkpoint of the job has completed yet"):
        table(spark, pipeline.storage, "flights", "league")
    pipeline.complete("manual__2026-01-01T00:00:00+00:00")
    assert rows(table(spark, pipeline.storage, "flights", "league")) == [("A-B", 1)]

    publish(pipeline, "run 2", 2)
    before = table(spark, pipeline.storage, "flights", "league")
    assert rows(before) == [("A-B", 1)], "acknowledged is not completed"
    pipeline.complete("run 2")
    assert rows(before) == [("A-B", 1)]
    assert rows(table(spark, pipeline.storage, "flights", "league")) == [("A-B", 2)]
    for as_of in ("manual__2026-01-01T00:00:00+00:00", epoch_name("manual__2026-01-01T00:00:00+00:00")):
        assert rows(table(spark, pipeline.storage, "flights", "league", as_of=as_of)) == [("A-B", 1)]
    with pytest.raises(NoCheckpointError) as missing:
        table(spark, pipeline.storage, "flights", "leak")
    assert "there is no table 'leak'" in str(missing.value)
    assert "tables=`league, only-1, only-2`" in str(missing.value)

    publish(pipeline, "run 3", 3)
    pipeline.complete("run 3")
    with pytest.raises(NoCheckpointError) as gone:
        table(spark, pipeline.storage, "flights", "league", as_of="manual__2026-01-01T00:00:00+00:00")
    assert "is not retained" in str(gone.value)
    assert "retained=`run 2, run 3`" in str(gone.value)


def test_a_reader_that_meets_the_cleaner_reads_the_newer_table(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics C4
    publish(pipeline, "run 1", 1)
    pipeline.complete("run 1")
    publish(pipeline, "run 2", 2)
    original = LocalStore.read_range
    met: list[str] = []

    def read_range(store: LocalStore, key: str, start: int, length: int) -> bytes:
        if not met and "_metadata" in key:
            met.append(key)
            pipeline.complete("run 2")
        return original(store, key, start, length)

    monkeypatch.setattr(LocalStore, "read_range", read_range)
    assert rows(table(spark, pipeline.storage, "flights", "league")) == [("A-B", 2)]
    assert met


def test_two_stages_cannot_publish_one_table(spark: SparkSession, at: At) -> None:
    pipeline = at(stages=(StageSpec("a"), StageSpec("b")))
    pipeline.trigger("one")
    for stage in ("a", "b"):
        with pipeline.epoch("one", stage) as epoch:
            epoch.publish("league", counts(spark, ("A-B", 1)))
    with pytest.raises(CheckpointFailedError, match="publishes the table 'league', which a publishes too"):
        pipeline.complete("one")


def test_bad_arguments_are_refused(spark: SparkSession, tmp_path: Path) -> None:  # semantics W1
    with pytest.raises(UnsupportedStorageError, match="no storage for the scheme hdfs"):
        table(spark, "hdfs://lake/cairn", "flights", "league")
    with raises_code("invalid_name", match="this job name cannot be used"):
        table(spark, f"file://{tmp_path}/lake", "../flights", "league")


def _publish_four_files(spark: SparkSession, pipeline: Pipeline) -> list[Path]:
    """Publish 0 to 99 as a table of four files; gives them."""
    pipeline.run("run 1", lambda epoch: epoch.publish("league", spark.range(100, numPartitions=4)))
    found = [key for key in pipeline.listing("chk-0000000001/state/") if "/table.league/" in key]
    assert len(found) == 4
    return [Path(pipeline.storage.removeprefix("file://"), "flights", key) for key in found]


def test_plain_spark_reads_all_of_a_table_or_fails(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics C4
    files = _publish_four_files(spark, pipeline)
    scope: dict[str, Any] = {"spark": spark, "storage": pipeline.storage, "job": "flights", "name": "league"}
    exec(marked(PAGE, "plain Spark"), scope)
    league = scope["league"]
    assert league.agg({"id": "sum"}).collect() == [(sum(range(100)),)]
    for gone in files[1:]:
        gone.unlink()  # a cleaner that is half-way
        with pytest.raises(RuntimeError, match=r"read head\.json again"):
            exec(marked(PAGE, "plain Spark"), scope)
    with pytest.raises(Exception, match=r"FILE_NOT_EXIST|does not exist"):
        league.collect()  # what was listed before it


def test_pyarrow_reads_all_of_a_table_or_fails(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics C4
    files = _publish_four_files(spark, pipeline)
    scope: dict[str, Any] = {"storage": pipeline.storage, "job": "flights", "name": "league"}
    exec(marked(PAGE, "pyarrow"), scope)
    _read_on(scope["league"])
    listed = scope["files"]
    for gone in files[1:]:
        gone.unlink()
        with pytest.raises(RuntimeError, match=r"read head\.json again"):
            exec(marked(PAGE, "pyarrow"), scope)
    with pytest.raises(FileNotFoundError):
        listed.to_table()


def _read_on(league: Any) -> None:
    """Give 0 to 99 to each library that the page names."""
    assert sorted(league.to_pandas()["id"]) == list(range(100))
    by_polars = polars.from_arrow(league)
    assert isinstance(by_polars, polars.DataFrame)
    assert sorted(by_polars["id"]) == list(range(100))
    by_duckdb = duckdb.sql("FROM league")
    assert by_duckdb is not None
    assert sorted(by_duckdb.fetchall()) == [(number,) for number in range(100)]


@pytest.mark.s3
def test_the_same_lines_read_a_table_on_s3(
    spark: SparkSession, pipeline: Pipeline, s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines use the variables that the page names, and no others."""
    _publish_four_files(spark, pipeline)
    root = Path(pipeline.storage.removeprefix("file://"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint_url)
    client = boto3.client("s3")  # pyarrow's own upload loses files on this server, and says nothing
    for path in filter(Path.is_file, root.rglob("*")):
        client.upload_file(str(path), s3_bucket, f"cairn/{path.relative_to(root)}")
    scope: dict[str, Any] = {"storage": f"s3://{s3_bucket}/cairn", "job": "flights", "name": "league"}
    exec(marked(PAGE, "pyarrow"), scope)
    _read_on(scope["league"])


def test_duckdb_reads_all_of_a_table_or_fails(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics C4
    files = _publish_four_files(spark, pipeline)
    statements = marked(PAGE, "DuckDB").replace(
        "/data/lake/flights", f"{pipeline.storage.removeprefix('file://')}/flights"
    )
    connection = duckdb.connect()
    assert sorted(row[0] for row in connection.execute(statements).fetchall()) == list(range(100))
    for gone in files[1:]:
        gone.unlink()
        with pytest.raises(duckdb.Error, match=r"read head\.json again"):
            connection.execute(statements)
    with pytest.raises(duckdb.Error, match="No files found"):
        connection.execute("SELECT * FROM read_parquet(getvariable('league'))")


def test_a_state_is_read_as_the_next_epoch_gets_it_and_by_its_folder(
    spark: SparkSession, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.config = replace(pipeline.config, retained=2)
    for run_id, flights in (("one", 1), ("two", 2)):
        with pipeline.running(run_id) as epoch:
            epoch.snapshot("totals", counts(spark, ("A-B", flights)), key="route")
    where = (spark, pipeline.storage, "flights", "routes", "totals")
    assert rows(state(*where)) == [("A-B", 2)]
    assert rows(state(*where, checkpoint=1)) == [("A-B", 1)]
    with pytest.raises(NoCheckpointError, match=r"not retained.*checkpoint=`3` retained=`1, 2`"):
        state(*where, checkpoint=3)
    with pytest.raises(NoCheckpointError, match=r"no state 'total' of the stage 'routes'.*states=`routes.totals`"):
        state(*where[:-1], "total")
    assert main(["state", "flights", "routes", "totals", "--json", "--storage", pipeline.storage]) == 0
    said = json.loads(capsys.readouterr().out)
    plain = spark.read.parquet(*said["files"])
    assert {file.rpartition("/")[0] for file in said["files"]} == {said["url"].rstrip("/")}
    assert plain.columns == ["route", "flights", "_cairn_key_group"]
    assert plain.where("_cairn_key_group = pmod(hash(route), 128)").drop("_cairn_key_group").collect() == [("A-B", 2)]
    assert said["rows"] == [{"route": "A-B", "flights": 2}]
