"""Reports a failed try of a stage to the job's head, from wherever Airflow says so (semantics F4, F5).

A retry policy is asked in the worker before Airflow stores the outcome, a callback comes afterwards or from another
process, and both may come. They report in the same words, and the head counts the failed try once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.log import redact  # type: ignore[attr-defined]  # imported there for its own use, but public

from ...checkpoint.documents import layout
from ...checkpoint.errors import CheckpointError
from ...spark.execution.error_text import one_line
from ...storage.uris import parse_storage_uri
from ...tasks.job_settings import JobSettings, is_rendered_later
from ..stage.drivers import DriverUnknownError
from ..stage.outcome import StageFailedError, failed_prefix

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from ...checkpoint.answers import FailAnswer
    from ..graph.declaration import StageOperator

KILLED = "the task's process ended without a result: it was killed, or its machine was lost"


def report(context: Context, uid: str, coordinator: Coordinator) -> FailAnswer:
    """Say that a try failed; reporting it again changes nothing (semantics F5).

    Args:
        context: Airflow's; only `ti` and, where there is one, `exception` are used.
        uid: the stage's.
        coordinator: of its job.
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
    )


def is_final(context: Context) -> bool:
    """Tell whether no other try follows by itself; one that does all the same opens the epoch's next attempt.

    Args:
        context: Airflow's; only `ti` and, where there is one, `exception` are used.
    """
    ti = context["ti"]
    return ti.try_number > ti.max_tries or _failed_permanently(context)


def settings_of(context: Context, task: StageOperator) -> JobSettings:
    """Read a stage's settings; in the dag processor the task comes as it was parsed, its templates not rendered."""
    storage, job = str(task.storage), str(task.job)
    if is_rendered_later(storage) or is_rendered_later(job):
        environment = task.dag.get_template_env()
        storage = task.render_template(storage, context, environment)
        job = task.render_template(job, context, environment)
    return JobSettings(parse_storage_uri(storage), job, task.aws_conn_id)


def _failed_permanently(context: Context) -> bool:
    return isinstance(context.get("exception"), AirflowFailException)


def _is_unknown(context: Context) -> bool:
    """Tell whether it is unknown what became of the application: its task was killed, or lost sight of its driver."""
    error = context.get("exception")
    # A task whose process still runs says why it fails. In the dag processor there is at most a line of text.
    return isinstance(error, DriverUnknownError) or not isinstance(error, BaseException)


def _lost_server(context: Context) -> str:
    """Give the nonce of the job's Spark server, where the try failed because that is gone (semantics V4)."""
    error = context.get("exception")
    return str(error.fields.get("server", "")) if isinstance(error, StageFailedError) else ""


def detail_of(context: Context, uid: str) -> str:
    """Say in one line why a try failed, as far as it is known here."""
    error = context.get("exception")
    if isinstance(error, AirflowFailException) and isinstance(error.__cause__, CheckpointError):
        error = error.__cause__
    if isinstance(error, CheckpointError):
        # Ours say themselves what happened; the class's name adds nothing for a reader of the history.
        return str(redact(error.message.removeprefix(failed_prefix(uid))))
    if isinstance(error, BaseException):
        return str(redact(one_line(error)))
    return str(redact(error)) if error else KILLED
