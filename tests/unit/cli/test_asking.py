"""`cairn checkpoint`, against a real HTTP server that answers as Airflow does."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from airflow_cairn.cli import airflow_api
from airflow_cairn.cli.airflow_api import TOKEN
from tests.support.api_stand_in import Answer, ApiStandIn, Asked
from tests.support.command import Cairn, Call

SECRET = "canary-0123456789"


@dataclass
class Airflow:
    """One DAG, `flights`, and its runs."""

    paused: bool = False
    answers: dict[str, Answer] = field(default_factory=dict)
    """Answers by method, which go before its own."""
    runs: list[str] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Answer:
        if asked.method in self.answers:
            return self.answers[asked.method]
        if asked.token != SECRET:
            return 401, {"detail": "Invalid JWT token"}
        if not asked.path.startswith("/team/api/v2/dags/flights"):
            return 404, {"detail": "not found"}
        if asked.method == "GET" and "/dagRuns/" in asked.path:
            return (200, {}) if asked.path.rpartition("/")[2] in self.runs else (404, {"detail": "not found"})
        if asked.method == "GET":
            return 200, {"dag_id": "flights", "is_paused": self.paused}
        if asked.body["dag_run_id"] in self.runs:
            return 409, {"detail": {"reason": "Unique constraint violation"}}
        self.runs.append(asked.body["dag_run_id"])
        return 200, {"dag_run_id": asked.body["dag_run_id"], "state": "queued"}


@pytest.fixture
def airflow() -> Airflow:
    return Airflow()


@pytest.fixture
def server(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiStandIn]:
    monkeypatch.setattr(airflow_api, "WAITS_S", (0.0, 0.0, 0.0))
    monkeypatch.setenv(TOKEN, SECRET)
    with ApiStandIn(airflow) as stand_in:
        yield stand_in


@pytest.fixture
def asking(server: ApiStandIn, cairn: Cairn) -> Call:
    """`cairn checkpoint` at this Airflow."""
    return partial(cairn.on(""), "checkpoint", "--airflow-url", f"{server.url}/team/")


def test_it_asks_for_a_run(server: ApiStandIn, airflow: Airflow, asking: Call) -> None:
    """semantics T2, T3: a run of type manual goes before those of the schedule and waits for no pause."""
    said = asking("flights", "--request-id", "r7")
    assert airflow.runs == ["cairn__r7"]
    body = server.asked[-1].body
    assert (body["dag_run_id"], body["logical_date"].endswith("+00:00")) == ("cairn__r7", True)
    assert "asked for a checkpoint of flights: DAG run cairn__r7 of flights" in said.out


def test_the_same_request_is_one_run(airflow: Airflow, asking: Call) -> None:
    for created in (True, False):
        assert asking("flights", "--request-id", "r7", "--json").document == {
            "job": "flights",
            "dag": "flights",
            "run": "cairn__r7",
            "request": "r7",
            "created": created,
        }
    assert airflow.runs == ["cairn__r7"]
    for _ in range(2):
        asking("flights")
    assert len(set(airflow.runs)) == 3, "without an id each request is one of its own"


def test_a_run_for_a_window(server: ApiStandIn, airflow: Airflow, asking: Call) -> None:
    """semantics T8: a window that a changed schedule has left; Airflow gives a run by hand the last whole interval."""
    asking("flights", "--window", "2026-01-04", "2026-01-04T06:00:00+00:00")
    body = server.asked[-1].body
    start = "2026-01-04T00:00:00+00:00"
    assert (body["logical_date"], body["data_interval_start"], body["data_interval_end"]) == (
        *(start, start),
        "2026-01-04T06:00:00+00:00",
    )
    assert airflow.runs == [body["dag_run_id"]]


def test_a_run_that_reads_its_window_again(server: ApiStandIn, airflow: Airflow, asking: Call) -> None:
    """semantics T8: the run that has read it has its start for a logical date, and Airflow has one run of each."""
    asking("flights", "--window", "2026-01-04", "2026-01-05", "--read-again")
    body = server.asked[-1].body
    assert body["conf"] == {"cairn": {"read_again": True}}
    assert body["data_interval_start"] == "2026-01-04T00:00:00+00:00"
    assert re.fullmatch(r"2026-01-04T00:00:00\.\d{6}\+00:00", body["logical_date"]), "within the dates of the DAG"
    assert airflow.runs == [body["dag_run_id"]]


@pytest.mark.parametrize("window", [("2026-01-05", "2026-01-04"), ("2026-01-04", "2026-01-04"), ("soon", "later")])
def test_what_is_no_window_asks_for_nothing(server: ApiStandIn, asking: Call, window: tuple[str, str]) -> None:
    assert "--window" in asking("flights", "--window", *window, status=2).err
    assert server.asked == []


def test_a_job_of_another_name(airflow: Airflow, asking: Call) -> None:
    asking("totals", "--dag", "flights")
    assert len(airflow.runs) == 1


@pytest.mark.parametrize(
    ("words", "facts", "message"),
    [
        (["nowhere"], {}, "Airflow has no such DAG; name it by --dag [job=`nowhere` dag=`nowhere`]"),
        (["a/../flights"], {}, "Airflow has no such DAG"),
        (["flights"], {"paused": True}, "the DAG is paused, so a run of it would not start: unpause it"),
        (["flights", "--request-id", "a b"], {}, "request"),
        (["flights"], {"answers": {"GET": (401, {})}}, "does not take the token of CAIRN_AIRFLOW_TOKEN"),
        (["flights"], {"answers": {"POST": (403, {})}}, "lacks the right to read the DAG and to make runs of it"),
        (["flights"], {"answers": {"POST": (500, {"detail": "o\x1bh"})}}, "the answer of Airflow's API cannot be used"),
        (["flights"], {"answers": {"GET": (200, ["no DAG"])}}, "the answer of Airflow's API cannot be used"),
        (["flights"], {"answers": {"POST": (302, {})}}, "status=`302`"),
        (["flights"], {"answers": {"POST": (409, {"detail": "this logical date"})}}, "status=`404`"),
        (["flights"], {"answers": {"POST": None}}, "Airflow's API did not answer"),
    ],
)
def test_what_cannot_be_done_is_said(
    airflow: Airflow, asking: Call, words: list[str], facts: dict[str, Any], message: str
) -> None:
    for name, value in facts.items():
        setattr(airflow, name, value)
    said = asking(*words, status=2)
    assert message in said.err
    assert (said.out, airflow.runs) == ("", [])
    assert SECRET not in said.err
    assert "\x1b" not in said.err


@pytest.mark.parametrize("url", ["", "airflow.example.com", "ftp://airflow", "http://me:pw@airflow", "http://a:b"])
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, cairn: Cairn, url: str) -> None:
    monkeypatch.setenv(TOKEN, SECRET)
    said = cairn.on("")("checkpoint", "flights", "--airflow-url", url, status=2).err
    assert "give --airflow-url https://airflow.example.com, or set CAIRN_AIRFLOW_URL" in said
    assert "pw" not in said


@pytest.mark.parametrize("token", ["", "a\nb", "é"])
def test_a_token_that_is_none(server: ApiStandIn, monkeypatch: pytest.MonkeyPatch, asking: Call, token: str) -> None:
    monkeypatch.setenv(TOKEN, token)
    assert "set CAIRN_AIRFLOW_TOKEN to a token of Airflow's API" in asking("flights", status=2).err
    assert server.asked == []
