"""Canary secrets in connection, environment and conf, searched for wherever somebody could see them (decision 0005).

The OpenLineage provider is in this Airflow alone, because it costs each task half a second; so what its listener sends
of a real run is looked at here too, and searched as well.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.ports import free_port
from scripts.harness.s3_server import S3Server
from scripts.harness.wait import wait_until
from scripts.s3a_jars import s3a_jars
from scripts.setup.beside import ensure_lineage
from tests.real.airflow.conftest import HERE, Gates, spark_conf

pytestmark = pytest.mark.e2e

ACCESS_KEY = "CANARYACCESSKEY00001"
SECRET_KEY = "canary-connection-secret-5b1f"
ENVIRONMENT_SECRET = "canary-environment-secret-77aa"
CONF_SECRET = "canary-conf-secret-c0ffee"
CANARIES = (ACCESS_KEY, SECRET_KEY, ENVIRONMENT_SECRET, CONF_SECRET)
JOB = "cleared_after_completion"
"""Any of the scenarios does; here nothing is cleared, the driver is only held while everything is looked at."""


@pytest.mark.soak  # an Airflow of its own; test_session.py searches, tests/unit/tasks/reports/ has lineage
def test_no_secret_is_seen_anywhere(tmp_path: Path) -> None:
    """Command lines, Spark UI API, event log, rendered fields, XCom, logs, lineage, and every object of the store."""
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
            **_with_lineage(tmp_path / "lineage"),
        }
        home = AirflowHome(tmp_path / "airflow", env=env)
        # Its file alone: the dag processor would parse the others of all scenarios too.
        shutil.copytree(HERE / "dags" / "applications", home.dags_folder / "applications")
        shutil.copy(HERE / "dags" / "scenarios.py", home.dags_folder)
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
            # A task tells its success first, and sends its event after it.
            wait_until(lambda: len(_completed(tmp_path / "lineage")) == 2, 300, "two tasks to send their events")
        _check_lineage(_completed(tmp_path / "lineage"))
        seen["lineage"] = _texts(tmp_path / "lineage")
        seen["event log"] = _texts(events)
        seen["logs"] = _texts(home.home / "logs")
        seen["objects"] = _texts(tmp_path / "s3" / "data")
    assert JOB in seen["objects"]
    assert "spark.cairn.handover" in seen["event log"]
    assert "submitting" in seen["logs"]
    found = [(place, canary) for place, text in seen.items() for canary in CANARIES if canary in text]
    assert found == []


def _with_lineage(folder: Path) -> dict[str, str]:
    """Make tasks load the provider, and its listener write a file for each event, however long a busy machine takes."""
    folder.mkdir()
    return {
        "PYTHONPATH": str(ensure_lineage()),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps({"type": "file", "log_file_path": str(folder / "event")}),
        "AIRFLOW__OPENLINEAGE__EXECUTION_TIMEOUT": "300",
        "AIRFLOW__CORE__TASK_SUCCESS_OVERTIME": "300",
    }


def _completed(folder: Path) -> dict[str, dict[str, Any]]:
    """Give by task what it said of its success, of Cairn's tasks alone; an event that is being written is not there."""
    found: dict[str, dict[str, Any]] = {}
    for path in folder.iterdir():
        try:
            event = json.loads(path.read_text())
        except ValueError:
            continue
        task = event["job"]["name"].removeprefix(f"{JOB}.")
        if event["eventType"] == "COMPLETE" and "checkpoint" in event["run"]["facets"].get("cairn", ()):
            found[task] = event
    return found


def _check_lineage(events: dict[str, dict[str, Any]]) -> None:
    """See that the facets name the epoch's checkpoint, and that what the stage wrote has the names of its job."""
    said = {task: event["run"]["facets"]["cairn"] for task, event in events.items()}
    assert {task: (each["checkpoint"], each["epoch"], each["attempt"]) for task, each in said.items()} == {
        "epoch.count": (1, "e1", 1),
        "epoch.wait_for_checkpoint": (1, "e1", 1),
    }
    assert said["epoch.count"]["stage"] == "count"
    whole = said["epoch.wait_for_checkpoint"]
    assert whole["size_bytes"] == whole["new_bytes"] > 0
    written = {each["name"]: each["outputFacets"]["outputStatistics"] for each in events["epoch.count"]["outputs"]}
    assert f"cairn/{JOB}/states/count/seen" in written
    assert {each["namespace"] for each in events["epoch.count"]["outputs"]} == {"s3://lake"}
    assert sum(each["size"] for each in written.values()) == whole["new_bytes"]


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
