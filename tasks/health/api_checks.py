"""Checks that Airflow's API accepts Cairn's connection, and its answers about Airflow and a DAG."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from ...checkpoint.errors import AirflowApiError, AirflowApiRefusedError, InvalidConfigError, UnreachableError
from ...checkpoint.health.findings import Finding, error, warning
from ...checkpoint.masking import masked
from ...hooks.airflow_api import AirflowApiHook
from ...storage.errors import CairnError

_WHY = "a stage that has failed cannot have the other stages of its region run again"


def is_defined(hook: AirflowApiHook) -> bool:
    """Return whether this process may know such a connection, whatever its contents.

    Also true if it could not be fetched: `check_api` reports the reason.
    """
    try:
        _look_up(hook)
    except AirflowNotFoundException:
        return False
    except CairnError:
        return True
    return True


def check_api(hook: AirflowApiHook) -> Iterator[Finding]:
    """Log in with the connection and ask for a DAG: clearing checks the same right first."""
    conn_id = hook.airflow_api_conn_id
    define = (
        f"airflow connections add {conn_id} --conn-type generic --conn-host https://AIRFLOW --conn-login USER "
        "--conn-password PASSWORD (docs/how-to/clearing.md)"
    )
    try:
        _look_up(hook)
        hook.check_login()
    except AirflowNotFoundException:
        what = "the connection is not defined where this process looks"
        yield error("connection-missing", conn_id, what, _WHY, define)
    except InvalidConfigError as unusable:
        yield error("connection-broken", conn_id, unusable.message, _WHY, define)
    except AirflowApiRefusedError as refused:
        grant = "Correct login and password of the connection, or give its user the role User or Op"
        yield error("api-refused", conn_id, refused.message, _WHY, grant)
    except AirflowApiError as unreachable:
        start = "Correct the connection's host, or start the API server: `airflow api-server`"
        yield error("api-unreachable", conn_id, unreachable.message, _WHY, start)


def _look_up(hook: AirflowApiHook) -> None:
    with _fetching(hook.airflow_api_conn_id):
        _ = hook.access


def see_connection(conn_id: str) -> None:
    """Check that a connection is defined in this process."""
    with _fetching(conn_id):
        BaseHook.get_connection(conn_id)


@contextmanager
def _fetching(conn_id: str) -> Iterator[None]:
    """Tell an undefined connection from one that could not be fetched; Cairn's own errors pass through."""
    try:
        yield
    except AirflowNotFoundException:
        _ask_each_backend(conn_id)
        raise
    except CairnError:
        raise
    except Exception as error:
        raise _unknown(error, "Airflow") from error


def _ask_each_backend(conn_id: str) -> None:
    """Find a secrets backend that fails: Airflow skips it, and then reports that the connection is not defined."""
    from airflow.sdk.execution_time.supervisor import ensure_secrets_backend_loaded

    for backend in ensure_secrets_backend_loaded():
        try:
            backend.get_connection(conn_id=conn_id)
        except Exception as error:
            raise _unknown(error, type(backend).__name__) from error


def _unknown(error: Exception, where: str) -> UnreachableError:
    return UnreachableError(
        "the connection could not be fetched, so whether it is defined is not known: "
        f"{where} says {type(error).__name__}: {masked(str(error))}",
        code="connection_unknown",
    )


def check_components(hook: AirflowApiHook) -> Iterator[Finding]:
    """Ask which of Airflow's processes run."""
    commands = {"scheduler": "scheduler", "triggerer": "triggerer", "dag_processor": "dag-processor"}
    lacks = {
        "scheduler": "no task starts",
        "triggerer": "tasks that wait for a checkpoint (deferrable) wait for ever",
        "dag_processor": "DAG files are not read, and failure callbacks do not run",
    }
    for name, state in hook.component_states().items():
        if name in commands and state != "healthy":
            what = f"Airflow says that its {name.replace('_', ' ')} is {state or 'not there'}"
            yield error("airflow-unhealthy", name, what, lacks[name], f"airflow {commands[name]}")


def check_dag(hook: AirflowApiHook, dag_id: str) -> Iterator[Finding]:
    """Check that a run of a DAG would start."""
    paused = hook.is_paused(dag_id)
    if paused is None:
        yield error(
            "dag-missing",
            dag_id,
            "Airflow has no such DAG",
            "its file was not read, or has an error: no epoch begins",
            "airflow dags list-import-errors",
        )
    elif paused:
        yield warning("dag-paused", dag_id, "the DAG is paused", "no epoch begins", f"airflow dags unpause {dag_id}")
