"""Reports a failed try of a stage to the job's head, from the retry policy or from a callback (semantics F4, F5).

Airflow asks the retry policy in the worker before it stores the outcome. A callback runs later or in another process.
Both may report: they use the same words, and the head counts the failed try once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.log import redact  # type: ignore[attr-defined]  # re-imported there, but public

from ...checkpoint.documents import layout
from ...checkpoint.errors import CheckpointError
from ...spark.execution.failure_kinds import causes, is_of_store, one_line
from ...storage.uris import parse_storage_uri
from ...tasks.job_settings import JobSettings, is_rendered_later
from ..stage.outcome import NO_MEMORY, StageFailedError, failed_prefix

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from ...checkpoint.answers import FailAnswer
    from ..graph.declaration import StageOperator

KILLED = f"the task's process ended without a result: it was killed, or its machine was lost. If killed, {NO_MEMORY}"


def report(context: Context, uid: str, coordinator: Coordinator) -> FailAnswer:
    """Report a failed try; a second report of the same try changes nothing (semantics F5).

    Args:
        context: Airflow's task context; only `ti` and, if present, `exception` are used.
        uid: the stage's uid.
        coordinator: the job's coordinator.
    """
    ti = context["ti"]
    return coordinator.fail(
        layout.epoch_name(ti.run_id),
        uid,
        str(ti.id),
        detail_of(context, uid),
        final=is_final(context),
        curable=not _failed_permanently(context),
        unknown=_is_unknown(context),
        try_number=ti.try_number,
        server=_lost_server(context),
        of_store=_is_of_store(context),
    )


def is_final(context: Context) -> bool:
    """Return whether Airflow will start no other try by itself; a try that comes anyway opens the epoch's next attempt.

    Args:
        context: Airflow's task context; only `ti` and, if present, `exception` are used.
    """
    ti = context["ti"]
    return ti.try_number > ti.max_tries or _failed_permanently(context)


def settings_of(context: Context, task: StageOperator) -> JobSettings:
    """Read a stage's settings; in the dag processor the task is the parsed one, with templates not rendered."""
    storage, job = str(task.storage), str(task.job)
    if is_rendered_later(storage) or is_rendered_later(job):
        environment = task.dag.get_template_env()
        storage = task.render_template(storage, context, environment)
        job = task.render_template(job, context, environment)
    return JobSettings(parse_storage_uri(storage), job, task.aws_conn_id)


def _failed_permanently(context: Context) -> bool:
    return isinstance(context.get("exception"), AirflowFailException)


def _is_unknown(context: Context) -> bool:
    """Return whether the application's fate is unknown: its task was killed, or lost contact with its driver."""
    error = context.get("exception")
    # A task whose process still runs passes its exception. The dag processor passes a line of text at most.
    return not isinstance(error, BaseException) or (
        isinstance(error, CheckpointError) and error.code == "driver_unknown"
    )


def _lost_server(context: Context) -> str:
    """Return the nonce of the job's Spark server, if the try failed because that server is gone (semantics V4)."""
    error = context.get("exception")
    return str(error.fields.get("server", "")) if isinstance(error, StageFailedError) else ""


def _is_of_store(context: Context) -> bool:
    """Return whether the store refused the try or its driver, or did not answer (semantics F4)."""
    error = context.get("exception")
    if not isinstance(error, BaseException):
        return False
    return is_of_store(error) or any(
        isinstance(each, StageFailedError) and "of_store" in each.fields for each in causes(error)
    )


def detail_of(context: Context, uid: str) -> str:
    """Return one line that says why a try failed, as far as this process knows."""
    error = context.get("exception")
    if isinstance(error, AirflowFailException) and isinstance(error.__cause__, CheckpointError):
        error = error.__cause__
    if isinstance(error, CheckpointError):
        # Cairn's own errors explain themselves: the class's name adds nothing for a reader of the history.
        return str(redact(error.message.removeprefix(failed_prefix(uid))))
    if isinstance(error, BaseException):
        return str(redact(one_line(error)))
    return str(redact(error)) if error else KILLED
