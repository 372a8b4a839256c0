"""Cluster mode on a real YARN: the driver runs in a container, by a Python that knows nothing of this project.

Python applications have no cluster mode on Spark standalone, so this is where cluster mode is proven.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover
from scripts.harness.airflow_home import AirflowHome
from scripts.harness.spark.yarn import YarnCluster
from scripts.harness.wait import wait_until
from tests.real.airflow.scenario import kill_driver
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.soak]

HERE = Path(__file__).parent
DAG = "on_yarn"
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
BARE_PYTHON = Path(sys.executable).resolve()
"""Below the virtual environment: it has neither this project nor PySpark, which YARN's containers get shipped."""


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[YarnCluster]:
    with YarnCluster(tmp_path / "yarn") as cluster:
        yield cluster


@pytest.fixture
def gates(tmp_path: Path) -> Path:
    folder = tmp_path / "gates"
    folder.mkdir()
    return folder


@pytest.fixture
def job(tmp_path: Path) -> JobStore:
    (tmp_path / "storage").mkdir()
    return JobStore(f"file://{tmp_path / 'storage'}", DAG)


@pytest.fixture
def airflow(tmp_path: Path, yarn: YarnCluster, job: JobStore, gates: Path) -> Iterator[AirflowHome]:
    conf = {
        **yarn.spark_conf(),
        "spark.pyspark.python": str(BARE_PYTHON),
        "spark.driver.extraJavaOptions": SMALL_JVM,
        "spark.executor.extraJavaOptions": SMALL_JVM,
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.rm_web_url}
    env = {
        "HADOOP_CONF_DIR": str(yarn.conf_dir),
        "CAIRN_TEST_STORAGE": f"file://{tmp_path / 'storage'}",
        "CAIRN_TEST_GATES": str(gates),
        "CAIRN_TEST_SPARK_CONF": json.dumps(conf),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}),
    }
    home = AirflowHome(tmp_path / "airflow", env=env, heartbeat_timeout=20)
    shutil.copytree(HERE / "yarn_dags", home.dags_folder, dirs_exist_ok=True)
    with home:
        home.api.wait_for_dag(DAG)
        home.api.unpause(DAG)
        yield home


def knows_the_project(python: Path) -> bool:
    words = [str(python), "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('airflow_cairn') is None)"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(words, env=env, cwd="/", check=False).returncode == 0


def kill_worker(airflow: AirflowHome, run_id: str) -> None:
    """Kill the process of a run's task and the supervisor above it at once; neither can tell anybody."""
    task = psutil.Process(airflow.api.task(DAG, run_id, "epoch.count").raw["pid"])
    supervisor = task.parent()
    assert supervisor is not None
    for victim in (supervisor, task):
        victim.send_signal(signal.SIGKILL)


def follows_its_driver(airflow: AirflowHome, run_id: str) -> bool:
    """Tell whether the run's task has noted its driver and asks YARN about it."""
    logs = (airflow.home / "logs" / f"dag_id={DAG}" / f"run_id={run_id}").rglob("*.log")
    return any("Tracking YARN application" in log.read_text() for log in logs)


def is_taken_over(job: JobStore) -> bool:
    """Tell whether another try waits for the driver of the pending checkpoint's one stage."""
    (pending,) = job.coordinator.head().pending
    (found,) = job.files.listing(f"{layout.folder(pending.id)}handover/")
    return job.files.read(Handover, found.key)[0].adopted


def test_stages_run_in_containers_of_yarn(airflow: AirflowHome, yarn: YarnCluster, job: JobStore, gates: Path) -> None:
    """semantics R1, F2, F5: three epochs. The second one's driver dies in its container and is made up for; the third
    one's lives on when its worker is killed, and the retry waits for it.
    """
    assert not knows_the_project(BARE_PYTHON)
    airflow.api.trigger(DAG, "e1")
    airflow.api.wait_for_run(DAG, "e1")
    assert airflow.api.run_state(DAG, "e1") == "success", airflow.api.explain(DAG, "e1")
    airflow.api.trigger(DAG, "e2")
    (gates / "hold-e2-1").touch()
    reached = gates / "reached-e2-1"
    wait_until(reached.exists, 600, "the driver of e2 to open its epoch")
    driver = psutil.Process(int(reached.read_text())).parent()
    assert driver is not None
    assert "org.apache.spark.deploy.yarn.ApplicationMaster" in driver.cmdline()
    kill_driver(driver)
    airflow.api.wait_for_run(DAG, "e2")
    assert airflow.api.run_state(DAG, "e2") == "success", airflow.api.explain(DAG, "e2")
    airflow.api.trigger(DAG, "e3")
    (gates / "hold-e3-1").touch()
    wait_until((gates / "reached-e3-1").exists, 600, "the driver of e3 to open its epoch")
    wait_until(lambda: follows_its_driver(airflow, "e3"), 600, "the task of e3 to ask YARN about its driver")
    kill_worker(airflow, "e3")
    wait_until(lambda: is_taken_over(job), 600, "the retry to take over the driver of e3")
    (gates / "hold-e3-1").unlink()
    airflow.api.wait_for_run(DAG, "e3")
    assert airflow.api.run_state(DAG, "e3") == "success", airflow.api.explain(DAG, "e3")
    assert len(airflow.api.tries(DAG, "e3", "epoch.count")) == 2

    killed = job.coordinator.head().ended_by_id(2)
    assert killed is not None
    assert "_0002 ended with state: FAILED" in killed.detail
    assert job.outcomes() == [
        (1, 1, "COMPLETED"),
        (2, 1, "JOB_FAILOVER_REGION"),
        (3, 2, "COMPLETED"),
        (4, 1, "COMPLETED"),
    ]
    seen = [*range(1000, 1100), *range(2000, 2100), *range(3000, 3100)]
    assert sorted(row["id"] for row in job.state("count", "seen")) == seen
    applications = yarn.applications()
    # Each attempt has one application, and YARN itself started no driver again.
    assert [(app["state"], app["finalStatus"]) for app in applications] == [
        ("FINISHED", "SUCCEEDED"),
        ("FAILED", "FAILED"),
        ("FINISHED", "SUCCEEDED"),
        ("FINISHED", "SUCCEEDED"),
    ]
    containers = job.value("count", "containers")
    masters = [str(applications[number]["id"]).removeprefix("application_") for number in (0, 2, 3)]
    assert [
        container.startswith(f"container_{master}_01_") for container, master in zip(containers, masters, strict=True)
    ] == [True, True, True]
    assert job.value("count", "python") == str(BARE_PYTHON)
    shipped = Path(job.value("count", "runtime")).parent.parent
    assert shipped.name.startswith("airflow_cairn-")
    assert shipped.suffix == ".zip"
    assert shipped.is_relative_to(yarn.root / "local")
    assert job.unreferenced() == []
