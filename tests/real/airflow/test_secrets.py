"""Canary secrets in connection, environment and conf, searched for wherever somebody could see them (decision 0005)."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.ports import free_port
from scripts.harness.s3_server import S3Server
from scripts.s3a_jars import s3a_jars
from tests.real.airflow.conftest import HERE, Gates, spark_conf

pytestmark = pytest.mark.e2e

ACCESS_KEY = "CANARYACCESSKEY00001"
SECRET_KEY = "canary-connection-secret-5b1f"
ENVIRONMENT_SECRET = "canary-environment-secret-77aa"
CONF_SECRET = "canary-conf-secret-c0ffee"
CANARIES = (ACCESS_KEY, SECRET_KEY, ENVIRONMENT_SECRET, CONF_SECRET)
JOB = "cleared_after_completion"
"""Any of the scenarios does; here nothing is cleared, the driver is only held while everything is looked at."""


def test_no_secret_is_seen_anywhere(tmp_path: Path) -> None:
    """Command lines, Spark UI API, event log, rendered fields, XCom, logs, and every object of the store."""
    ui_port = free_port()
    events = tmp_path / "events"
    events.mkdir()
    defaults = tmp_path / "spark-conf"
    defaults.mkdir()
    # A site's own expression replaces Spark's, which hides the keys that Spark copies into the Hadoop conf.
    (defaults / "spark-defaults.conf").write_text(
        f"spark.hadoop.my.service.password {CONF_SECRET}\nspark.redaction.regex (?i)our-own\n"
    )
    gates = Gates(tmp_path / "gates")
    gates.hold(JOB, "e1", 1, "written")
    with S3Server(tmp_path / "s3", access_key=ACCESS_KEY, secret_key=SECRET_KEY) as server:
        server.create_bucket("lake")
        conf = {
            **spark_conf(),
            "spark.ui.enabled": "true",
            "spark.ui.port": str(ui_port),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file://{events}",
            "spark.eventLog.compress": "false",
            "spark.jars": ",".join(str(jar) for jar in s3a_jars()),
        }
        connection = {
            "conn_type": "aws",
            "login": ACCESS_KEY,
            "password": SECRET_KEY,
            "extra": {"endpoint_url": server.endpoint_url, "region_name": server.region},
        }
        env = {
            "CAIRN_TEST_STORAGE": "s3://lake/cairn",
            "CAIRN_TEST_AWS_CONN_ID": "lake",
            "CAIRN_TEST_GATES": str(gates.folder),
            "CAIRN_TEST_SPARK_CONF": json.dumps(conf),
            "AIRFLOW_CONN_LAKE": json.dumps(connection),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "MY_SERVICE_TOKEN": ENVIRONMENT_SECRET,
            "SPARK_CONF_DIR": str(defaults),
        }
        home = AirflowHome(tmp_path / "airflow", env=env)
        shutil.copytree(HERE / "dags", home.dags_folder, dirs_exist_ok=True)
        with home:
            home.api.wait_for_dag(JOB)
            home.api.unpause(JOB)
            home.api.trigger(JOB, "e1")
            gates.wait_until_reached(JOB, "e1", 1, "written")
            seen = {"command lines": _command_lines(), "Spark UI": _spark_ui(ui_port)}
            assert "spark.cairn.handover" in seen["command lines"]
            assert "my.service.password" in seen["Spark UI"]
            gates.release(JOB, "e1", 1, "written")
            home.api.wait_for_run(JOB, "e1")
            tasks = [task.task_id for task in home.api.task_instances(JOB, "e1")]
            seen["rendered fields"] = json.dumps([home.api.rendered_fields(JOB, "e1", task) for task in tasks])
            seen["XCom"] = json.dumps([home.api.xcoms(JOB, "e1", task) for task in tasks], default=str)
        seen["event log"] = _texts(events)
        seen["logs"] = _texts(home.home / "logs")
        seen["objects"] = _texts(tmp_path / "s3" / "data")
    assert JOB in seen["objects"]
    assert "spark.cairn.handover" in seen["event log"]
    assert "submitting" in seen["logs"]
    found = [(place, canary) for place, text in seen.items() for canary in CANARIES if canary in text]
    assert found == []


def _command_lines() -> str:
    return "\n".join(" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))


def _spark_ui(port: int) -> str:
    base = f"http://127.0.0.1:{port}/api/v1/applications"
    with urllib.request.urlopen(base) as answer:
        applications = json.load(answer)
    pages = [f"{base}/{applications[0]['id']}/{page}" for page in ("environment", "jobs", "sql", "executors")]
    return "\n".join(_get(page) for page in pages)


def _get(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        text: str = answer.read().decode()
    return text


def _texts(folder: Path) -> str:
    return "\n".join(_lines(folder))


def _lines(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path)
            yield path.read_bytes().decode("latin-1")
