"""From a stage's page to its Spark application: while it runs, and afterwards."""

import json
import subprocess
import sys
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_cairn.hooks.spark_connect import ConnectClient
from airflow_cairn.hooks.spark_submit import EpochSubmitHook
from airflow_cairn.spark.execution.log_lines import Application
from airflow_cairn.spark.remote.submission import Problem, Submission
from airflow_cairn.tasks.reports.links import SparkLink, SparkPlace
from tests.support.airflow_fixtures import Define, Said

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
    assert "the extra `history_server` of the connection spark_default is not a plain http or https URL" in said.text
    assert "pw" not in said.text


def test_without_a_history_server_nothing_is_left(connections: Define) -> None:
    define(connections, None)
    assert SparkPlace(LOGGED, "spark_default").afterwards() == ""
    assert SparkPlace(LOGGED, "spark_undefined").afterwards() == ""


def test_a_stage_that_submitted_nothing_has_no_button() -> None:
    operator: Any = object()
    assert SparkLink().get_link(operator, ti_key=None) == ""


@pytest.mark.parametrize("ui", ["javascript:alert(1)", "driver:4040", "http://user:pw@driver", "http://[::1", "//x"])
def test_no_button_leads_to_what_is_no_web_page(connections: Define, ui: str) -> None:
    define(connections)
    assert SparkPlace(Application("app-1", ui), "spark_default").now() == ""


@pytest.mark.parametrize(
    "line",
    [
        "24/01/01 INFO x",
        "cairn-spark-application ",
        "cairn-spark-application {}",
        'cairn-spark-application {"id": 7}',
        'cairn-spark-application {"id": ""}',
        'cairn-spark-application {"id": "a", "ui": ["x"]}',
        'cairn-spark-application {"id": "a", "logged": "yes"}',
    ],
)
def test_other_lines_stay(line: str) -> None:
    assert Application.in_line(line) is None


def test_a_line_is_read_back() -> None:
    assert Application.in_line(f"{LOGGED.line()}\n") == LOGGED


def test_a_client_of_a_server_names_its_application(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """The client's line goes to the task, and not into the log."""
    heard: list[Application] = []
    client = ConnectClient(Submission("x.py", "s", {}, {}), {})
    client.on_application = heard.append
    # A line of its input that an application prints looks the same, but for the mark.
    printed = Application("app-2", "javascript:alert(1)").line()
    own = f"{client._mark}{LOGGED.line()}"
    script = f"print({printed!r}); print('counted', end=''); print({own!r}); print('7 rows')"
    # A real client would need a server; a process of the same kind prints what one prints.
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    monkeypatch.setattr(client, "_started", lambda: process)
    assert client.run().status == 0
    assert heard == [LOGGED]
    assert "counted" in said.text
    assert "7 rows" in said.text
    assert printed in said.text
    assert client._mark not in said.text


FORGED = Problem("the server is gone", incurable=True, of_server=True)


@pytest.mark.parametrize(
    ("marked", "status", "problem"),
    [(False, 0, None), (False, 78, None), (True, 0, None), (True, 1, None), (True, 78, FORGED)],
)
def test_a_problem_is_cairns_own_word_with_the_status_that_goes_with_it(
    monkeypatch: pytest.MonkeyPatch, marked: bool, status: int, problem: Problem | None
) -> None:  # semantics V5
    client = ConnectClient(Submission("x.py", "s", {}, {}), {})
    line = f"{client._mark if marked else ''}{FORGED.line()}"
    process = subprocess.Popen(
        [sys.executable, "-c", f"print({line!r}); raise SystemExit({status})"], stdout=subprocess.PIPE, text=True
    )
    monkeypatch.setattr(client, "_started", lambda: process)
    ended = client.run()
    assert (ended.status, ended.problem) == (status, problem)


@pytest.mark.parametrize(
    "said", ["{}", '{"message": 7, "incurable": true}', '{"message": "x", "incurable": "no"}', '{"message": "x"}', "[]"]
)
def test_a_problem_has_the_types_that_it_must_have(said: str) -> None:
    assert Problem.in_line(f"cairn-connect-problem {said}") is None


@pytest.mark.parametrize(
    ("master", "printed"),
    [
        ("k8s://https://here", "pod name: other-1a-driver"),
        ("k8s://https://here", "submission ID spark:other-driver"),
        ("k8s://https://here", "spark-app-selector -> spark-0a1b, x"),
        ("yarn", "Submitted application application_1_2"),
        ("spark://here:7077", "driver-20240101000000-0001"),
        ("local", LOGGED.line()),
    ],
)
def test_what_an_application_prints_in_client_mode_names_no_driver(
    connections: Define, said: Said, monkeypatch: pytest.MonkeyPatch, master: str, printed: str
) -> None:  # semantics V5
    # The provider looks for the package that speaks to Kubernetes, and uses it in cluster mode only.
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    heard: list[Application] = []
    connections("here", json.dumps({"conn_type": "spark", "host": master}))
    plain = SparkSubmitHook(conn_id="here")
    hook = EpochSubmitHook.taking_over(plain, conf={}, py_files="", environment={}, on_application=heard.append)
    hook._process_spark_submit_log(iter([f"{printed}\n", "exit code: 1\n", f"{hook._mark}{LOGGED.line()}\n"]))
    assert heard == [LOGGED]
    names = ("_kubernetes_driver_pod", "_kubernetes_application_id", "_yarn_application_id", "_driver_id")
    assert [getattr(hook, name) for name in names] == [None] * 4
    assert hook._spark_exit_code in (None, 0)
    assert printed in said.text


def test_a_driver_on_a_cluster_is_known_by_what_spark_submit_says(connections: Define) -> None:
    heard: list[Application] = []
    connections("on_yarn", json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}))
    plain = SparkSubmitHook(conn_id="on_yarn")
    hook = EpochSubmitHook.taking_over(plain, conf={}, py_files="", environment={}, on_application=heard.append)
    later = "diagnostics: User class threw exception: no rows for application_1_2"
    hook._process_spark_submit_log(iter(["INFO Client: Submitted application application_1700000000000_0007", later]))
    assert heard == [Application("application_1700000000000_0007", logged=True, attempt="1")]
