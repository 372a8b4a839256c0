"""Pytest fixtures, enabled by `pytest_plugins = ["airflow_cairn.testing"]` in conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..spark.pyspark_versions import check_starts_here
from .epochs import LocalEpoch, local_epoch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="session")
def cairn_spark() -> Iterator[SparkSession]:
    """Start a small Spark session on this machine, for all tests: one shuffle partition, UTC, no UI."""
    check_starts_here("the fixture cairn_spark")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("cairn-tests")
    session = builder.config(map={**_SMALL}).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def cairn_epoch(cairn_spark: SparkSession, tmp_path: Path) -> Callable[..., LocalEpoch]:
    """Return `local_epoch` with the session `cairn_spark`, below the test's `tmp_path`.

    Each call makes a new job.
    """
    made = count()

    def make(*args: Any, **options: Any) -> LocalEpoch:
        return local_epoch(cairn_spark, *args, **{"folder": tmp_path / f"epoch-{next(made)}", **options})

    return make
