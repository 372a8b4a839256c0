"""Errors of Spark that say that an upstream's output cannot be read (semantics F1)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Execution
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.execution import failure_kinds
from tests.real.spark.pipeline import TWO_STAGES, At, counts

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CLEAN, ROUTES = Execution("1" * 16, 3, 1), Execution("2" * 16, 4, 2)
UPSTREAM = {"clean": CLEAN, "routes": ROUTES}
MANY = 40
"""More files than Spark's driver looks up itself."""
FILE = f"s3a://lake/flights/{layout.execution_folder(3, 'clean', 1, '1' * 16)}r/exchange.main/part-0.parquet"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file {FILE}.", ("clean",)),
        (f"[PATH_NOT_FOUND] Path does not exist: {FILE}. SQLSTATE: 42K03", ("clean",)),
        (f"Caused by: java.lang.RuntimeException: {FILE} is not a Parquet file.", ("clean",)),
        (f"[FAILED_READ_FILE.NO_HINT] Encountered error while reading file {FILE}. Caused by: SlowDown", ()),
        ("java.io.FileNotFoundException: s3a://elsewhere/part-0.parquet", ()),
        (f"a bad row in {FILE}", ()),
    ],
)
def test_an_error_names_who_cannot_be_read(text: str, found: tuple[str, ...]) -> None:  # semantics F1, R1
    assert failure_kinds.unreadable_upstreams(RuntimeError(text), UPSTREAM) == found


def test_causes_count_too() -> None:
    try:
        try:
            raise RuntimeError(f"{FILE} is not a Parquet file")
        except RuntimeError as error:
            raise ValueError("the job failed") from error
    except ValueError as error:
        assert failure_kinds.unreadable_upstreams(error, UPSTREAM) == ("clean",)
    while_handling = ValueError("the job failed")
    while_handling.__context__ = RuntimeError(f"{FILE} is not a Parquet file")
    assert failure_kinds.unreadable_upstreams(while_handling, UPSTREAM) == ("clean",)
    looped = RuntimeError("x")
    looped.__cause__ = looped
    assert failure_kinds.unreadable_upstreams(looped, UPSTREAM) == ()


@pytest.mark.spark
@pytest.mark.parametrize("how", ["gone", "broken", "one of many gone"])
def test_spark_says_which_file_it_cannot_read(spark: SparkSession, at: At, tmp_path: Path, how: str) -> None:
    pipeline = at(stages=TWO_STAGES)
    pipeline.trigger("r1")
    with pipeline.epoch("r1", "clean") as epoch:
        epoch.write(spark.range(MANY, numPartitions=MANY) if "many" in how else counts(spark, ("AMS-LHR", 3)))
    submit = pipeline.begin("r1")
    epoch = pipeline.submitted(submit)
    file = next(each for each in (tmp_path / "lake").rglob("*.parquet") if "exchange" in str(each))
    if "gone" in how:
        file.unlink()
    else:
        file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(Exception, match="parquet"), epoch:
        epoch.snapshot("totals", epoch.read("clean"))
    assert pipeline.declined().unreadable == ("clean",)
    pipeline.coordinator.fail(epoch_name("r1"), "routes", submit.handover.claimant, "failed")
    assert pipeline.coordinator.head().history[-1].restarted == ("clean", "routes")


@pytest.mark.spark
def test_many_files_are_read_without_a_job_to_find_them(spark: SparkSession, at: At, tmp_path: Path) -> None:
    """Spark lists their folder, and reads the acknowledged files alone."""
    pipeline = at(stages=TWO_STAGES)
    pipeline.trigger("r1")
    with pipeline.epoch("r1", "clean") as epoch:
        epoch.write(spark.range(MANY, numPartitions=MANY))
    with pipeline.epoch("r1") as epoch:
        spark.sparkContext.setJobGroup("alone", "")
        found = epoch.read("clean")
        assert spark.sparkContext.statusTracker().getJobIdsForGroup("alone") == []
        assert found.count() == MANY
        file = next(each for each in (tmp_path / "lake").rglob("*.parquet") if "exchange" in str(each))
        shutil.copy(file, file.with_name("part-stray.parquet"))
        assert epoch.read("clean").count() == MANY
