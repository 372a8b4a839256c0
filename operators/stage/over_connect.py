"""Runs a stage's application over Spark Connect: maps the operator's options, and judges how the application ended.

Spark's own settings belong to the start of the server. Options that only spark-submit can follow are refused by name,
not silently ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ...checkpoint.acts.carry_over import replaced_executions
from ...checkpoint.errors import InvalidConfigError
from ...hooks.spark_connect import ConnectClient
from ...spark.remote.server import LOOPBACK, ConnectServer
from ...spark.remote.submission import PATIENCE, PATIENCE_HERE, Submission, session_id
from ...tasks.shared_server import SharedServer, tell_end
from .extras import Extras
from .outcome import StageRun
from .submit_options import option_of

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

log = logging.getLogger("airflow_cairn")

PROGRAM = "the Spark Connect client"

_OF_THE_SERVER = (
    *("packages", "exclude_packages", "repositories", "driver_class_path", "java_class", "properties_file"),
    *("total_executor_cores", "executor_cores", "executor_memory", "driver_memory", "num_executors"),
    *("keytab", "principal", "proxy_user", "deploy_mode", "yarn_queue", "post_submit_commands"),
)
"""Options of spark-submit about the start of Spark."""


def client_of(
    operator: SparkSubmitOperator,
    server: ConnectServer,
    extras: Extras,
    run: StageRun,
    nonce: str = "",
    *,
    forks: bool = False,
) -> ConnectClient:
    """Make the client process of an execution, without starting it.

    Args:
        operator: the stage's operator.
        server: the connection's server.
        extras: Cairn's additions for the execution.
        run: the execution. It replaces those before it, whose sessions are released (semantics V2).
        nonce: the server's nonce, if Cairn runs the server.
        forks: whether that server's fork server may fork the process.
    """
    check_options(operator)
    token = run.handover.token
    replaced = replaced_executions(run.coordinator.head(), run.handover.stage, token)
    submission = Submission(
        application=str(operator.application),
        session=session_id(token),
        handed=extras.handed,
        server=asdict(server),
        arguments=tuple(str(each) for each in operator.application_args or ()),
        conf={str(key): str(value) for key, value in (operator.conf or {}).items()},
        # Cairn's server on this machine answers or is gone. A server elsewhere, or the author's own, may come back.
        patience=PATIENCE_HERE if nonce and server.host == LOOPBACK else PATIENCE,
        nonce=nonce,
        attempt=f"{run.handover.checkpoint}_{run.handover.attempt}" if nonce else "",
        replaced=tuple(session_id(each) for each in replaced),
        py_files=_listed(operator.py_files),
        files=_listed(operator.files),
        archives=_listed(option_of(operator, "archives")),
        jars=_listed(operator.jars),
    )
    return ConnectClient(submission, extras.environment, operator.env_vars, forks=forks)


def run_client(client: ConnectClient, run: StageRun) -> None:
    """Run the client to its end.

    Args:
        client: made by `client_of`.
        run: the execution.

    Raises:
        StageFailedError: the application did not end well.
    """
    ended = client.run()
    if ended.problem is not None:
        raise run.refused(ended.problem.message, incurable=ended.problem.incurable)
    if ended.status != 0:
        raise run.failure(ended.status, cause=ended.cause, program=PROGRAM)


def run_on_shared(
    operator: SparkSubmitOperator,
    shared: SharedServer,
    extras: Extras,
    run: StageRun,
    began: Callable[[ConnectClient], None],
) -> None:
    """Run an execution to its end on the server that the job's stages share.

    If the server disappears before the application has begun, the same try replaces it: nothing has failed yet.

    Args:
        operator: the stage's operator.
        shared: the server.
        extras: Cairn's additions for the execution.
        run: the execution.
        began: called with each client process before it runs.

    Raises:
        InvalidConfigError: the operator has an option that only spark-submit can follow.
        StageFailedError: the application did not end well; if its server is gone, the error has the field `server`
            (semantics V4).
    """
    gone = ""
    for last in (False, False, True):
        nonce, server = shared.take(gone)
        here = replace(extras, handed={**extras.handed, **shared.local_state(nonce)})
        client = client_of(operator, server, here, run, nonce, forks=shared.session.fork_server)
        began(client)
        ended = client.run()
        problem = ended.problem
        if problem is None and ended.status == 0:
            return
        of_server = problem is not None and problem.of_server
        lost = shared.why_lost(nonce, server, waits=of_server)
        if lost is not None:
            tell_end(nonce, lost)
        if problem is None:
            raise run.failure(ended.status, cause=ended.cause, program=PROGRAM, server=nonce if lost else "")
        if last or not of_server:
            raise run.refused(
                problem.message, incurable=problem.incurable and not of_server, server=nonce if of_server else ""
            )
        if lost is None:
            what = "is replaced" if problem.incurable else "is tried again"
            log.warning("The Spark server %s %s: %s", nonce, what, problem.message)
        gone = nonce if lost is not None or problem.incurable else ""


def check_options(operator: SparkSubmitOperator) -> None:
    """Refuse options that only spark-submit can follow.

    Raises:
        InvalidConfigError: the operator has such an option; the message names it.
    """
    for name in _OF_THE_SERVER:
        if option_of(operator, name):
            raise InvalidConfigError(
                f"{name} says how Spark is started, and over Spark Connect it runs already. Give it to the server, or "
                "take the option away",
                task=operator.task_id,
                option=name,
            )
    if str(operator.application).lower().endswith((".jar", ".r")):
        raise InvalidConfigError(
            "over Spark Connect an application is a Python file or 'package.module.function'. Submit this one with "
            "spark-submit, by a connection of type spark",
            task=operator.task_id,
            application=operator.application,
        )


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())
