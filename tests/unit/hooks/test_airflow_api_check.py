"""A DAG that will need Airflow's API and has no connection to it is refused where the dag processor parses it."""

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetConnection

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.hooks.airflow_api_access import check_airflow_api
from tests.support.airflow_fixtures import DagFile

Define = Callable[[str, str], None]

GROUP = """
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False,
    storage="file:///tmp/x"{options}) as group:
    a = SparkEpochOperator(task_id="a", application="a.py")
    b = SparkEpochOperator(task_id="b", application="b.py")
    a >> {edge} b
group.serialize_for_task_group()
"""


class Supervisor:
    """Answers a process as the supervisor of the dag processor does: no connection is stored in Airflow."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def send(self, msg: Any) -> ErrorResponse:
        assert isinstance(msg, GetConnection)
        self.asked.append(msg.conn_id)
        return ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)


@pytest.fixture
def dag_processor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    supervisor = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    return supervisor


def group(edge: str = "Pipelined() >>", options: str = "") -> str:
    return GROUP.format(edge=edge, options=options)


def test_a_connection_that_is_not_there(dag_file: DagFile, dag_processor: Supervisor) -> None:
    error = dag_file.error(group())
    assert "the stages a, b form one region" in error
    assert "airflow_api_conn_id=None to clear manually" in error
    assert "group=`epoch` airflow_api_conn_id=`cairn_airflow_api`" in error
    assert dag_processor.asked == ["cairn_airflow_api"]


def test_a_connection_that_cannot_be_used(dag_file: DagFile, dag_processor: Supervisor, connections: Define) -> None:
    connections("of_team_a", '{"conn_type": "https", "host": "airflow.example"}')
    assert "the connection names no user" in dag_file.error(group(options=', airflow_api_conn_id="of_team_a"'))


def test_one_that_is_there(dag_file: DagFile, dag_processor: Supervisor, connections: Define) -> None:
    connections("cairn_airflow_api", "https://me:it@airflow.example")
    dag_file.dag(group())


@pytest.mark.parametrize(
    ("edge", "options"), [("", ""), ("Pipelined() >>", ", airflow_api_conn_id=None")], ids=["blocking", "by hand"]
)
def test_who_does_not_need_it_is_not_looked_up(
    dag_file: DagFile, dag_processor: Supervisor, edge: str, options: str
) -> None:
    dag_file.dag(group(edge, options))
    assert dag_processor.asked == []


def test_a_task_does_not_look(dag_file: DagFile, dag_processor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own parse would pay a request for what is known already."""
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "flights")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_TASK_ID", "epoch.a")
    dag_file.dag(group())
    assert dag_processor.asked == []


def test_who_parses_without_an_airflow_does_not_look(dag_file: DagFile) -> None:
    """A test, or `cairn regions`."""
    dag_file.dag(group())


def test_the_text_names_what_to_do(dag_processor: Supervisor) -> None:
    with pytest.raises(InvalidConfigError, match="Define it where the dag processor sees it too"):
        check_airflow_api("nowhere", "a, b", group="epoch")
