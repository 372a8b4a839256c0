"""What the page asks of the API server that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.requests import Request

from ...hooks.airflow_api import AirflowApiHook
from ...storage.port import ObjectStore

Serialized = dict[str, Any]
"""A DAG, as Airflow serialises it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """When Airflow begins the next run of a DAG by itself."""

    next_run_at_ms: int | None
    """Milliseconds since 1970 UTC; in the past where it waits for a free place. None: no further run is scheduled."""
    paused: bool


class Server(Protocol):
    """An API server, as the page sees it."""

    signed_in: Callable[..., Any]
    """A dependency of FastAPI that gives the user, or answers 401."""
    may_read: Callable[..., Any]
    """A dependency that answers 403 unless the user may read the runs of the DAG that the path names."""

    may_edit: Callable[..., Any]
    """A dependency that answers 403 unless the user may edit the runs of the DAG that the path names."""
    edits: Callable[..., Any]
    """A dependency that tells, True or False, whether the user may edit them."""
    secret: str
    """Of the deployment; the same in all processes of its API server, and known to no other."""

    def api(self, request: Request) -> AirflowApiHook:
        """Give Airflow's own API, asked as the user of a request; to be called on the server's loop."""

    def name_of(self, user: Any) -> str:
        """Give the name by which Airflow knows a user."""

    def log(self, user: Any, dag_id: str, event: str, facts: Mapping[str, Any]) -> None:
        """Write to Airflow's audit log what a user wants done.

        Args:
            user: who.
            dag_id: the DAG that it is about.
            event: what, in 60 characters at most.
            facts: more, as JSON.
        """

    def dag(self, dag_id: str) -> Serialized | None:
        """Give the newest version of a serialised DAG, at least with the tasks of jobs; None where there is none."""

    def dags_of(self, user: Any) -> Iterator[Serialized]:
        """Give the serialised DAGs whose runs a user may read, in the order of their ids."""

    def schedules(self, dag_ids: Collection[str]) -> Mapping[str, Schedule]:
        """Say when the next run of each DAG begins, in one query; a DAG that does not exist has no entry."""

    def rendered(self, dag_id: str, task_ids: Collection[str]) -> tuple[str, dict[str, Any]] | None:
        """Give the newest run that has rendered one of some tasks, and its rendered fields; None where none has."""

    def open_store(self, storage: str, aws_conn_id: str | None) -> ObjectStore:
        """Open a storage by a connection; no request is sent to it."""
