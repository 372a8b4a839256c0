"""A Spark session a module, and a pipeline whose operator and sensor the tests play."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.spark.stored import deltas, merges
from tests.real.spark.pipeline import At, Pipeline, session_builder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A small local session, shared by the module."""
    session = session_builder().getOrCreate()
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def large_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the states of this process count as large, so that an epoch adds a run."""
    monkeypatch.setattr(merges, "WHOLE_BYTES", 0)
    monkeypatch.setattr(deltas, "SCANNED_BYTES", 0)


@pytest.fixture
def at(spark: SparkSession, tmp_path: Path) -> Iterator[At]:
    """Stage `routes` on local files, at the parallelism of a test's choice, or other stages."""

    def choose(parallelism: int | None = None, max_parallelism: int | None = None, **options: Any) -> Pipeline:
        options.setdefault("stages", (StageSpec("routes", (), parallelism, max_parallelism),))
        return Pipeline(f"file://{tmp_path}/lake", spark, **options)

    yield choose
    choose().forget()


@pytest.fixture
def pipeline(at: At) -> Pipeline:
    """One stage, `routes`, on local files."""
    return at()
