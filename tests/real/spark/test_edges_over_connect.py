"""The values at the edges of each type by a client of a Spark Connect server, which has no JVM (semantics W12, K6)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from scripts.harness.spark.connect_server import ConnectServer
from tests.real.spark.test_edges import *  # noqa: F403  (the tests, and their fixtures but those below)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Only Spark's plans differ from test_edges.py.
pytestmark = [pytest.mark.spark, pytest.mark.soak]  # type: ignore[assignment]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session of a server of the module's own, made as an application makes it."""
    from pyspark.sql import SparkSession

    before = set(os.environ)
    with ConnectServer() as server:
        session = SparkSession.builder.remote(f"sc://localhost:{server.port}").getOrCreate()
        yield session
        session.stop()
    for added in set(os.environ) - before:  # PySpark's own, by which its functions would stay remote
        del os.environ[added]


@pytest.fixture(name="background")
def in_the_background() -> bool:
    """Snapshots and tables are written while the block goes on: the client's threads wait for the server."""
    return True
