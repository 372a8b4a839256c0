"""From a stage's page to its Spark application: while it runs, and afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_cairn.hooks.spark_connect import ConnectClient
from airflow_cairn.hooks.spark_submit import EpochSubmitHook
from airflow_cairn.spark.application import Application
from airflow_cairn.spark.remote.submission import Submission
from airflow_cairn.tasks.reports.spark_link import SparkLink, SparkPlace
from tests.support.airflow_fixtures import Said

Define = Callable[[str, str], None]
UI = "http://driver:4040"
LOGGED = Application("app-1", UI, logged=True)
HISTORY = "https://history.example.com/spark"


def define(connections: Define, server: object = HISTORY, **more: Any) -> None:
    extra = {"history_server": server} if server is not None else {}
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local", "extra": extra | more}))


@pytest.mark.parametrize(
    ("application", "now", "afterwards"),
    [
        (LOGGED, UI, f"{HISTORY}/history/app-1/jobs/"),
        (Application("app-1", UI), UI, ""),
        (Application("app-1", logged=True), f"{HISTORY}/history/app-1/jobs/", f"{HISTORY}/history/app-1/jobs/"),
        (
            Application("application_1_2", logged=True, attempt="1"),
            f"{HISTORY}/history/application_1_2/1/jobs/",
            f"{HISTORY}/history/application_1_2/1/jobs/",
        ),
        (Application("app-1"), "", ""),
    ],
    ids=["both", "no event log", "no UI", "YARN", "neither"],
)
def test_where_it_leads(connections: Define, application: Application, now: str, afterwards: str) -> None:
    define(connections, f"{HISTORY}/")
    place = SparkPlace(application, "spark_default")
    assert (place.now(), place.afterwards()) == (now, afterwards)


@pytest.mark.parametrize("server", ["ftp://history", "history", "https://user:pw@history", 7])
def test_an_address_that_is_none(connections: Define, said: Said, server: object) -> None:
    define(connections, server)
    assert SparkPlace(LOGGED, "spark_default").afterwards() == ""
    assert "the extra `history_server` of the connection spark_default is no plain http or https URL" in said.text
    assert "pw" not in said.text


def test_without_a_history_server_nothing_is_left(connections: Define) -> None:
    define(connections, None)
    assert SparkPlace(LOGGED, "spark_default").afterwards() == ""
    assert SparkPlace(LOGGED, "spark_undefined").afterwards() == ""


def test_a_stage_that_submitted_nothing_has_no_button() -> None:
    operator: Any = object()
    assert SparkLink().get_link(operator, ti_key=None) == ""


@pytest.mark.parametrize("line", ["24/01/01 INFO x", "cairn-spark-application ", "cairn-spark-application {}"])
def test_other_lines_stay(line: str) -> None:
    assert Application.in_line(line) is None


def test_a_line_is_read_back() -> None:
    assert Application.in_line(f"{LOGGED.line()}\n") == LOGGED


def test_a_client_of_a_server_names_its_application(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """Its line goes to the task, and not into the log."""
    heard: list[Application] = []
    client = ConnectClient(Submission("x.py", "s", {}, {}), {})
    client.on_application = heard.append
    script = f"print({LOGGED.line()!r}); print('counted 7 rows')"
    # A real client would need a server; a process of the same kind prints what one prints.
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    monkeypatch.setattr(client, "_started", lambda: process)
    assert client.run().status == 0
    assert heard == [LOGGED]
    assert "counted 7 rows" in said.text
    assert "cairn-spark-application" not in said.text


def test_a_driver_on_a_cluster_is_known_by_what_spark_submit_says(connections: Define) -> None:
    heard: list[Application] = []
    connections("on_yarn", json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}))
    plain = SparkSubmitHook(conn_id="on_yarn")
    hook = EpochSubmitHook.taking_over(plain, conf={}, py_files="", environment={}, on_application=heard.append)
    hook._process_spark_submit_log(iter(["INFO Client: Submitted application application_1700000000000_0007"]))
    assert heard == [Application("application_1700000000000_0007", logged=True, attempt="1")]
