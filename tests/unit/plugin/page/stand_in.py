"""An API server's side for the page in process: users by name, DAGs as they are serialised, stores in memory."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any

import httpx
from fastapi import Body, FastAPI, Header, HTTPException
from starlette.requests import Request

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.views.drawn_stages import config_json, drawn
from airflow_cairn.hooks.airflow_api import AirflowApiHook
from airflow_cairn.plugin.drawings.stage_progress import TaskTry
from airflow_cairn.plugin.page.airflow_server import OwnAirflowApi
from airflow_cairn.plugin.page.app import create_app
from airflow_cairn.plugin.page.job_reader import SharedReads
from airflow_cairn.plugin.page.server import Schedule
from airflow_cairn.storage.port import ObjectStore
from tests.support.world.savepoints import TARGET, Below
from tests.support.world.world import CONFIG, JOB, STAGES

ADMIN, NARROW, VIEWER = "admin", "narrow", "viewer"
"""Users: of every right, of `flights` alone, and one who may read every DAG and edit none."""


def signed_in(x_user: Annotated[str | None, Header()] = None) -> str:
    if x_user not in {ADMIN, NARROW, VIEWER}:
        raise HTTPException(401, "Not authenticated")
    return x_user


def may_read(dag_id: str, x_user: Annotated[str | None, Header()] = None) -> None:
    if x_user == NARROW and dag_id != "flights":
        raise HTTPException(403, "Forbidden")


def may_edit(dag_id: str, x_user: Annotated[str | None, Header()] = None) -> None:
    may_read(dag_id, x_user)
    if x_user == VIEWER:
        raise HTTPException(403, "Forbidden")


def edits(dag_id: str, x_user: Annotated[str | None, Header()] = None) -> bool:
    return x_user == ADMIN or (x_user == NARROW and dag_id == "flights")


def dag_of(
    dag_id: str,
    *jobs: tuple[str, str],
    suffix: str = "",
    target: str | None = TARGET,
    stages: tuple[StageSpec, ...] = STAGES,
) -> dict[str, Any]:
    """Give a DAG, as Airflow serialises it, with jobs: the storage and the name of each.

    Args:
        dag_id: the DAG's.
        *jobs: its jobs.
        suffix: what the names of their stages end with.
        target: where their savepoints are made; None: nowhere.
        stages: what each runs.
    """
    specs = [
        replace(each, uid=each.uid + suffix, upstream=tuple(up + suffix for up in each.upstream)) for each in stages
    ]
    boxes = [asdict(each) for each in drawn(specs, {each.uid: f"epoch.{each.uid}" for each in specs})]
    further = json.dumps(
        {"aws_conn_id": None, "config": config_json(replace(CONFIG, savepoint_target=target)), "stages": boxes}
    )
    tasks = [
        {"task_id": f"epoch{number}.trigger", "storage": storage, "job": job, "cairn_job": further}
        for number, (storage, job) in enumerate(jobs)
    ]
    plain = {"task_id": "report", "storage": "s3://what/another/operator/has"}
    return {"dag": {"dag_id": dag_id, "tasks": [{"__type": "operator", "__var": task} for task in [*tasks, plain]]}}


class Airflow:
    """Airflow's own API, as far as the page asks it."""

    def __init__(self) -> None:
        self.paused: set[str] = set()
        self.runs: dict[str, str] = {}
        """The state of each run that was made, by its id."""
        self.failed: list[str] = []
        """Tasks of which each clear finds that they have failed, until one clears them."""
        self.declines = ""
        """Why it makes no run; empty: it does."""
        self.cleared: list[dict[str, Any]] = []
        self.notes: dict[str, str] = {}
        """Notes of runs that were not made here, by the runs' ids."""
        self.app = FastAPI()
        self.app.add_api_route("/api/v2/dags/{dag_id}", self.dag, methods=["GET"])
        self.app.add_api_route("/api/v2/dags/{dag_id}/dagRuns", self.make, methods=["POST"])
        self.app.add_api_route("/api/v2/dags/{dag_id}/dagRuns/{run_id}", self.run, methods=["GET"])
        self.app.add_api_route("/api/v2/dags/{dag_id}/dagRuns/{run_id}", self.note, methods=["PATCH"])
        self.app.add_api_route("/api/v2/dags/{dag_id}/clearTaskInstances", self.clear, methods=["POST"])

    def dag(self, dag_id: str) -> dict[str, bool]:
        return {"is_paused": dag_id in self.paused}

    def make(
        self, wanted: Annotated[dict[str, Any], Body()], authorization: Annotated[str, Header()]
    ) -> dict[str, str]:
        if authorization != f"Bearer {ADMIN}":
            raise HTTPException(403, "Forbidden")
        if self.declines:
            raise HTTPException(400, self.declines)
        if wanted["dag_run_id"] in self.runs:
            raise HTTPException(409, "there is one")
        self.runs[wanted["dag_run_id"]] = "queued"
        return {"state": "queued"}

    def note(self, run_id: str, wanted: Annotated[dict[str, str], Body()]) -> dict[str, str]:
        self.notes[run_id] = wanted["note"]
        return {}

    def run(self, run_id: str) -> dict[str, str]:
        if run_id in self.notes:
            return {"note": self.notes[run_id]}
        if run_id not in self.runs:
            raise HTTPException(404, "no such run")
        return {"state": self.runs[run_id]}

    def clear(self, wanted: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        found = [{"task_id": task, "map_index": -1} for task in self.failed]
        self.cleared.append(wanted)
        if not wanted["dry_run"]:
            self.failed = []
        return {"task_instances": found}


class StandIn:
    """The API server, as far as the page asks it.

    Args:
        dags: as `dag_of` gives them.
        stores: by their URIs; an error in place of one is raised when it is opened.
    """

    signed_in: Callable[..., str] = staticmethod(signed_in)
    may_read: Callable[..., None] = staticmethod(may_read)
    may_edit: Callable[..., None] = staticmethod(may_edit)
    edits: Callable[..., bool] = staticmethod(edits)
    secret = "of-this-test"

    def __init__(self, dags: list[dict[str, Any]], stores: Mapping[str, ObjectStore | Exception]) -> None:
        self.dags = {dag["dag"]["dag_id"]: dag for dag in dags}
        self.stores = dict(stores)
        self.runs: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
        """Rendered fields of tasks, by DAG and task."""
        self.due = {dag_id: Schedule(None, paused=False) for dag_id in self.dags}
        self.tried: list[TaskTry] = []
        """Tries of tasks, of any DAG."""
        self.logged: list[tuple[str, str, str, dict[str, Any]]] = []
        """The audit log."""
        self.opened: list[tuple[str, str | None]] = []
        self.airflow = Airflow()
        self.hook = OwnAirflowApi
        """Client of Airflow's own API."""

    def api(self, request: Request) -> AirflowApiHook:
        user = request.headers.get("x-user", "")
        return self.hook(self.airflow.app, "", user, asyncio.get_running_loop())

    def name_of(self, user: Any) -> str:
        return str(user)

    def log(self, user: Any, dag_id: str, event: str, facts: Mapping[str, Any]) -> None:
        self.logged.append((user, dag_id, event, dict(facts)))

    def dag(self, dag_id: str) -> dict[str, Any] | None:
        return self.dags.get(dag_id)

    def dags_of(self, user: Any) -> Iterator[dict[str, Any]]:
        return (dag for dag_id, dag in sorted(self.dags.items()) if user == ADMIN or dag_id == "flights")

    def schedules(self, dag_ids: Collection[str]) -> dict[str, Schedule]:
        return {dag_id: self.due[dag_id] for dag_id in dag_ids if dag_id in self.due}

    def tries(self, dag_id: str, run_ids: Collection[str], task_ids: Collection[str]) -> list[TaskTry]:
        return [each for each in self.tried if each.run_id in run_ids and each.task_id in task_ids]

    def rendered(self, dag_id: str, task_ids: Collection[str]) -> tuple[str, dict[str, Any]] | None:
        return next((self.runs[dag_id, each] for each in sorted(task_ids) if (dag_id, each) in self.runs), None)

    def open_store(self, storage: str, aws_conn_id: str | None) -> ObjectStore:
        self.opened.append((storage, aws_conn_id))
        found = self.stores.get(storage)
        if found is None:  # a savepoint's folder, in the same store
            inner = next(iter(self.stores.values()))
            assert not isinstance(inner, Exception)
            return Below(inner, storage)
        if isinstance(found, Exception):
            raise found
        return found


STORAGE = "s3://lake/cairn"
ONE = "/dags/flights/jobs/epoch0.trigger"
"""Address of the one job's pages."""


def words(text: str) -> str:
    """Give what a reader sees of a page, its markup left out."""
    main = text.split("<main", 1)[1]
    plain = " ".join(part.split(">", 1)[-1] for part in main.split("<"))
    return " ".join(plain.split())


PATIENCE_S = 300.0
"""Seconds that a request of a test waits for a store: on any machine, however busy."""


def one_job(store: ObjectStore | Exception, dag_id: str = "flights", target: str | None = TARGET) -> StandIn:
    """Give a server with one DAG that has one job, in one store."""
    return StandIn([dag_of(dag_id, (STORAGE, JOB), target=target)], {STORAGE: store})


class Page:
    """The app, mounted as Airflow mounts it, and one who asks it.

    Args:
        server: the API server's side.
        shared: what equal requests share; reads are fresh for ever by default.
        base: Airflow's own base path.
    """

    def __init__(self, server: StandIn, shared: SharedReads | None = None, base: str = "") -> None:
        self.app = create_app(server, shared or SharedReads(fresh_s=1_000_000, patience_s=PATIENCE_S))
        self._whole = FastAPI()
        self._whole.mount("/cairn", self.app)
        self._base = base

    def get(self, path: str, user: str | None = ADMIN, **headers: str) -> httpx.Response:
        """Ask once, as a browser does unless `accept` says otherwise."""
        return asyncio.run(self.ask("GET", path, user, **headers))

    def seen(self, path: str, user: str | None = ADMIN) -> str:
        """Ask once; gives what a reader sees."""
        return words(self.get(path, user).text)

    def post(self, path: str, body: str, user: str | None = ADMIN, **headers: str) -> httpx.Response:
        """Send a form, as the page's own does unless `sec_fetch_site` says otherwise."""
        known = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
        known |= {name.replace("_", "-"): value for name, value in headers.items()}
        return asyncio.run(self.ask("POST", path, user, body, **known))

    async def ask(
        self, method: str, path: str, user: str | None = ADMIN, body: str = "", **headers: str
    ) -> httpx.Response:
        """Ask within a loop of the caller's."""
        transport = httpx.ASGITransport(self._whole, root_path=self._base)
        known = {"accept": "text/html", **({} if user is None else {"x-user": user}), **headers}
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
            return await client.request(method, f"{self._base}/cairn{path}", headers=known, content=body)
