"""Epochs of the flights pipeline as DAG runs of a real Airflow, and the shares of their time."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.spark.start import fast_conf
from scripts.harness.wait import wait_until

from . import epoch_work
from .airflow import airflow_for
from .epoch_arms import APPLICATIONS, SMALL, STAGES

HERE = Path(__file__).parents[1] / "epoch_airflow"
TIMEOUT_S = 1800.0


def seconds(text: str) -> float:
    """Convert a moment of Airflow's API to seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def shares(run: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]], log: Path) -> dict[str, float]:
    """Divide the time of a run between Airflow, the stages and Spark.

    Args:
        run: the run, from Airflow's API.
        tasks: its tasks, likewise, by id.
        log: the folder of Spark's event logs.
    """
    begin, end = seconds(run["start_date"]), seconds(run["end_date"])
    stages = [tasks[f"epoch.{stage.uid}"] for stage in STAGES]
    running = epoch_work.union_s([(seconds(each["start_date"]), seconds(each["end_date"])) for each in stages])
    spark = epoch_work.work(log, begin, end).busy_s
    whole = end - begin
    return {"s": whole, "spark": spark / whole, "stages": (running - spark) / whole, "airflow": 1 - running / whole}


def run_epochs(home: AirflowHome, dag_id: str, log: Path, epochs: int) -> dict[str, object]:
    """Run all DAG runs of one transport; return the figures of all but the first.

    Raises:
        RuntimeError: a run failed.
    """
    home.api.unpause(dag_id)

    def ended() -> list[dict[str, Any]]:
        runs = home.api.runs(dag_id)
        if failed := [run for run in runs if run["state"] == "failed"]:
            raise RuntimeError(home.api.explain(dag_id, failed[0]["dag_run_id"]))
        return runs if len(runs) == epochs and all(run["state"] == "success" for run in runs) else []

    runs = sorted(wait_until(ended, TIMEOUT_S, f"{epochs} runs of {dag_id}"), key=lambda run: str(run["logical_date"]))
    found = []
    for run in runs[1:]:
        tasks = {each.task_id: each.raw for each in home.api.task_instances(dag_id, run["dag_run_id"])}
        found.append(shares(run, tasks, log))

    def median(name: str) -> float:
        return round(statistics.median(each[name] for each in found), 3)

    return {
        f"airflow_epoch_s_{dag_id}": median("s"),
        **{f"airflow_share_{name}_{dag_id}": median(name) for name in ("airflow", "spark", "stages")},
    }


def measure(folder: Path, flights: Path, epochs: int) -> dict[str, object]:
    """Measure both transports on one Airflow.

    Args:
        folder: for all files; deleted by the caller.
        flights: the input, with a day for each epoch.
        epochs: epochs of each transport; the first does not count.
    """
    logs = {name: folder / f"airflow-events-{name}" for name in ("warm", "submit")}
    confs = {}
    for name, log in logs.items():
        log.mkdir()
        confs[name] = {**epoch_work.CONF, "spark.eventLog.dir": log.as_uri(), **SMALL}
    facts = {
        "storage": (folder / "airflow-lake").as_uri(),
        "applications": str(APPLICATIONS),
        "flights": str(flights),
        "epochs": epochs,
        "conf": {**confs["submit"], **fast_conf()},
    }
    with ConnectServer(confs["warm"]) as server:
        home = airflow_for(folder, HERE / "epoch.py", facts, cores=2)
        connect = {"conn_type": "spark_connect", "host": "localhost", "port": server.port}
        home.add_env("AIRFLOW_CONN_CONNECT", json.dumps(connect))
        with home:
            home.api.wait_for_dag_files({"epoch.py"})
            return {
                name: value for each, log in logs.items() for name, value in run_epochs(home, each, log, epochs).items()
            }
