"""`restore_latest_checkpoint`: the callback of a failed stage. Airflow may call it twice, late, or in another process.

The callback records the failure first and clears tasks second. If it dies in between, the store says which tasks must
run again, and the next task finds that.

Airflow calls it in the task's process, or in the dag processor when the task's process was killed, as on_retry_callback
or on_failure_callback, and sometimes as the wrong one of the two. So the callback decides nothing itself: it reports
the failed try to the job's head, which counts the same failure once (semantics F5). It never raises.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...checkpoint.answers import AbandonedRegion, EpochCompleted, Failed, FailedOver, Restarted
from ...checkpoint.documents.run_window import run_of_slice
from ...checkpoint.reasons import cause_first
from ...checkpoint.remedies import LEFT_BEHIND, REMEDIES
from ...hooks.clear_body import TaskRef
from ...tasks.clearing import note_of
from ...tasks.entry_points import tell_listeners_if_possible
from ...tasks.job_settings import scope_of
from ...tasks.reports import notes
from ..graph.run_tasks import where_of
from ..graph.stages import StageTask, stage_task
from ..stage.overtaken_epoch import clear_restarted_stages
from .report import detail_of, is_final, report, settings_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from ...storage.uris import StorageUri

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
        log.info("%s.%s: %s", ti.dag_id, ti.task_id, _report(context))
    except Exception:
        if "ti" in context and is_final(context):
            log.exception(
                "the checkpoint was not restored by this callback, and no other try follows: mend the cause, which "
                "follows, then clear the task"
            )
        else:
            log.exception("the checkpoint was not restored by this callback; the stage's next try will do it")


def _report(context: Context) -> str:
    ti = context["ti"]
    stage = stage_task(context["task"], ti.map_index)
    if stage is None:
        return f"{ti.task_id} is no stage of a checkpointed job; nothing to restore"
    settings = settings_of(context, stage.operator)
    coordinator = settings.coordinator()
    try:
        return _failed_over(context, stage, coordinator, settings.storage)
    finally:
        scope = scope_of(stage.operator.task_group)
        tell_listeners_if_possible(coordinator, scope.listeners if scope else ())


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
    if isinstance(answer, Failed):
        way = REMEDIES[answer.reason]
        way_out = LEFT_BEHIND if answer.left_behind else way.text(coordinator.job, storage, answer.checkpoint)
        why = cause_first(answer.detail, answer.reason)
        return f"stage {uid} failed, and checkpoint {answer.checkpoint} has failed: {why}. {way_out}"
    if not isinstance(answer, FailedOver):
        return f"stage {uid} · try {ti.try_number}: {answer.why}"
    pending = answer.pending
    for damage in answer.damages:
        log.warning("not restored, because it is damaged: %s", damage)
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
        then = "must run again too, once this task does: clear it, and they are cleared with it"
        log.info("%s %s (%s)", named, then, task.task_id)
        return
    where = where_of(task, ti.dag_id, ti.run_id)
    note = note_of(pending.checkpoint, pending.attempt, f"`{stage.uid}` failed")

    def to_run_again() -> tuple[Restarted, ...]:
        return coordinator.to_run_again(pending.epoch)

    clear_restarted_stages(answer.restarted, stage.uid, where, task.airflow_api_conn_id, note, to_run_again)
