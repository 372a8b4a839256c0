"""The interface of the API server for the page that runs in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from starlette.requests import Request

from ...hooks.airflow_api import AirflowApiHook
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..drawings.stage_progress import TaskTry

Serialized = dict[str, Any]
"""A DAG, as Airflow serialises it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The time at which Airflow begins the next run of a DAG by itself."""

    next_run_at_ms: int | None
    """Milliseconds since 1970 UTC; in the past if the run waits for a free place. None: no further run is scheduled."""
    paused: bool


class Server(Protocol):
    """An API server, as the page uses it."""

    signed_in: Callable[..., Any]
    """A FastAPI dependency that returns the user, or answers 401."""
    may_read: Callable[..., Any]
    """A FastAPI dependency that answers 403 unless the user may read the runs of the DAG in the path."""

    may_edit: Callable[..., Any]
    """A FastAPI dependency that answers 403 unless the user may edit the runs of the DAG in the path."""
    edits: Callable[..., Any]
    """A FastAPI dependency that returns whether the user may edit them."""
    secret: str
    """The deployment's secret: the same in all processes of its API server, and secret to all others."""

    def api(self, request: Request) -> AirflowApiHook:
        """Return Airflow's own API, called as the user of a request; call this on the server's loop."""

    def name_of(self, user: Any) -> str:
        """Return Airflow's name of a user."""

    def log(self, user: Any, dag_id: str, event: str, facts: Mapping[str, Any]) -> None:
        """Write an intervention of a user to Airflow's audit log; the event has at most 60 characters."""

    def dag(self, dag_id: str) -> Serialized | None:
        """Return the newest version of a serialised DAG, at least with the tasks of jobs; None if there is none."""

    def dags_of(self, user: Any) -> Iterator[Serialized]:
        """Yield the serialised DAGs whose runs a user may read, in the order of their ids."""

    def schedules(self, dag_ids: Collection[str]) -> Mapping[str, Schedule]:
        """Return when the next run of each DAG begins, in one query; a DAG that does not exist has no entry."""

    def tries(self, dag_id: str, run_ids: Collection[str], task_ids: Collection[str]) -> Sequence[TaskTry]:
        """Return the tries of some tasks in some runs, the present ones first, in one bounded query."""

    def rendered(self, dag_id: str, task_ids: Collection[str]) -> tuple[str, dict[str, Any]] | None:
        """Return the newest run that has rendered one of the tasks, and its rendered fields; None if none has."""

    def open_store(self, storage: str, aws_conn_id: str | None) -> ObjectStore:
        """Open a storage with a connection; sends no request to it."""
