"""A real spark-submit of what is no Python file with an epoch's block: a function, a plain script, a jar with SQL.

Of a function, its source and Cairn's zip are all that the driver has; a program without a block has nothing of Cairn.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.operators import NewState, Output, Publish, Read, SliceStart, SparkEpochOperator, State
from airflow_cairn.operators.stage.function import spark_epoch_task
from scripts.harness.spark.start import small_conf
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context

pytestmark = pytest.mark.spark

APPLICATIONS = Path(__file__).parent / "applications"
RUN = "manual__2001-01-01T00:00:00+00:00"


def routes(epoch: Any, airports: list[str], *, most: int) -> None:
    """Keep the airports, and say where from."""
    from airflow_cairn import spark

    rows = epoch.spark.createDataFrame([(each,) for each in airports], "airport string").limit(most)
    epoch.snapshot("airports", rows, key="airport")
    print("FOUND", airports, most, spark.__file__)


@pytest.fixture
def conf(connections: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    connections("spark_here", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **small_conf()}


def test_a_function_is_a_stage(job: Job, conf: dict[str, str], said: Said) -> None:
    with DAG("flights"):
        decorated: Any = spark_epoch_task(routes, storage=job.storage, conn_id="spark_here", conf=conf)
        made = decorated(["BER", "FRA"], most=1)
    job.trigger(RUN)
    result = made.operator.execute(context(Ti(run_id=RUN)))
    assert result == {"checkpoint": 1, "epoch": result["epoch"], "attempt": 1, "stage": "routes"}
    assert re.search(r"FOUND \['BER', 'FRA'\] 1 \S+\.zip/", said.text), "Cairn comes from the zip"
    assert [each.id for each in job.coordinator.head().completed] == [1]


def test_programs_without_a_block(job: Job, conf: dict[str, str], said: Said) -> None:
    """decision 0058: a script and a jar that runs SQL, between two stages with a block; each reads the one before."""
    jars = Path(pyspark.__file__).parent / "jars"
    variables = {
        "clean": Read("clean"),
        "before": State("totals", schema="airport STRING, n BIGINT"),
        "totals": NewState("totals"),
        "league": Publish("league", format="csv", options={"header": "true"}),
    }
    stages: dict[str, dict[str, Any]] = {
        "flights": {"application": "between_plain.py", "application_args": ["flights"]},
        "clean": {
            "application": "plain_clean.py",
            "application_args": [SliceStart("%Y-%m-%d"), Read("flights"), Output("clean")],
        },
        "totals": {
            "application": str(next(jars.glob("spark-hive-thriftserver_*.jar"))),
            "java_class": "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver",
            "application_args": [
                *("-f", str(APPLICATIONS / "plain_totals.sql")),
                *(each for name, place in variables.items() for each in ("--hivevar", f"{name}=" + place)),
            ],
        },
        "report": {"application": "between_plain.py", "application_args": ["report"]},
    }
    upstream = {"clean": ("flights",), "totals": ("clean",), "report": ("clean", "totals")}
    reads = Slice(start="2026-01-01T00:00:00+00:00", end="2026-01-02T00:00:00+00:00")
    checkpoint = job.trigger(RUN, *(StageSpec(each, upstream.get(each, ())) for each in stages), reads=reads)
    for uid, options in stages.items():
        application = str(APPLICATIONS / options.pop("application"))
        given = {"storage": job.storage, "job": job.name, "conn_id": "spark_here", "conf": conf, **options}
        operator = SparkEpochOperator(task_id=uid, application=application, **given)
        assert operator.execute(context(Ti(run_id=RUN, task_id=uid))) is not None
    days, totals = "[('2026-01-01', 'BER'), ('2026-01-01', 'MUC')]", "[('BER', 2), ('MUC', 1)]"
    assert f"FOUND {days} {totals} [('BER', '2'), ('MUC', '1')]" in said.text
    assert [each.id for each in job.coordinator.head().completed] == [checkpoint]
    assert all(each.whole for each in job.coordinator.verify(deep=True))
