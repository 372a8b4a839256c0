"""What Airflow does not document and the page uses: it is there, and answers on a database as the page expects."""

from __future__ import annotations

import inspect

import pytest
from airflow.api_fastapi.core_api import security
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel

from airflow_cairn.plugin.page.airflow_server import AirflowServer
from airflow_cairn.plugin.page.server import Server


def test_it_is_what_the_page_asks_for() -> None:
    server: Server = AirflowServer()
    assert server.signed_in is security.get_user
    assert "dag_id" in inspect.getsource(security.requires_access_dag)  # it reads the path's own parameter


def test_the_right_is_that_to_read_runs() -> None:
    """`may_read` is a closure: what it asks for cannot be read off its signature."""
    variables = inspect.getclosurevars(AirflowServer.may_read).nonlocals
    assert variables["method"] == "GET"
    assert variables["access_entity"].name == "RUN"


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (SerializedDagModel, ("get", "get_latest_serialized_dags", "data")),
        (RenderedTaskInstanceFields, ("run_id", "rendered_fields", "dag_id", "task_id")),
    ],
)
def test_names_of_the_database_are_there(owner: type, names: tuple[str, ...]) -> None:
    assert [name for name in names if not hasattr(owner, name)] == []


def test_a_store_is_opened_by_the_hook(tmp_path: object) -> None:
    assert AirflowServer().open_store(f"file://{tmp_path}", None).uri == f"file://{tmp_path}"
