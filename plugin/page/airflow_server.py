"""What the page asks of the API server that it runs in. The only module that names what Airflow does not document.

`tests/unit/plugin/page/test_airflow_server.py` holds that those names are there and take what is given here.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from threading import Lock
from typing import Annotated, Any
from uuid import UUID

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
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session
from starlette.requests import Request

from ...hooks.airflow_api import AirflowApiHook
from ...hooks.own_airflow_api import OwnAirflowApi
from ...hooks.storage import CheckpointStorageHook
from ...storage.port import ObjectStore
from .answers import PREFIX
from .server import Schedule, Serialized

KEPT = 10_000
"""DAGs whose jobs are remembered."""

AT_ONCE = 500
"""DAGs that one query asks for."""


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
    """The API server of this process, as a `Server`."""

    signed_in = staticmethod(get_user)
    may_read = staticmethod(requires_access_dag("GET", DagAccessEntity.RUN))

    may_edit = staticmethod(_MAY_EDIT)
    edits = staticmethod(_edits)

    def __init__(self) -> None:
        self.secret = get_signing_key("api", "secret_key")
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, str], Serialized] = OrderedDict()
        """What was read, by the DAG's id and hash."""

    def api(self, request: Request) -> AirflowApiHook:
        """Give Airflow's own API, asked as the user of a request; to be called on the server's loop."""
        token = _token_of(request)
        # As Airflow's own module for servers asks for it: the app that runs, and no second one.
        app = cached_app(apps=os.environ.get("AIRFLOW_API_APPS", "all"))
        root_path = request.scope.get("root_path", "").removesuffix(PREFIX)
        return OwnAirflowApi(app, root_path, token or "none", asyncio.get_running_loop())

    def name_of(self, user: Any) -> str:
        """Give the name by which Airflow knows a user."""
        return str(user.get_name())

    def log(self, user: Any, dag_id: str, event: str, facts: Mapping[str, Any]) -> None:
        """Write to Airflow's audit log what a user wants done."""
        name = self.name_of(user)
        with create_session() as session:
            session.add(Log(event=event, owner=name, owner_display_name=name, extra=json.dumps(facts), dag_id=dag_id))

    def dag(self, dag_id: str) -> Serialized | None:
        """Give the newest version of a serialised DAG; of its tasks those of jobs. None where there is none."""
        with create_session() as session:
            return next(self._newest([dag_id], session), None)

    def dags_of(self, user: Any) -> Iterator[Serialized]:
        """Give those whose runs a user may read, in the order of their ids; of their tasks those of jobs."""
        with create_session() as session:
            permitted = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
            teams = DagModel.get_dag_id_to_team_name_mapping(sorted(permitted), session=session)
            readable = [dag_id for dag_id in sorted(permitted) if _may_read_runs(user, dag_id, teams.get(dag_id))]
            yield from self._newest(readable, session)

    def _newest(self, dag_ids: Sequence[str], session: Session) -> Iterator[Serialized]:
        # A serialised DAG may be large, and there may be thousands: only one that has changed is read.
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
        """Say when the next run of each DAG begins, in one query; a DAG that does not exist has no entry."""
        wanted = select(DagModel.dag_id, DagModel.next_dagrun_create_after, DagModel.is_paused)
        with create_session() as session:
            found = session.execute(wanted.where(DagModel.dag_id.in_(dag_ids))).all()
        return {
            dag_id: Schedule(None if at is None else round(at.timestamp() * 1000), paused)
            for dag_id, at, paused in found
        }

    def rendered(self, dag_id: str, task_ids: Collection[str]) -> tuple[str, dict[str, Any]] | None:
        """Give the newest run that has rendered one of some tasks, and its rendered fields; None where none has."""
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
        """Open a storage by a connection; no request is sent to it."""
        return CheckpointStorageHook(storage, aws_conn_id).open_store()


def _token_of(request: Request) -> str:
    """Give the user's token, from where Airflow takes it: a proxy's own login may be in the same header."""
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
