"""Whether the connection to Airflow's API is there, found out where the DAG is parsed."""

from __future__ import annotations

import logging

from airflow.sdk import BaseHook, get_parsing_context
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowRuntimeError, AirflowSecretsBackendAccessDenied
from airflow.sdk.execution_time import task_runner

from ..checkpoint.errors import InvalidConfigError
from .airflow_api_access import access_of

log = logging.getLogger("airflow_cairn")


def check_airflow_api(conn_id: str | None, why: str, *, group: str | None) -> None:
    """Refuse a DAG that will need the connection and has none. Nothing is sent to the API.

    Only the dag processor looks, once a parse: a task's own parse would pay a request for what is known already, and
    other programs that parse the file (a test, a command) need not know the connections.

    Args:
        conn_id: the connection; None: the author clears manually.
        why: what makes it necessary, a clause for the message.
        group: the group's id.

    Raises:
        InvalidConfigError: the connection is not defined, or cannot be used.
    """
    if conn_id is None or not _is_dag_processor():
        return
    try:
        access_of(BaseHook.get_connection(conn_id))
    except AirflowNotFoundException:
        raise InvalidConfigError(
            f"{why} through Airflow's API, and the connection for that is not defined. Define it where the dag "
            "processor sees it too (see docs/how-to/clearing.md), or write airflow_api_conn_id=None to clear manually",
            group=group,
            airflow_api_conn_id=conn_id,
        ) from None
    except (AirflowRuntimeError, AirflowSecretsBackendAccessDenied) as error:
        log.warning("could not find out whether the connection %s is defined: %s", conn_id, error)


def _is_dag_processor() -> bool:
    """Tell whether a supervisor answers this process, and no task is about to run in it."""
    return getattr(task_runner, "SUPERVISOR_COMMS", None) is not None and get_parsing_context().task_id is None
