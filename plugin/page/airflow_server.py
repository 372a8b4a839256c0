"""What the page asks of the API server that it runs in. The only module that names what Airflow does not document.

`tests/unit/plugin/page/test_airflow_server.py` holds that those names are there and take what is given here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from ...hooks.storage import CheckpointStorageHook
from ...storage.port import ObjectStore
from .server import Serialized


class AirflowServer:
    """The API server of this process, as a `Server`."""

    signed_in = staticmethod(get_user)
    may_read = staticmethod(requires_access_dag("GET", DagAccessEntity.RUN))

    def dag(self, dag_id: str) -> Serialized | None:
        """Give the newest version of a serialised DAG; None where there is none."""
        with create_session() as session:
            found = SerializedDagModel.get(dag_id, session=session)
            return None if found is None else found.data

    def dags_of(self, user: Any) -> Iterator[Serialized]:
        """Give the serialised DAGs whose runs a user may read, in the order of their ids."""
        with create_session() as session:
            permitted = get_auth_manager().get_authorized_dag_ids(user=user, method="GET", session=session)
            teams = DagModel.get_dag_id_to_team_name_mapping(sorted(permitted), session=session)
            readable = [dag_id for dag_id in sorted(permitted) if _may_read_runs(user, dag_id, teams.get(dag_id))]
            rows = SerializedDagModel.get_latest_serialized_dags(dag_ids=readable, session=session)
            yield from (row.data for row in sorted(rows, key=lambda row: row.dag_id) if row.data is not None)

    def rendered(self, dag_id: str, task_id: str) -> tuple[str, dict[str, Any]] | None:
        """Give the newest run that has rendered a task, and its rendered fields; None where none has."""
        fields = RenderedTaskInstanceFields
        newest = (
            select(fields.run_id, fields.rendered_fields)
            .join(DagRun, (DagRun.dag_id == fields.dag_id) & (DagRun.run_id == fields.run_id))
            .where(fields.dag_id == dag_id, fields.task_id == task_id)
            .order_by(DagRun.run_after.desc(), DagRun.id.desc())
            .limit(1)
        )
        with create_session() as session:
            found = session.execute(newest).first()
        return None if found is None else (found.run_id, found.rendered_fields)

    def open_store(self, storage: str, aws_conn_id: str | None) -> ObjectStore:
        """Open a storage by a connection; no request is sent to it."""
        return CheckpointStorageHook(storage, aws_conn_id).open_store()


def _may_read_runs(user: Any, dag_id: str, team: str | None) -> bool:
    return get_auth_manager().is_authorized_dag(
        method="GET", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id, team_name=team), user=user
    )
