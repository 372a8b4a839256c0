"""The page's access to its API server. The only module that uses undocumented names of Airflow.

`tests/unit/plugin/page/test_airflow_server.py` checks that these names exist and take the arguments used here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from threading import Lock
from typing import Annotated, Any
from uuid import UUID

import httpx
from airflow.api_fastapi.app import cached_app, get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.auth.tokens import get_signing_key
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from airflow.models.dag import DagModel
from airflow.models.dag_version import DagVersion
from airflow.models.dagrun import DagRun
from airflow.models.log import Log
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.models.taskinstancehistory import TaskInstanceHistory
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException
from sqlalchemy import Select, func, literal, select, text, union_all
from sqlalchemy.orm import Session
from starlette.requests import Request

from ...checkpoint.errors import AirflowApiError, AirflowApiRefusedError
from ...hooks.airflow_api import TIMEOUT_S, AirflowApiHook, detail_of
from ...hooks.airflow_api_access import ApiAccess
from ...hooks.storage import CheckpointStorageHook
from ...storage.port import ObjectStore
from ..drawings.stage_progress import TaskTry
from .responses import PREFIX
from .server import Schedule, Serialized

KEPT = 10_000
"""Maximum number of DAGs whose jobs are cached."""

AT_ONCE = 500
"""Number of DAGs in one query."""

TRIES = 2_000
"""Maximum number of task tries for one page."""


_MAY_EDIT = requires_access_dag("PUT", DagAccessEntity.RUN)


def _edits(request: Request, user: Annotated[Any, Depends(get_user)]) -> bool:
    try:
        _MAY_EDIT(request, user)
    except HTTPException as error:
        if error.status_code != 403:
            raise
        return False
    return True


class AirflowServer:
    """The API server of this process; implements `Server`."""

    signed_in = staticmethod(get_user)
    may_read = staticmethod(requires_access_dag("GET", DagAccessEntity.RUN))

    may_edit = staticmethod(_MAY_EDIT)
    edits = staticmethod(_edits)

    def __init__(self) -> None:
        self.secret = get_signing_key("api", "secret_key")
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, str], Serialized] = OrderedDict()

    def api(self, request: Request) -> AirflowApiHook:
        token = _token_of(request)
        # As in Airflow's own server module: the running app, not a second one.
        app = cached_app(apps=os.environ.get("AIRFLOW_API_APPS", "all"))
        root_path = request.scope.get("root_path", "").removesuffix(PREFIX)
        return OwnAirflowApi(app, root_path, token or "none", asyncio.get_running_loop())

    def name_of(self, user: Any) -> str:
        return str(user.get_name())

    def log(self, user: Any, dag_id: str, event: str, facts: Mapping[str, Any]) -> None:
        name = self.name_of(user)
        with create_session() as session:
            session.add(Log(event=event, owner=name, owner_display_name=name, extra=json.dumps(facts), dag_id=dag_id))

    def dag(self, dag_id: str) -> Serialized | None:
        with create_session() as session:
            return next(self._newest([dag_id], session), None)

    def dags_of(self, user: Any) -> Iterator[Serialized]:
        with create_session() as session:
            permitted = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
            teams = DagModel.get_dag_id_to_team_name_mapping(sorted(permitted), session=session)
            readable = [dag_id for dag_id in sorted(permitted) if _may_read_runs(user, dag_id, teams.get(dag_id))]
            yield from self._newest(readable, session)

    def _newest(self, dag_ids: Sequence[str], session: Session) -> Iterator[Serialized]:
        # A serialised DAG may be large, and there may be thousands: read only those that have changed.
        for first in range(0, len(dag_ids), AT_ONCE):
            for row in session.execute(_versions(dag_ids[first : first + AT_ONCE])):
                with self._lock:
                    known = self._known.get((row.dag_id, row.dag_hash))
                if known is None:
                    known = _of_jobs(session.get_one(SerializedDagModel, row.id).data or {})
                with self._lock:
                    self._known[row.dag_id, row.dag_hash] = known
                    self._known.move_to_end((row.dag_id, row.dag_hash))
                    if len(self._known) > KEPT:
                        self._known.popitem(last=False)
                yield known

    def schedules(self, dag_ids: Collection[str]) -> Mapping[str, Schedule]:
        wanted = select(DagModel.dag_id, DagModel.next_dagrun_create_after, DagModel.is_paused)
        with create_session() as session:
            found = session.execute(wanted.where(DagModel.dag_id.in_(dag_ids))).all()
        return {
            dag_id: Schedule(None if at is None else round(at.timestamp() * 1000), paused)
            for dag_id, at, paused in found
        }

    def tries(self, dag_id: str, run_ids: Collection[str], task_ids: Collection[str]) -> Sequence[TaskTry]:
        present, before = (
            select(
                each.run_id,
                each.task_id,
                each.map_index,
                each.try_number,
                each.state,
                each.start_date,
                each.end_date,
                literal(each is TaskInstance).label("newest"),
            ).where(each.dag_id == dag_id, each.run_id.in_(run_ids), each.task_id.in_(task_ids))
            for each in (TaskInstance, TaskInstanceHistory)
        )
        wanted = union_all(present, before).order_by(text("newest DESC"), text("try_number DESC")).limit(TRIES)
        with create_session() as session:
            return [_try(*row) for row in session.execute(wanted)]

    def rendered(self, dag_id: str, task_ids: Collection[str]) -> tuple[str, dict[str, Any]] | None:
        fields = RenderedTaskInstanceFields
        newest = (
            select(fields.run_id, fields.rendered_fields)
            .join(DagRun, (DagRun.dag_id == fields.dag_id) & (DagRun.run_id == fields.run_id))
            .where(fields.dag_id == dag_id, fields.task_id.in_(task_ids))
            .order_by(DagRun.run_after.desc(), DagRun.id.desc())
            .limit(1)
        )
        with create_session() as session:
            found = session.execute(newest).first()
        return None if found is None else (found.run_id, found.rendered_fields)

    def open_store(self, storage: str, aws_conn_id: str | None) -> ObjectStore:
        return CheckpointStorageHook(storage, aws_conn_id).open_store()


def _try(
    run_id: str,
    task_id: str,
    map_index: int,
    number: int,
    state: str | None,
    start: datetime | None,
    end: datetime | None,
    newest: bool,
) -> TaskTry:
    # Until the next try has started, a row keeps the dates of the try before.
    if state in (None, "scheduled", "queued"):
        start = end = None
    began, ended = (None if at is None else round(at.timestamp() * 1000) for at in (start, end))
    return TaskTry(run_id, task_id, map_index, number, state and str(state), began, ended, bool(newest))


def _token_of(request: Request) -> str:
    """Return the user's token, from the place where Airflow looks: the same header may hold a proxy's own login."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return bearer or request.cookies.get(COOKIE_NAME_JWT_TOKEN, "")


def _versions(dag_ids: Sequence[str]) -> Select[UUID, str, str]:
    newest = (
        select(DagVersion.dag_id, func.max(DagVersion.version_number).label("number"))
        .where(DagVersion.dag_id.in_(dag_ids))
        .group_by(DagVersion.dag_id)
        .subquery()
    )
    return (
        select(SerializedDagModel.id, SerializedDagModel.dag_id, SerializedDagModel.dag_hash)
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .join(newest, (newest.c.dag_id == DagVersion.dag_id) & (newest.c.number == DagVersion.version_number))
        .order_by(SerializedDagModel.dag_id)
    )


def _of_jobs(data: Serialized) -> Serialized:
    dag = data["dag"]
    return {"dag": {"dag_id": dag["dag_id"], "tasks": [task for task in dag["tasks"] if "cairn_job" in task["__var"]]}}


def _may_read_runs(user: Any, dag_id: str, team: str | None) -> bool:
    return get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id, team_name=team), user=user
    )


# Calls Airflow's API in the API server's own process, as the user of the current request.
#
# So Airflow itself checks that user's rights and the request, and writes its own audit log. No address, no connection
# and no password are needed. The hook runs on another thread than the server's loop.


_HOST = "http://airflow"
"""A placeholder that a request requires; it appears in no answer."""


class OwnAirflowApi(AirflowApiHook):
    """Calls the API of this process, below `root_path`, which is empty or begins with a slash."""

    def __init__(self, app: Any, root_path: str, token: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__("of this API server")
        self._app = app
        self._root_path = root_path
        self._user_token = token
        self._loop = loop

    @cached_property
    def access(self) -> ApiAccess:
        return ApiAccess(self.airflow_api_conn_id, f"{_HOST}{self._root_path}", token=self._user_token)

    @cached_property
    def _http(self) -> httpx.Client:
        # An error in a route of Airflow becomes an answer with the status 500, as from another process.
        own = httpx.ASGITransport(self._app, raise_app_exceptions=False, root_path=self._root_path)
        transport = _InProcess(own, self._loop)
        return httpx.Client(base_url=self.access.base_url, transport=transport, follow_redirects=False)

    def _refused(self, answer: httpx.Response, why: str) -> AirflowApiRefusedError:  # noqa: ARG002 - of a connection
        return AirflowApiRefusedError(_said(answer), **self._facts(answer))

    def _unexpected(self, answer: httpx.Response) -> AirflowApiError:
        return AirflowApiError(_said(answer), **self._facts(answer))

    def _unreachable(self, error: httpx.HTTPError) -> AirflowApiError:
        text = f"the API server has not answered its own question ({type(error).__name__}: {error})"
        return AirflowApiError(text, airflow_api_conn_id=self.airflow_api_conn_id)


def _said(answer: httpx.Response) -> str:
    """Return Airflow's own words: advice about a connection would mislead, because none is used."""
    if answer.is_success:
        return "Airflow's answer is not what was expected. Look into the API server's log"
    return f"Airflow answers {answer.status_code}: {detail_of(answer)}"


class _InProcess(httpx.BaseTransport):
    """Carries a request from a thread to the event loop of the app."""

    def __init__(self, transport: httpx.ASGITransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        sent = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        try:
            return sent.result(TIMEOUT_S)
        except TimeoutError as error:
            sent.cancel()
            raise httpx.ReadTimeout("the API server has not answered in time", request=request) from error

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        # The raw bytes, because the headers say how they are compressed.
        sent = b"".join([part async for part in answer.aiter_raw()])
        return httpx.Response(answer.status_code, headers=answer.headers, content=sent)
