"""`@task.spark_epoch` by a real spark-submit: the function's source and Cairn's zip are all that the driver has."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cairn.operators.stage.function import spark_epoch_task
from scripts.harness.spark.start import fast_conf
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context

pytestmark = pytest.mark.spark

RUN = "manual__2001-01-01T00:00:00+00:00"


def routes(epoch: Any, airports: list[str], *, most: int) -> None:
    """Keep the airports, and say where from."""
    from airflow_cairn import spark

    rows = epoch.spark.createDataFrame([(each,) for each in airports], "airport string").limit(most)
    epoch.snapshot("airports", rows, key="airport")
    print("FOUND", airports, most, spark.__file__)


def test_a_function_is_a_stage(
    job: Job, connections: Callable[[str, str], None], said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections("spark_here", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **fast_conf()}
    with DAG("flights"):
        decorated: Any = spark_epoch_task(routes, storage=job.storage, conn_id="spark_here", conf=conf)
        made = decorated(["BER", "FRA"], most=1)
    job.trigger(RUN)
    result = made.operator.execute(context(Ti(run_id=RUN)))
    assert result == {"checkpoint": 1, "epoch": result["epoch"], "attempt": 1, "stage": "routes"}
    assert re.search(r"FOUND \['BER', 'FRA'\] 1 \S+\.zip/", said.text), "Cairn comes from the zip"
    assert [each.id for each in job.coordinator.head().completed] == [1]
