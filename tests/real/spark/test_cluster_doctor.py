"""`cairn doctor --cluster` on real clusters: spark-submit to standalone and to YARN, and a Spark Connect server."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from airflow_cairn.operators.stage.trial import ask_by_connection
from airflow_cairn.spark import cluster_probe
from airflow_cairn.tasks.health import facts
from airflow_cairn.tasks.health.examine import examine_worker
from airflow_cairn.tasks.health.facts import ClusterFacts, NoAnswer, Silence
from airflow_cairn.tasks.health.facts import ask_cluster as ask
from scripts.harness.spark.cluster import SparkCluster
from scripts.harness.spark.connect_server import ConnectServer
from scripts.harness.spark.start import small_conf
from scripts.harness.spark.yarn import YarnCluster
from scripts.harness.wait import wait_until
from scripts.setup.java import ensure_java
from tests.support.once_said import OnceSaid

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

Define = Callable[[str, str], None]

CONN = "spark_there"
TOKEN = "token-of-the-test"
PATIENT_S = 1200.0
"""On a machine as busy as can be."""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with the Spark and the Java of the tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JAVA_HOME", str(ensure_java()))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setattr(facts, "ANSWER_S", PATIENT_S)


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """Two workers, so that driver and executors are three JVMs."""
    with SparkCluster() as it:
        yield it


def java() -> str:
    """The version as the Java of the tests says it."""
    words = [str(ensure_java() / "bin" / "java"), "-XshowSettings:properties", "-version"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    return next(line.split("=")[1].strip() for line in said.splitlines() if line.strip().startswith("java.version ="))


def drivers() -> list[list[str]]:
    """Give the command lines of processes that run the application of the doctor."""
    lines = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
    return [line for line in lines if cluster_probe.__file__ in line]


CONF = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", **small_conf()}


@pytest.mark.soak  # it starts a cluster; test_cluster_probe.py has the report
def test_driver_and_executors_of_a_standalone_cluster(
    cluster: SparkCluster, connections: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections(CONN, json.dumps({"conn_type": "spark", "host": "spark://127.0.0.1", "port": cluster.port}))
    found = ask(CONN, CONF)
    assert isinstance(found, ClusterFacts), found
    spark, python = (pyspark.__version__,), (platform.python_version(),)
    assert (found.spark, found.pyspark, found.python) == (*spark, *spark, *python)
    assert (found.executor_spark, found.executor_java, found.executor_python) == (spark, (java(),), python)
    assert (found.java, len(found.hosts), found.failed) == (java(), 1, {})
    assert found.over_connect is False

    ill = {"spark.pyspark.python": "/no/such/python", "spark.pyspark.driver.python": sys.executable}
    said = examine_worker(s3=False, airflow_api_conn_id=None, spark_conf={**CONF, **ill}, cluster=CONN)
    (finding,) = [each for each in said.findings if each.subject == CONN]
    assert finding.name == "cluster-python"
    assert 'Cannot run program "/no/such/python"' in finding.what
    assert said.passed[-2:] == ["cluster", "cluster's Java"]


@pytest.mark.soak  # it starts a YARN
def test_a_driver_in_a_container_of_yarn_answers_through_the_storage(
    tmp_path: Path, connections: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").mkdir()
    with YarnCluster(tmp_path / "yarn") as yarn:
        monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf_dir))
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": yarn.rm_web_url}
        connections(CONN, json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
        bare = {"spark.pyspark.python": str(Path(sys.executable).resolve())}
        found = ask_by_connection(CONN, {**CONF, **yarn.spark_conf(), **bare}, storage=f"file://{tmp_path}/lake")
    assert isinstance(found, ClusterFacts), found
    assert (found.executor_java, found.executor_python) == ((java(),), (platform.python_version(),))
    assert found.storage is not None, found.failed
    assert (found.storage.findings, found.storage.passed[-2:]) == ([], ["rights", "conditional writes"])
    assert [each for each in (tmp_path / "lake").rglob("*") if each.is_file()] == []


@pytest.mark.soak  # it starts a cluster; tests/unit/tasks/health/test_cluster.py has programs that never answer
def test_a_standalone_cluster_that_gives_no_executor(
    cluster: SparkCluster, connections: Define, monkeypatch: pytest.MonkeyPatch
) -> None:
    starved = "Initial job has not accepted any resources"
    monkeypatch.setattr(facts, "Timer", lambda _, end: OnceSaid(starved, end))
    connections(CONN, json.dumps({"conn_type": "spark", "host": "spark://127.0.0.1", "port": cluster.port}))
    found = ask(CONN, {**CONF, "spark.executor.memory": "64g", "spark.starvation.timeout": "1s"})
    assert isinstance(found, NoAnswer), found
    assert found.silence is Silence.FAILED
    assert found.why.startswith(f"no answer within {PATIENT_S:.0f} s. The last of Spark's log: ")
    assert starved in found.why
    wait_until(lambda: not drivers(), PATIENT_S, "the driver to end", details=lambda: f"{drivers()}")


@pytest.mark.soak  # it starts a server; test_cluster_probe.py has the report
def test_a_spark_connect_server_and_its_executors(connections: Define) -> None:
    with ConnectServer(env={"SPARK_CONNECT_AUTHENTICATE_TOKEN": TOKEN}) as server:
        at = {"conn_type": "spark_connect", "host": "localhost", "port": server.port, "password": TOKEN}
        connections(CONN, json.dumps(at))
        found = ask(CONN, {})
        assert isinstance(found, ClusterFacts), found
        assert (found.spark, found.java, found.executor_java) == (pyspark.__version__, java(), (java(),))
        assert (found.executor_python, found.failed) == ((platform.python_version(),), {})
        assert found.over_connect is True
        said = examine_worker(s3=False, airflow_api_conn_id=None, cluster=CONN)
        assert [each for each in said.findings if each.subject == CONN] == []
        assert said.passed[-3:] == ["cluster", "cluster's Python", "cluster's Java"]

        connections(CONN, json.dumps({**at, "password": "another"}))
        none = ask(CONN, {})
        assert isinstance(none, NoAnswer)
        assert "does not take the connection's token" in none.why
