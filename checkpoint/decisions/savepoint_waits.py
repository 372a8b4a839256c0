"""What savepoints wait for, and when that is over: pure functions over the head (semantics P1, P2, T4).

A savepoint waits for the checkpoint of one epoch: the one that was under way when it was asked for, or the job's last
one. Where stages were left out of the newest checkpoint of an idle job, it waits for the next epoch to begin, and then
for that: while a savepoint waits no stage is left out (`leaving_out`). A job that reads what is there (B2) has no
checkpoint without data in flight; its savepoint takes that along, and says which stages have still to read it.

`settle` runs on every version of the head before that is written. So an epoch that has ended, in whichever way, settles
what waits for it in the same swap, and a job that is being stopped goes on.
"""

from __future__ import annotations

from dataclasses import replace

from ..documents.attempt import RestorePointer
from ..documents.entries import CompletedEntry, SavepointEntry, Stopped
from ..documents.head import Head
from ..documents.layout import run_id_of
from ..reasons import Reason, Status
from . import savepoint_entries


def awaited(head: Head) -> bool:
    """Tell whether a savepoint waits for the next checkpoint; it has to be aligned and whole then (semantics T4)."""
    return any(entry.waits for entry in head.savepoints)


def begun(head: Head, epoch: str) -> Head:
    """Let savepoints that wait for the next epoch, whichever it is, wait for the one that has begun."""
    if not any(entry.waits_for_next for entry in head.savepoints):
        return head
    savepoints = (
        replace(entry, epoch=epoch, next_whole=False) if entry.waits_for_next else entry for entry in head.savepoints
    )
    return replace(head, savepoints=tuple(savepoints))


def completed(head: Head, checkpoint: CompletedEntry) -> Head:
    """Give the checkpoint that has completed to every savepoint that waits for one; that leaves no stage out (T4).

    Args:
        head: the version decided on.
        checkpoint: the one that has completed.
    """
    for entry in head.savepoints:
        # One that drains the job holds its last epoch, and no earlier one (semantics P2).
        if not entry.waits or (entry.drains and entry.epoch != checkpoint.epoch):
            continue
        pointer = RestorePointer(checkpoint.id, checkpoint.metadata)
        given = replace(
            entry,
            source=pointer,
            epoch=checkpoint.epoch,
            next_whole=False,
            owing=checkpoint.owing,
            window=checkpoint.window,
        )
        head = _with(head, given)
    return head


def settle(head: Head, now_ms: int) -> Head:
    """Fail every savepoint that waits for what will not come, so that nothing waits for it (semantics P2).

    An epoch goes on as long as an attempt of it is pending, or the next one follows by itself: after a counted failure
    within the limit (D5) and after a pause of the DAG (S1). One that has not begun may begin, unless the job is shut
    down. Everything else is its end.

    Args:
        head: the version to be written; it is given back as it is where nothing is to be settled.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    for entry in head.savepoints:
        if entry.waits:
            head = _settled(head, entry, now_ms)
    return head


def refused(head: Head, epoch: str, reason: Reason, detail: str, now_ms: int) -> Head:
    """Fail what waits for an epoch that does not begin, because its trigger was refused (semantics P2).

    Args:
        head: the version decided on.
        epoch: the epoch's name.
        reason: why, as Flink calls it.
        detail: why, for people.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if head.pending_of_epoch(epoch) is not None:
        return head
    for entry in head.savepoints:
        if entry.waits and not entry.next_whole and entry.epoch == epoch:
            why = f"the run {run_id_of(epoch)}, which it waited for, does not begin: {detail}"
            head = savepoint_entries.failed(head, entry, reason, why, now_ms)
    return head


def _settled(head: Head, entry: SavepointEntry, now_ms: int) -> Head:
    if head.stopped is Stopped.SHUTDOWN:
        detail = f"the job was shut down; `cairn resume {head.job}` lets it go on"
        return savepoint_entries.failed(head, entry, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, detail, now_ms)
    if entry.next_whole or head.pending_of_epoch(entry.epoch) is not None:
        return head
    ended = next(head.ended_of_epoch(entry.epoch), None)
    # What ended before the job's last epoch was waited for says nothing of that one: it has still to begin.
    begins = ended is None or (entry.drains and ended.id < entry.id)
    if ended is None or begins or ended.status is Status.COMPLETED or head.resumable(entry.epoch) is not None:
        return head
    why = ended.detail if head.rewound_since(ended) is None else "the job was rewound since"
    detail = f"checkpoint {ended.id}, which it waited for, did not complete: {why}"
    return savepoint_entries.failed(head, entry, ended.reason or Reason.JOB_FAILURE, detail, now_ms)


def _with(head: Head, entry: SavepointEntry) -> Head:
    return replace(head, savepoints=tuple(entry if each.id == entry.id else each for each in head.savepoints))
