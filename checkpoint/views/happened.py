"""What one swap of the head has changed: the version before and the one after say all of it.

Each version follows one other, and one process wrote it. Where that process alone reports what this module finds, each
event is reported once at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..documents.entries import EndedEntry, RestoreRecord, SavepointEntry
from ..documents.head import Head
from ..reasons import DECLINES, Reason, Status


@dataclass(frozen=True, slots=True)
class Happened:
    """The events of one swap."""

    triggered: int
    """Attempts that were opened, and triggers that failed before their checkpoint had an id."""
    completed: tuple[EndedEntry, ...]
    failed: tuple[EndedEntry, ...]
    """Attempts that ended without completing, whatever the reason; one that a pause has ended goes on."""
    failed_triggers: tuple[Reason, ...]
    """Why triggers failed before their checkpoint had an id (semantics O1)."""
    failovers: int
    """Attempts that were opened because a stage had failed in the one before, or the stages of the DAG had changed."""
    restores: tuple[RestoreRecord, ...]
    savepoints: tuple[SavepointEntry, ...]
    """Those that have completed or failed."""


def between(old: Head, new: Head) -> Happened:
    """Find what has happened from one version of the head to the next."""
    known = {entry.id for entry in old.history}
    ended = tuple(entry for entry in new.history if entry.id not in known)
    failed = tuple(entry for entry in ended if entry.status is Status.FAILED and not entry.paused)
    # A trigger that failed without an id is in no history: only the counter and the declined request tell of it.
    without_id = new.counters.failed - old.counters.failed - len(failed)
    pending = {entry.epoch for entry in new.pending} - {entry.epoch for entry in old.pending if entry in new.pending}
    restored = new.counters.restored - old.counters.restored
    over = {entry.id for entry in old.savepoints if entry.ended}
    return Happened(
        triggered=new.counters.triggered - old.counters.triggered,
        completed=tuple(entry for entry in ended if entry.status is Status.COMPLETED),
        failed=failed,
        failed_triggers=tuple(each.reason for each in new.declined[-without_id:]) if without_id > 0 else (),
        failovers=sum(_follows_failed_stage(new, epoch) for epoch in pending),
        restores=new.restores[-restored:] if restored > 0 else (),
        savepoints=tuple(entry for entry in new.savepoints if entry.ended and entry.id not in over),
    )


def _follows_failed_stage(head: Head, epoch: str) -> bool:
    """Tell whether the epoch's attempt before its pending one ended because a stage had failed."""
    before = next(head.ended_of_epoch(epoch), None)
    return before is not None and (before.reason is Reason.JOB_FAILOVER_REGION or before.reason in DECLINES)
