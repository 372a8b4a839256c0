"""The end of a completed epoch: its result and the cleaning, by its last task or, without a worker, by a trigger."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..checkpoint.documents.attempt import run_text

if TYPE_CHECKING:
    from ..checkpoint import Coordinator
    from ..checkpoint.answers import EpochCompleted

log = logging.getLogger("airflow_cairn")


def result_of(coordinator: Coordinator, completed: EpochCompleted, run_id: str) -> dict[str, Any]:
    """Log the contents of a completed checkpoint, and return them as the task's result.

    Args:
        coordinator: the job's coordinator.
        completed: the epoch, and its checkpoint.
        run_id: the DAG run's id.
    """
    head = coordinator.known_head()
    entry, held = head.ended_by_id(completed.checkpoint), head.completed_by_id(completed.checkpoint)
    facts: dict[str, Any] = {"job": coordinator.job, "checkpoint": completed.checkpoint, "epoch": completed.epoch}
    if entry is None:
        log.info("Checkpoint %d · epoch %s: completed long ago", completed.checkpoint, run_id)
        return facts
    took_ms = entry.ended_at_ms - entry.triggered_at_ms
    log.info(
        "Checkpoint %d · epoch %s: completed · attempt %d · %s · %d bytes · %.1f s",
        completed.checkpoint,
        run_text(run_id, entry.window),
        entry.attempt,
        "1 ack" if entry.acks == 1 else f"{entry.acks} acks",
        entry.size_bytes,
        took_ms / 1000,
    )
    if entry.left_out:
        log.warning(
            "Completed without %s; their input is kept, and the next epoch reads it first", ", ".join(entry.left_out)
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


def clean(coordinator: Coordinator) -> None:
    """Delete files that nothing refers to; the checkpoint is complete, so errors fail no task (C3, W7)."""
    try:
        report = coordinator.clean(spares_looks=True)
    except Exception:
        log.exception("Cleaning failed; the next completed checkpoint cleans again")
        return
    log.info("Cleaned: %d files deleted, %d uploads aborted", report.deleted, report.uploads_aborted)
    if report.foreign:
        named = ", ".join(report.foreign[:10])
        log.warning("Cleaning passed over %d files that Cairn has not written: %s", len(report.foreign), named)
    for failure in report.failures[:10]:
        log.warning("Not deleted: %s: %s", failure.key, failure.reason)
    if len(report.failures) > 10:
        log.warning("Of the files, %d more could not be deleted", len(report.failures) - 10)
