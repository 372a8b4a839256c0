"""Published tables: of completed epochs only, by Cairn's reader and by plain Spark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.errors import CheckpointFailedError, NoCheckpointError
from airflow_cairn.checkpoint.layout import epoch_name
from airflow_cairn.checkpoint.model import StageSpec
from airflow_cairn.cli.main import main
from airflow_cairn.spark import state, table
from airflow_cairn.storage import InvalidNameError, UnsupportedStorageError
from airflow_cairn.storage.local import LocalStore
from tests.spark.pipeline import Pipeline, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"


def publish(pipeline: Pipeline, run_id: str, flights: int) -> None:
    assert pipeline.spark is not None
    pipeline.trigger(run_id)
    with pipeline.epoch(run_id) as epoch:
        epoch.publish("league", counts(pipeline.spark, ("A-B", flights)))
        epoch.publish(f"only-{flights}", counts(pipeline.spark, ("x", flights)))


def test_readers_see_completed_epochs_only(spark: SparkSession, tmp_path: Path) -> None:  # semantics C4
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, retained=2)
    with pytest.raises(NoCheckpointError, match="no checkpoint of the job has completed yet"):
        table(spark, pipeline.storage, "flights", "league")
    publish(pipeline, "manual__2026-01-01T00:00:00+00:00", 1)
    with pytest.raises(NoCheckpointError, match="no checkpoint of the job has completed yet"):
        table(spark, pipeline.storage, "flights", "league")
    pipeline.complete("manual__2026-01-01T00:00:00+00:00")
    assert rows(table(spark, pipeline.storage, "flights", "league")) == [("A-B", 1)]

    publish(pipeline, "run 2", 2)
    assert rows(table(spark, pipeline.storage, "flights", "league")) == [("A-B", 1)], "acknowledged is not completed"
    pipeline.complete("run 2")
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


def test_a_frame_goes_on_reading_what_it_was_made_of(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, retained=2)
    publish(pipeline, "run 1", 1)
    pipeline.complete("run 1")
    frame = table(spark, pipeline.storage, "flights", "league")
    publish(pipeline, "run 2", 2)
    pipeline.complete("run 2")
    assert rows(frame) == [("A-B", 1)]


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


def test_two_stages_cannot_publish_one_table(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(f"file://{tmp_path}/lake", spark, (StageSpec("a"), StageSpec("b")))
    pipeline.trigger("one")
    for stage in ("a", "b"):
        with pipeline.epoch("one", stage) as epoch:
            epoch.publish("league", counts(spark, ("A-B", 1)))
    with pytest.raises(CheckpointFailedError, match="publishes the table 'league', which a publishes too"):
        pipeline.complete("one")


def test_bad_arguments_are_refused(spark: SparkSession, tmp_path: Path) -> None:  # semantics W1
    with pytest.raises(UnsupportedStorageError, match="no storage for the scheme gs"):
        table(spark, "gs://lake/cairn", "flights", "league")
    with pytest.raises(InvalidNameError, match="this job name cannot be used"):
        table(spark, f"file://{tmp_path}/lake", "../flights", "league")


def test_plain_spark_reads_a_table_by_the_documented_pointer(spark: SparkSession, pipeline: Pipeline) -> None:
    publish(pipeline, "run 1", 1)
    pipeline.complete("run 1")
    [snippet] = re.findall(r"<!-- tested: plain Spark -->\n```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    scope = {"spark": spark, "storage": pipeline.storage, "job": "flights", "name": "league"}
    exec(snippet, scope)
    assert rows(scope["league"]) == [("A-B", 1)]  # type: ignore[arg-type]


def test_pyarrow_reads_a_table_by_the_documented_pointer(pipeline: Pipeline) -> None:
    publish(pipeline, "run 1", 1)
    pipeline.complete("run 1")
    [snippet] = re.findall(r"<!-- tested: pyarrow -->\n```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    scope = {"folder": pipeline.storage.removeprefix("file://"), "job": "flights", "name": "league"}
    exec(snippet, scope)
    assert scope["league"].to_pylist() == [{"route": "A-B", "flights": 1}]  # type: ignore[attr-defined]


def test_a_state_is_read_as_the_next_epoch_gets_it_and_by_its_folder(
    spark: SparkSession, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.config = replace(pipeline.config, retained=2)
    for run_id, flights in (("one", 1), ("two", 2)):
        pipeline.trigger(run_id)
        with pipeline.epoch(run_id) as epoch:
            epoch.snapshot("totals", counts(spark, ("A-B", flights)), key="route")
        pipeline.complete(run_id)
    where = (spark, pipeline.storage, "flights", "routes", "totals")
    assert rows(state(*where)) == [("A-B", 2)]
    assert rows(state(*where, checkpoint=1)) == [("A-B", 1)]
    with pytest.raises(NoCheckpointError, match=r"not retained.*checkpoint=`3` retained=`1, 2`"):
        state(*where, checkpoint=3)
    with pytest.raises(NoCheckpointError, match=r"no state 'total' of the stage 'routes'.*states=`routes.totals`"):
        state(*where[:-1], "total")
    assert main(["state", "flights", "routes", "totals", "--json", "--storage", pipeline.storage]) == 0
    said = json.loads(capsys.readouterr().out)
    plain = spark.read.parquet(said["url"])
    assert plain.columns == ["route", "flights", "_cairn_key_group"]
    assert plain.where("_cairn_key_group = pmod(hash(route), 128)").drop("_cairn_key_group").collect() == [("A-B", 2)]
    assert said["rows"] == [{"route": "A-B", "flights": 2}]
