"""Airflow's undocumented parts that the page uses: they exist, and answer on a database as the page expects."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import httpx
import pytest
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.core_api import security
from airflow.models import import_all_models
from airflow.models.base import Base
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from fastapi import Depends, FastAPI, Header
from sqlalchemy import create_engine, insert
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool
from starlette.requests import Request

from airflow_cairn.plugin.drawings.stage_progress import TaskTry
from airflow_cairn.plugin.page import airflow_server
from airflow_cairn.plugin.page.airflow_server import AirflowServer
from airflow_cairn.plugin.page.server import Schedule, Server
from tests.support.narrowing import known
from tests.unit.plugin.page.stand_in import dag_of


def test_it_is_what_the_page_asks_for() -> None:
    server: Server = AirflowServer()
    assert server.signed_in is security.get_user
    assert "dag_id" in inspect.getsource(security.requires_access_dag)  # it reads the path's own parameter


@pytest.mark.parametrize(("right", "method"), [(AirflowServer.may_read, "GET"), (AirflowServer.may_edit, "PUT")])
def test_the_right_is_that_to_read_or_to_edit_runs(right: Callable[..., Any], method: str) -> None:
    """The rights are closures: their signatures do not show what they ask for."""
    variables = inspect.getclosurevars(right).nonlocals
    assert variables["method"] == method
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


@pytest.mark.parametrize(
    ("authorization", "sent"),
    [
        ("", "of-the-cookie"),
        ("Basic dXNlcjpwYXNz", "of-the-cookie"),
        ("Bearer of-the-header", "of-the-header"),
        ("bearer of-the-header", "of-the-header"),
    ],
)
def test_a_proxys_login_is_no_token(authorization: str, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    app = FastAPI()

    def dag(authorization: Annotated[str, Header()]) -> dict[str, bool]:
        seen.append(authorization)
        return {"is_paused": False}

    app.add_api_route("/api/v2/dags/flights", dag, methods=["GET"])
    monkeypatch.setattr(airflow_server, "cached_app", lambda apps: app)
    headers = {"authorization": authorization, "cookie": f"{COOKIE_NAME_JWT_TOKEN}=of-the-cookie"}
    request = Request({"type": "http", "headers": [(name.encode(), each.encode()) for name, each in headers.items()]})

    async def ask() -> None:
        api = AirflowServer().api(request)
        await asyncio.to_thread(api.check_runs, "flights")

    asyncio.run(ask())
    assert seen == [f"Bearer {sent}"]


def test_a_store_is_opened_by_the_hook(tmp_path: object) -> None:
    assert AirflowServer().open_store(f"file://{tmp_path}", None).uri == f"file://{tmp_path}"


class Permits:
    """An auth manager's answers: everybody may see every DAG, and nobody the runs of `secret`."""

    def get_authorized_dag_ids(self, *, user: Any, method: str, session: Session) -> set[str]:
        assert (user, method) == ("vera", "GET")
        return {"flights", "plain", "secret"}

    def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any, user: Any) -> bool:
        assert (method, access_entity.name, user) == ("GET", "RUN", "vera")
        return details.id != "secret"


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Airflow's tables in memory, and a session that the server uses."""
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    import_all_models()
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        monkeypatch.setattr(airflow_server, "create_session", lambda: nullcontext(session))
        monkeypatch.setattr(airflow_server, "get_auth_manager", Permits)
        monkeypatch.setattr(DagModel, "get_dag_id_to_team_name_mapping", lambda _ids, session: {})
        yield session


def store(session: Session, data: dict[str, Any], number: int = 1) -> None:
    """Let Airflow have a version of a DAG."""
    dag_id = data["dag"]["dag_id"]
    version = DagVersion(dag_id=dag_id, version_number=number, bundle_name="test")
    version.id = UUID(int=hash((dag_id, number)) % 2**64)
    row = SerializedDagModel(LazyDeserializedDAG(data=data))
    row.dag_version_id = version.id
    session.add_all([version, row])
    session.flush()


def named(dags: Iterable[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(dag["dag"]["dag_id"], [task["__var"]["task_id"] for task in dag["dag"]["tasks"]]) for dag in dags]


def test_the_newest_version_is_read_once(database: Session) -> None:
    server = AirflowServer()
    store(database, dag_of("flights", ("s3://old", "j")))
    store(database, dag_of("flights", ("s3://lake", "j"), ("s3://lake", "k")), 2)
    found = known(server.dag("flights"))
    assert named([found]) == [("flights", ["epoch0.trigger", "epoch1.trigger"])]
    assert server.dag("flights") is found
    store(database, dag_of("flights", ("s3://new", "j")), 3)
    newer = known(server.dag("flights"))
    assert [task["__var"]["storage"] for task in newer["dag"]["tasks"]] == ["s3://new"]
    assert server.dag("nothing") is None


def test_a_user_gets_the_dags_whose_runs_are_readable(database: Session) -> None:
    server = AirflowServer()
    for dag in (dag_of("secret", ("s3://lake", "s")), dag_of("plain"), dag_of("flights", ("s3://lake", "j"))):
        store(database, dag)
    assert named(server.dags_of("vera")) == [("flights", ["epoch0.trigger"]), ("plain", [])]


def test_the_newest_run_says_what_a_template_became(database: Session) -> None:
    server = AirflowServer()
    assert server.rendered("flights", ["t"]) is None
    for number, run_id in enumerate(("newer", "older")):
        when = datetime(2026, 1, 2 - number, tzinfo=UTC)
        run = DagRun(dag_id="flights", run_id=run_id, run_type="manual", run_after=when)
        database.add(run)
        database.flush()
        database.execute(
            insert(RenderedTaskInstanceFields).values(
                dag_id="flights", task_id="t", run_id=run_id, map_index=-1, rendered_fields={"storage": run_id}
            )
        )
    assert server.rendered("flights", ["trigger", "t"]) == ("newer", {"storage": "newer"})


def test_the_next_run_is_the_one_that_airflow_plans(database: Session) -> None:
    server = AirflowServer()
    assert server.schedules(["flights"]) == {}
    when = datetime(2026, 1, 2, tzinfo=UTC)
    database.add_all(
        [
            DagModel(dag_id="flights", bundle_name="test", next_dagrun_create_after=when, is_paused=False),
            DagModel(dag_id="by_hand", bundle_name="test", is_paused=True),
        ]
    )
    database.flush()
    assert server.schedules(["flights", "by_hand", "unknown"]) == {
        "flights": Schedule(round(when.timestamp() * 1000), paused=False),
        "by_hand": Schedule(None, paused=True),
    }


def test_the_tries_of_tasks_are_those_of_the_present_and_of_the_history(database: Session) -> None:
    """A task that waits for its next try still has the dates of the one before, which has a row of its own."""
    began, ended = datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, 0, 4, 30, tzinfo=UTC)
    known = [
        (TaskInstance, "r1", "t", 2, "queued", began, ended),
        (TaskInstance, "r1", "u", 1, "running", began, None),
        (TaskInstance, "r1", "v", 0, None, None, None),
        (TaskInstance, "r2", "t", 1, "success", began, ended),
        (TaskInstance, "r1", "other", 1, "success", began, ended),
        (TaskInstanceHistory, "r1", "t", 1, "failed", began, ended),
    ]
    for number, (kind, run, task, tried, state, start, end) in enumerate(known):
        facts = {"dag_id": "flights", "run_id": run, "task_id": task, "map_index": -1, "try_number": tried}
        facts |= {"state": state, "start_date": start, "end_date": end, "pool": "default_pool", "pool_slots": 1}
        identity = {"id": UUID(int=number)} if kind is TaskInstance else {"task_instance_id": UUID(int=number)}
        database.execute(insert(kind).values(**facts, **identity))
    began_ms, ended_ms = (round(each.timestamp() * 1000) for each in (began, ended))
    assert AirflowServer().tries("flights", {"r1"}, {"t", "u", "v"}) == [
        TaskTry("r1", "t", -1, 2, "queued", None, None),
        TaskTry("r1", "u", -1, 1, "running", began_ms, None),
        TaskTry("r1", "v", -1, 0, None, None, None),
        TaskTry("r1", "t", -1, 1, "failed", began_ms, ended_ms, newest=False),
    ]
    assert AirflowServer().tries("another", {"r1"}, {"t"}) == []


def test_what_a_user_wants_is_in_the_audit_log(database: Session) -> None:
    class Ada:
        def get_name(self) -> str:
            return "ada"

    server = AirflowServer()
    server.log(Ada(), "flights", "cairn.rewind", {"checkpoint": 3})
    (row,) = database.query(Log).all()
    assert (row.owner, row.dag_id, row.event, row.extra) == ("ada", "flights", "cairn.rewind", '{"checkpoint": 3}')


@pytest.mark.parametrize("permitted", [True, False])
def test_it_tells_whether_a_user_may_edit_runs(permitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Decides:
        def is_authorized_dag(self, *, method: str, access_entity: Any, details: Any, user: Any) -> bool:
            assert (method, access_entity.name, details.id, user) == ("PUT", "RUN", "flights", "vera")
            return permitted

    monkeypatch.setattr(security, "get_auth_manager", Decides)
    monkeypatch.setattr(DagModel, "get_team_name", lambda _dag_id: None)
    app = FastAPI()

    def answer(edits: Annotated[bool, Depends(AirflowServer.edits)]) -> bool:
        return edits

    app.add_api_route("/{dag_id}", answer, methods=["GET"])
    app.dependency_overrides[security.get_user] = lambda: "vera"

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://airflow") as client:
            return await client.get("/flights")

    assert asyncio.run(ask()).json() is permitted
