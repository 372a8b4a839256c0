"""How an epoch ended, as the task that waits for its checkpoint reports it; and the cleaning that follows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from ..checkpoint.answers import EpochCompleted, Failed
from ..checkpoint.documents import layout
from ..checkpoint.documents.run_window import run_of_head, run_text
from ..checkpoint.errors import CheckpointFailedError, InvalidConfigError, JobFailedError
from ..checkpoint.ways_out import LEFT_BEHIND, WAYS_OUT
from ..storage.uris import StorageUri

if TYPE_CHECKING:
    from ..checkpoint import Coordinator

log = logging.getLogger("airflow_cairn")


def result_of(coordinator: Coordinator, completed: EpochCompleted, run_id: str) -> dict[str, Any]:
    """Log what a completed checkpoint holds, and give it as the task's result.

    Args:
        coordinator: of the job.
        completed: the epoch, and its checkpoint.
        run_id: the DAG run's id.
    """
    head = coordinator.head()
    entry, held = head.ended_by_id(completed.checkpoint), head.completed_by_id(completed.checkpoint)
    facts: dict[str, Any] = {"job": coordinator.job, "checkpoint": completed.checkpoint, "epoch": completed.epoch}
    if entry is None:
        log.info("checkpoint %d · epoch %s: completed long ago", completed.checkpoint, run_id)
        return facts
    took_ms = entry.ended_at_ms - entry.triggered_at_ms
    log.info(
        "checkpoint %d · epoch %s: completed · attempt %d · %s · %d bytes · %.1f s",
        completed.checkpoint,
        run_text(run_id, entry.window),
        entry.attempt,
        "1 ack" if entry.acks == 1 else f"{entry.acks} acks",
        entry.size_bytes,
        took_ms / 1000,
    )
    if entry.left_out:
        log.warning(
            "completed without %s; what was left out is read first in the next epoch", ", ".join(entry.left_out)
        )
        facts["left_out"] = list(entry.left_out)
    if held is not None and held.tables:
        facts["tables"] = sorted(held.tables)
    return {
        **facts,
        "attempt": entry.attempt,
        "acks": entry.acks,
        "size_bytes": entry.size_bytes,
        "duration_ms": took_ms,
    }


def failure_of(
    coordinator: Coordinator, storage: StorageUri, ended: Failed, run_id: str
) -> CheckpointFailedError | AirflowFailException | InvalidConfigError:
    """Give the error with which the task fails: what happened, why, and what to do next.

    Args:
        coordinator: of the job.
        storage: the storage, for the commands that the text names.
        ended: how the epoch's newest attempt ended; checkpoint 0: none is known.
        run_id: the DAG run's id.
    """
    if ended.checkpoint == 0:
        return InvalidConfigError(
            "no checkpoint of this run's epoch is known. If none was ever triggered, put a "
            "TriggerCheckpointOperator of the same job before the stages, or use a CheckpointedTaskGroup. If the "
            "last one ended so long ago that the job's history has forgotten it, clear the whole run",
            job=coordinator.job,
            epoch=run_id,
        )
    run = run_of_head(coordinator.head(), layout.epoch_name(run_id))
    facts = {"job": coordinator.job, "epoch": run, "attempt": ended.attempt}
    way_out = WAYS_OUT[ended.reason]
    said = next_step_of(coordinator, storage, ended)
    cause = f"checkpoint {ended.checkpoint} failed: {ended.reason}: {ended.detail}. {said}"
    if ended.for_good:
        return JobFailedError(f"the epoch failed, and no other try follows: {cause}", **facts)
    if ended.job_failed:
        return JobFailedError(
            f"the job failed, because `tolerable_failed_checkpoints` allows no more failed ones: {cause}", **facts
        )
    failed = CheckpointFailedError(cause, **facts)
    if ended.left_behind or not way_out.waiting_helps:
        # No stage's own retry opens another attempt, so another try of this task would find the same.
        return AirflowFailException(str(failed))
    return failed


def next_step_of(coordinator: Coordinator, storage: StorageUri, ended: Failed) -> str:
    """Say what a person does next about an epoch's newest attempt, which is known."""
    return LEFT_BEHIND if ended.left_behind else WAYS_OUT[ended.reason].said(coordinator.job, storage, ended.checkpoint)


def clean(coordinator: Coordinator) -> None:
    """Delete what nothing refers to any more; the checkpoint is complete, so this fails no task (C3, W7).

    Args:
        coordinator: of the job.
    """
    try:
        report = coordinator.clean()
    except Exception:
        log.exception("cleaning failed; the next completed checkpoint cleans again")
        return
    log.info("cleaned: %d files deleted, %d uploads aborted", report.deleted, report.uploads_aborted)
    if report.foreign:
        named = ", ".join(report.foreign[:10])
        log.warning("cleaning passed over %d files that Cairn has not written: %s", len(report.foreign), named)
    for failure in report.failures[:10]:
        log.warning("could not be deleted: %s: %s", failure.key, failure.reason)
    if len(report.failures) > 10:
        log.warning("and %d more could not be deleted", len(report.failures) - 10)
