"""A savepoint of a state that grows: with its base and deltas, and with a new base made of them first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.spark import compact, state
from airflow_cairn.storage import open_store
from tests.real.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def both(
    spark: SparkSession, pipeline: Pipeline, stage: str, name: str, target: str, read: Callable[[DataFrame], object]
) -> dict[str, object]:
    """Take a savepoint with deltas, let a compaction make a base of them, and take another savepoint.

    Returns:
        For each savepoint: the seconds until it exists, with those of the compaction; the bytes of its data; the
        seconds to read its state.
    """
    carried = _savepoint(pipeline, f"{target}/carried")
    carried["read_seconds"] = _timed(lambda: read(_state(spark, pipeline, stage, name)))
    compacted = _timed(lambda: _compact(spark, pipeline, stage, name))
    pipeline.run("adopts", lambda epoch: None)
    flattened = _savepoint(pipeline, f"{target}/flattened")
    flattened["seconds"] = round(flattened["seconds"] + compacted, 3)
    flattened["read_seconds"] = _timed(lambda: read(_state(spark, pipeline, stage, name)))
    return {"carried": carried, "flattened": flattened}


def _compact(spark: SparkSession, pipeline: Pipeline, stage: str, name: str) -> None:
    [found] = compact(spark, pipeline.storage, pipeline.job, stage, name, s3=pipeline.s3)
    assert found.outcome == "compacted", found


def _state(spark: SparkSession, pipeline: Pipeline, stage: str, name: str) -> DataFrame:
    return state(spark, pipeline.storage, pipeline.job, stage, name, s3=pipeline.s3)


def _savepoint(pipeline: Pipeline, target: str) -> dict[str, float]:
    def taken() -> None:
        request = SavepointRequest(target, target.rpartition("/")[2])
        entry = pipeline.coordinator.savepoint(request, lambda uri: open_store(uri, s3=pipeline.s3))
        assert entry.status is Status.COMPLETED, entry.detail

    seconds = _timed(taken)
    found = open_store(target, s3=pipeline.s3).list("")
    return {"seconds": seconds, "bytes": sum(each.size_bytes for each in found if each.key.endswith(".parquet"))}


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 3)
