"""`restore_latest_checkpoint`: the callback of a failed stage, and the report of a failed try (semantics F4, F5).

The callback records the failure first and clears tasks second. If it dies in between, the store says which tasks must
run again, and the next task finds that. Airflow may call it twice, late, or in another process: in the task's, or in
the dag processor when the task's process was killed, as on_retry_callback or on_failure_callback, and sometimes as the
wrong one of the two. So the callback decides nothing itself: it reports the failed try to the job's head. It never
raises.

Airflow asks the retry policy in the worker before it stores the outcome. Both may report: they use the same words, and
the head counts the failed try once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError
from airflow.sdk.log import redact  # type: ignore[attr-defined]  # re-imported there, but public

from ...checkpoint.answers import AbandonedRegion, EpochCompleted, Failed, FailedOver
from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import run_of_slice
from ...checkpoint.errors import CheckpointError
from ...checkpoint.reasons import cause_first
from ...checkpoint.remedies import LEFT_BEHIND, REMEDIES
from ...hooks.task_refs import TaskRef
from ...spark.execution.failure_kinds import causes, error_line, is_of_store
from ...storage.names import parse_storage_uri
from ...tasks.clearing import note_of
from ...tasks.extensions import notify_listeners_best_effort
from ...tasks.job_settings import JobSettings, is_rendered_later, scope_of
from ...tasks.reports import notes
from ..graph.stages import StageTask, stage_task
from ..graph.topology import where_of
from ..stage.outcome import NO_MEMORY, StageFailedError, failed_prefix
from ..stage.overtaken_epoch import clear_restarted_stages

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from ...checkpoint.answers import FailAnswer
    from ...storage.names import StorageUri
    from ..graph.declaration import StageOperator

log = logging.getLogger("airflow_cairn")


def restore_latest_checkpoint(context: Context) -> None:
    """Abort the failed stage's checkpoint and open the epoch's next attempt from the latest completed one.

    For `on_retry_callback` and `on_failure_callback`. Does nothing for a task that is not a stage. Idempotent
    (semantics F5): a second call for the same try finds the failure settled. Never raises: errors are logged, and the
    stage's next try settles the failure at its start.

    Args:
        context: Airflow's task context; only `task`, `ti` and, if present, `exception` are used.
    """
    try:
        ti = context["ti"]
        # Callbacks run in the dag processor, whose log covers all DAGs of a file: name the task.
        log.info("Task %s.%s: %s", ti.dag_id, ti.task_id, _report(context))
    except Exception:
        if "ti" in context and is_final(context):
            log.exception(
                "The checkpoint was not restored by this callback, and no other try follows: mend the cause, which "
                "follows, then clear the task"
            )
        else:
            log.exception("The checkpoint was not restored by this callback; the stage's next try will do it")


def _report(context: Context) -> str:
    ti = context["ti"]
    stage = stage_task(context["task"], ti.map_index)
    if stage is None:
        return f"{ti.task_id} is not a stage of a checkpointed job; nothing to restore"
    settings = settings_of(context, stage.operator)
    coordinator = settings.coordinator()
    try:
        return _failed_over(context, stage, coordinator, settings.storage)
    finally:
        scope = scope_of(stage.operator.task_group)
        notify_listeners_best_effort(coordinator, scope.listeners if scope else ())


def _failed_over(context: Context, stage: StageTask, coordinator: Coordinator, storage: StorageUri) -> str:
    ti, uid = context["ti"], stage.uid
    answer = report(context, uid, coordinator)
    if isinstance(answer, EpochCompleted):
        return f"epoch {ti.run_id} is completed by checkpoint {answer.checkpoint}; nothing to restore"
    if isinstance(answer, AbandonedRegion):
        return (
            f"stage {uid} failed, and no other try follows; checkpoint {answer.checkpoint} goes on without "
            f"{', '.join(answer.stages)}, whose input is kept for the next epoch. Mend the cause, and leave the run as "
            "it is: the next run reads what is kept first, and a clear would end skipped"
        )
    if isinstance(answer, Failed) and _input_is_refused(context):
        return f"stage {uid} failed: {detail_of(context, uid)}"
    if isinstance(answer, Failed):
        way = REMEDIES[answer.reason]
        way_out = LEFT_BEHIND if answer.left_behind else way.text(coordinator.job, storage, answer.checkpoint)
        why = cause_first(answer.detail, answer.reason)
        return f"stage {uid} failed, and checkpoint {answer.checkpoint} has failed: {why}. {way_out}"
    if not isinstance(answer, FailedOver):
        return f"stage {uid} · try {ti.try_number}: {answer.why}"
    pending = answer.pending
    for damage in answer.damages:
        log.warning("Not restored, because it is damaged: %s", damage)
    start = f"checkpoint {pending.restore.checkpoint}" if pending.restore else "nothing: no checkpoint has completed"
    if answer.restarted:
        _run_others_again(context, stage, answer, coordinator)
    if answer.created:
        task = TaskRef(stage.task_id, stage.map_index)
        said = notes.failed_over(uid, detail_of(context, uid), pending, final=is_final(context))
        notes.write(stage.operator.airflow_api_conn_id, ti.dag_id, str(ti.run_id), coordinator.job, said, (task,))
    return (
        f"stage {uid} failed; checkpoint {pending.checkpoint} · epoch {run_of_slice(pending.epoch, pending.slice)} · "
        f"attempt {pending.attempt} "
        f"{'opened' if answer.created else 'is open already'}, restoring from {start}"
    )


def _run_others_again(context: Context, stage: StageTask, answer: FailedOver, coordinator: Coordinator) -> None:
    """Clear the other tasks that the failover restarts. Errors are only logged: the stage's next try clears them."""
    ti, pending, task = context["ti"], answer.pending, stage.operator
    named = ", ".join(each.stage for each in answer.restarted)
    if is_final(context):
        # Nothing would read their new output yet. If a user clears this task, its next try clears the others.
        log.info("Clear task %s, which clears these stages too, because they must run again: %s", task.task_id, named)
        return
    where = where_of(task, ti.dag_id, ti.run_id)
    note = note_of(pending.checkpoint, pending.attempt, f"`{stage.uid}` failed")

    def unclaimed_now() -> Collection[str]:
        return coordinator.unclaimed(pending.epoch)

    clear_restarted_stages(answer.restarted, stage.uid, where, task.airflow_api_conn_id, note, unclaimed_now)


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
        # A trigger that failed has not seen how its driver ended.
        isinstance(error, TaskDeferralError) or (isinstance(error, CheckpointError) and error.code == "driver_unknown")
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


def _input_is_refused(context: Context) -> bool:
    """Return whether a source refused the epoch's input in this try: its error alone says what to do."""
    error = _error_of(context)
    return isinstance(error, CheckpointError) and error.code == "source_refused"


def _error_of(context: Context) -> object:
    error = context.get("exception")
    if isinstance(error, AirflowFailException) and isinstance(error.__cause__, CheckpointError):
        return error.__cause__
    return error


def detail_of(context: Context, uid: str) -> str:
    """Return one line that says why a try failed, as far as this process knows."""
    error = _error_of(context)
    if isinstance(error, CheckpointError):
        # Cairn's own errors explain themselves: the class's name adds nothing for a reader of the history.
        return str(redact(error.message.removeprefix(failed_prefix(uid))))
    if isinstance(error, BaseException):
        return error_line(error)
    return str(redact(error)) if error else KILLED
