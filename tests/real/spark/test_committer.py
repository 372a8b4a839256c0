"""The committer that writes: version 2 is refused by name; a session's settings do not reach us, nor are changed."""

# ruff: noqa: PT012 - the epoch's block as a whole is what raises
from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.spark.output import committer
from tests.real.spark.pipeline import Pipeline, configured, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

V2 = "mapreduce.fileoutputcommitter.algorithm.version"


@contextmanager
def in_hadoop(spark: SparkSession) -> Iterator[None]:
    hadoop = spark._jsc.hadoopConfiguration()
    hadoop.set(V2, " 2 ")
    try:
        yield
    finally:
        hadoop.set(V2, "1")


SETTINGS: dict[str, Callable[[SparkSession], AbstractContextManager[None]]] = {
    "session": lambda spark: configured(spark, {V2: "2"}),
    "prefix": lambda spark: configured(spark, {f"spark.hadoop.{V2}": "2"}),
    "hadoop": in_hadoop,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_version_2_is_refused_by_name(spark: SparkSession, pipeline: Pipeline, setting: str) -> None:
    with SETTINGS[setting](spark), pytest.raises(InvalidConfigError) as refused, pipeline.running("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
    assert f"{V2} is 2. That output committer publishes files task by task" in str(refused.value)
    assert "Set it to 1, or remove it" in str(refused.value)
    progress = pipeline.coordinator.progress(epoch_name("one"))
    assert isinstance(progress, Failed)
    assert V2 in progress.detail
    assert pipeline.listing("chk-0000000001/state/") == []


@pytest.fixture
def foreign_committer(spark: SparkSession) -> Iterator[str]:
    """A session whose own writes use another commit protocol, one that fails in all but streaming writes."""
    protocol = "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"
    with configured(spark, {committer.PROTOCOL: protocol}):
        yield protocol


def test_the_sessions_own_committer_neither_reaches_us_nor_is_changed(
    spark: SparkSession, pipeline: Pipeline, foreign_committer: str
) -> None:
    with pipeline.running("one") as epoch:
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
        assert spark.conf.get(committer.PROTOCOL) == foreign_committer
    with pytest.raises(Exception, match="setupManifestOptions must be called"):
        counts(spark, ("A-B", 1)).write.parquet(f"{pipeline.storage}/elsewhere")
    pipeline.trigger("two")
    broken = spark.range(2).selectExpr("if(id = 1, raise_error('boom'), 'fine') as x")
    with pytest.raises(Exception, match="boom"), pipeline.epoch("two") as epoch:
        assert rows(epoch.state("totals")) == [("A-B", 1)]
        epoch.snapshot("broken", broken)
    assert spark.conf.get(committer.PROTOCOL) == foreign_committer, "after a failure too"


def test_threads_of_an_application_may_write_at_once(
    spark: SparkSession, pipeline: Pipeline, foreign_committer: str
) -> None:
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch, ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(epoch.snapshot, f"s{each}", counts(spark, ("A-B", each))) for each in range(8)]
        for job in jobs:
            job.result()
    assert spark.conf.get(committer.PROTOCOL) == foreign_committer
    pipeline.complete("one")
    with pipeline.running("two") as epoch:
        assert [rows(epoch.state(f"s{each}")) for each in range(8)] == [[("A-B", each)] for each in range(8)]


def test_a_committer_chosen_while_another_write_runs(spark: SparkSession, foreign_committer: str) -> None:
    """What that write has set is not the session's own: the later write sets it again, and puts the session's back."""
    with committer.choose(spark, "file:///lake/x/").write():
        later = committer.choose(spark, "file:///lake/y/")
    assert spark.conf.get(committer.PROTOCOL) == foreign_committer
    with later.write():
        assert spark.conf.get(committer.PROTOCOL) == committer.CLASSIC.protocol
    assert spark.conf.get(committer.PROTOCOL) == foreign_committer


def test_without_the_magic_classes_s3a_is_written_by_renaming_and_says_so(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    assert committer.choose(spark, "s3a://lake/x/").committer is committer.CLASSIC
    assert "commits to S3 by copying every file" in caplog.text
    assert "Add org.apache.spark:spark-hadoop-cloud_2.13" in caplog.text
    caplog.clear()
    assert committer.choose(spark, "file:///lake/x/").committer is committer.CLASSIC
    assert caplog.text == ""
    for scheme, package in (("gs", "spark-hadoop-cloud_2.13"), ("abfs", "hadoop-azure"), ("abfss", "hadoop-azure")):
        with pytest.raises(InvalidConfigError, match=f"no other is safe on Google .* Add .*{package}"):
            committer.choose(spark, f"{scheme}://lake/x/")


@pytest.mark.parametrize(
    ("success", "found"),
    [
        (b"", "none"),
        (None, "none"),
        (b"not json", "unreadable"),
        (b"[]", "unreadable"),
        (b"{}", "unreadable"),
        (json.dumps({"committer": "directory"}).encode(), "directory"),
    ],
)
def test_a_write_that_magic_did_not_commit_is_not_believed(
    pipeline: Pipeline, success: bytes | None, found: str
) -> None:
    key = "chk-0000000001/state/routes/1-t/r/state.x/_SUCCESS"
    if success is not None:
        pipeline.coordinator.files.create_bytes(key, success)
    with pytest.raises(InvalidConfigError) as refused:
        committer.verify(committer.MAGIC, pipeline.coordinator.files, key)
    assert "another committer than the magic committer has written this output" in str(refused.value)
    assert f"expected=`magic` found=`{found}`" in str(refused.value)


def test_a_write_that_magic_committed_is_believed(pipeline: Pipeline) -> None:
    key = "chk-0000000001/state/routes/1-t/r/state.x/_SUCCESS"
    pipeline.coordinator.files.create_bytes(key, b'{"committer": "magic"}')
    committer.verify(committer.MAGIC, pipeline.coordinator.files, key)
