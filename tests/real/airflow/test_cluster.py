"""The flights pipeline on a real Spark standalone cluster: nothing but the Spark connection differs."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from scripts.demo.flights_input import write_flights
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.spark.cluster import SparkCluster
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT
from tests.real.airflow.conftest import spark_conf
from tests.real.airflow.store import JobStore

# In `make test` test_demo.py runs the pipeline, and tests/real/s3/test_executor_credentials.py goes to executors.
pytestmark = [pytest.mark.e2e, pytest.mark.soak]

DAYS = 2


def ended_runs(home: AirflowHome) -> int:
    """Count the runs that have succeeded; one that has failed ends the test with its tasks' logs."""
    runs = home.api.runs("flights")
    for run in runs:
        assert run["state"] != "failed", home.api.explain("flights", run["dag_run_id"])
    return sum(run["state"] == "success" for run in runs)


def test_the_pipeline_runs_on_a_cluster_by_its_connection_alone(tmp_path: Path) -> None:
    """On as many workers as there are days; the state equals a count in plain Python."""
    flights = tmp_path / "flights.parquet"
    write_flights(flights, DAYS)
    storage = tmp_path / "storage"
    storage.mkdir()
    with SparkCluster(DAYS, root=tmp_path / "spark") as cluster:
        env = {
            "CAIRN_STORAGE": f"file://{storage}",
            "CAIRN_FLIGHTS": str(flights),
            "CAIRN_FLIGHTS_DAYS": str(DAYS),
            "CAIRN_FLIGHTS_SPARK_CONF": json.dumps(spark_conf()),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": cluster.master_url}),
        }
        home = AirflowHome(tmp_path / "airflow", mode="standalone", env=env)
        shutil.copytree(ROOT / "dags", home.dags_folder, dirs_exist_ok=True)
        with home:
            home.api.wait_for_dag("flights")
            home.api.unpause("flights")
            job = JobStore(f"file://{storage}", "flights")
            wait_until(lambda: ended_runs(home) == DAYS, 480, "all runs to end", interval=1.0)
            state = cluster.state()
    assert job.outcomes() == [(day, 1, "COMPLETED") for day in range(1, DAYS + 1)]
    assert state is not None
    assert len(state["completedapps"]) == 4 * DAYS
    expected = Counter(
        (row["origin"], row["destination"])
        for row in pq.read_table(flights, columns=["origin", "destination", "delay"]).to_pylist()
        if row["delay"] is not None
    )
    found = {(row["origin"], row["destination"]): row["flights"] for row in job.state("routes", "totals")}
    assert found == dict(expected)
    departures, arrivals = Counter[str](), Counter[str]()
    for (origin, destination), flown in expected.items():
        departures[origin] += flown
        arrivals[destination] += flown
    traffic = {row["airport"]: (row["departures"], row["arrivals"]) for row in job.state("airports", "traffic")}
    assert traffic == {each: (departures[each], arrivals[each]) for each in departures | arrivals}
    assert job.unreferenced() == []
