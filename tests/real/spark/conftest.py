"""A Spark session a module, and a pipeline whose operator and sensor the tests play."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.spark.stored import deltas, merges
from tests.real.spark.pipeline import Pipeline, session_builder

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
def pipeline(spark: SparkSession, tmp_path: Path) -> Iterator[Pipeline]:
    """One stage, `routes`, on local files."""
    made = Pipeline(f"file://{tmp_path}/lake", spark)
    yield made
    made.forget()
