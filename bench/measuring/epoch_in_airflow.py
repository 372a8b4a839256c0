"""Epochs of the flights pipeline as DAG runs of a real Airflow, with Cairn and without, and what takes their time."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.postgres_server import PostgresServer
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.spark.start import fast_conf
from scripts.setup.base import ROOT

from . import epoch_work
from .airflow import airflow_for
from .epoch_arms import APPLICATIONS, PLAIN, SMALL, STAGES

HERE = Path(__file__).parents[1] / "epoch_airflow"
TIMEOUT_S = 1800.0
FIRST_DAY = datetime(2001, 1, 1, tzinfo=UTC)
SETTINGS = ("quick", "defaults", "recommended")


def seconds(text: str) -> float:
    """Convert a moment of Airflow's API to seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def shares(run: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]], log: Path) -> dict[str, float]:
    """Divide the time of a run between Airflow, the stages and Spark."""
    begin, end = seconds(run["start_date"]), seconds(run["end_date"])
    stages = [tasks[stage.uid] for stage in STAGES]
    running = epoch_work.union_s([(seconds(each["start_date"]), seconds(each["end_date"])) for each in stages])
    spark = epoch_work.work(log, begin, end).busy_s
    whole = end - begin
    return {"s": whole, "spark": spark / whole, "stages": (running - spark) / whole, "airflow": 1 - running / whole}


def run_in_turns(home: AirflowHome, transport: str, log: Path, pairs: int) -> dict[str, object]:
    """Run DAG runs with Cairn and without in turns, each for a day; return the figures of all but the first pair.

    Raises:
        RuntimeError: a run failed.
    """
    found: dict[str, list[dict[str, float]]] = {transport: [], f"plain_{transport}": []}
    for dag_id in found:
        home.api.unpause(dag_id)
    for number in range(pairs + 1):
        for dag_id in found if number % 2 else reversed(found):
            run_id = f"day-{number}"
            day = FIRST_DAY + timedelta(days=number)
            until = day + timedelta(days=1)
            home.api.trigger(dag_id, run_id, logical_date=day, until=until, conf={"number": number})
            if home.api.wait_for_run(dag_id, run_id, timeout=TIMEOUT_S) != "success":
                raise RuntimeError(home.api.explain(dag_id, run_id))
            run = home.api.run(dag_id, run_id)
            tasks = {each.task_id.removeprefix("epoch."): each.raw for each in home.api.task_instances(dag_id, run_id)}
            if number:
                found[dag_id].append(shares(run, tasks, log))
    ours, plain = found.values()
    ratios = [one["s"] / other["s"] for one, other in zip(ours, plain, strict=True)]

    def median(dag_id: str, name: str) -> float:
        return round(statistics.median(each[name] for each in found[dag_id]), 3)

    return {
        f"airflow_ratio_{transport}": round(statistics.median(ratios), 3),
        f"airflow_ratio_{transport}_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        **{f"airflow_epoch_s_{dag_id}": median(dag_id, "s") for dag_id in found},
        **{
            f"airflow_share_{name}_{dag_id}": median(dag_id, name)
            for dag_id in found
            for name in ("airflow", "spark", "stages")
        },
    }


def measure(folder: Path, flights: Path, pairs: int, transports: Sequence[str], settings: str) -> dict[str, object]:
    """Measure transports on one Airflow, as it comes, as docs/operations.md recommends, or set to be quick.

    One more pair of each transport comes first, and does not count.
    """
    logs = {name: folder / f"airflow-events-{name}" for name in transports}
    confs = {}
    for name, log in logs.items():
        log.mkdir()
        (folder / "airflow-plain" / f"plain_{name}").mkdir(parents=True)
        confs[name] = {**epoch_work.CONF, "spark.eventLog.dir": log.as_uri(), **SMALL}
    with ExitStack() as stack:
        facts: dict[str, object] = {
            "storage": (folder / "airflow-lake").as_uri(),
            "plain": str(folder / "airflow-plain"),
            "application": str(PLAIN),
            "applications": str(APPLICATIONS),
            "flights": str(flights),
            "transports": [*transports],
            "conf": {**confs["submit"], **fast_conf()} if "submit" in confs else {},
        }
        connect: dict[str, object] = {"conn_type": "spark_connect", "host": "localhost"}
        if "warm" in confs:
            server = stack.enter_context(ConnectServer(confs["warm"], few_rows=False))
            facts["remote"] = f"sc://localhost:{server.port}"
            connect["port"] = server.port
        options: dict[str, Any] = {}
        if settings != "quick":
            database = stack.enter_context(PostgresServer(durable=True))
            options = {"quick": False, "local_settings": "", "database": database}
        if settings == "recommended":
            sleep = {("scheduler", "scheduler_idle_sleep_time"): "0.2"}
            options |= {"local_settings": recommended(), "settings": sleep}
        home = airflow_for(folder, HERE / "epoch.py", facts, cores=2, **options)
        home.add_env("AIRFLOW_CONN_CONNECT", json.dumps(connect))
        stack.enter_context(home)
        home.api.wait_for_dag_files({"epoch.py"}, timeout=900)
        return {
            "airflow_settings": settings,
            **{
                name: value
                for each, log in logs.items()
                for name, value in run_in_turns(home, each, log, pairs).items()
            },
        }


def recommended() -> str:
    """Give the airflow_local_settings.py that docs/operations.md recommends; the sleep is set apart."""
    part = (ROOT / "docs" / "operations.md").read_text().partition("\n## Starting tasks faster\n")[2]
    return part.partition("```python\n")[2].partition("```")[0]
