"""What may happen to the savepoints that the head knows, as pure functions (semantics P1 to P3, T4, T5).

A savepoint is opened once (an id out of the job's sequence), gets the checkpoint that it is made from, and ends once.
Between the last two the checkpoint is pinned (`live.py`). No count of failures knows of it: a savepoint that fails
never fails the job (D5), and it subsumes and commits nothing (C2, C4).

It gets its checkpoint at once, or waits for that of one epoch: the one that was under way when it was asked for, or the
job's last one. Where stages were left out of the newest checkpoint of an idle job, it waits for the next epoch to
begin, and then for that: while a savepoint waits no stage is left out (`partial_completion`). A job that reads what is
there (B2) has no checkpoint without data in flight; its savepoint takes that along, and says which stages have still to
read it.

`settle` runs on every version of the head before that is written. So an epoch that has ended, in whichever way, settles
what waits for it in the same swap, and a job that is being stopped goes on.
"""

from __future__ import annotations

from dataclasses import replace

from ..documents.attempt import RestorePointer
from ..documents.entries import CompletedEntry, SavepointEntry, Stopped
from ..documents.head import MAX_SAVEPOINTS, Head
from ..documents.layout import run_id_of
from ..documents.text import one_line
from ..reasons import Reason, Status

IMPORT_TIMEOUT_MS = 7 * 24 * 3_600_000
"""After this long a start from a savepoint that has not ended is given up; what was copied is deleted then."""


def is_full(head: Head) -> bool:
    """Tell whether so many savepoints are under way that the head takes in no other one."""
    return sum(not entry.ended for entry in head.savepoints) >= MAX_SAVEPOINTS


def opened(head: Head, entry: SavepointEntry) -> Head:
    """Take a savepoint in under the next id, in the place of one of the same request that had failed (T5).

    Beyond `MAX_SAVEPOINTS` the head, which is not full, forgets the oldest that has ended. Its folder stays: it is its
    owner's, and with its metadata in it no other one is made there.
    """
    kept = [each for each in head.savepoints if each.request != entry.request]
    forgotten = head.forgotten
    while len(kept) >= MAX_SAVEPOINTS:
        oldest = next(each for each in kept if each.ended)
        kept.remove(oldest)
        forgotten += oldest.status is Status.FAILED
    return replace(head, next_id=entry.id + 1, savepoints=(*kept, entry), forgotten=forgotten)


def forgotten(head: Head, uri: str) -> Head:
    """Forget a savepoint that has ended, because its files are gone (semantics P3).

    Who deletes in its folder may be late, and a deletion may land late. So a folder is never used again: the next one
    of the same request has another name, by the count that grows here.
    """
    left = tuple(each for each in head.savepoints if each.uri != uri or not each.ended)
    if left == head.savepoints:
        return head
    return replace(head, savepoints=left, forgotten=head.forgotten + 1)


def expire(head: Head, now_ms: int) -> Head:
    """Fail every savepoint that has not ended in time, so that its checkpoint is not kept for ever (semantics D2).

    Nor are the copies of one that a caller began to start the job from, and never went on with.
    """
    if head.importing is not None and now_ms >= head.importing.started_at_ms + IMPORT_TIMEOUT_MS:
        head = replace(head, importing=None)
    for entry in head.savepoints:
        if entry.status is Status.PENDING and now_ms >= entry.expires_at_ms:
            after = (entry.expires_at_ms - entry.requested_at_ms) // 1000
            head = failed(head, entry, Reason.CHECKPOINT_EXPIRED, f"not complete after {after} s", now_ms)
    return head


def failed(head: Head, entry: SavepointEntry, reason: Reason, detail: str, now_ms: int) -> Head:
    """End a savepoint without completing it; nothing else of the job changes (semantics D5).

    Where the job's last epoch had drained it, the job goes back (`decisions.go_on_undrained`); the detail says so.
    """
    if drained_in_vain(head, entry):
        detail = (
            f"{detail}. The job goes back to the checkpoint before, because its last run had drained it. Clear the run "
            f"{run_id_of(entry.epoch)} to have its input read without draining"
        )
    return _ended(head, replace(entry, status=Status.FAILED, reason=reason, detail=one_line(detail)), now_ms)


def drained_in_vain(head: Head, entry: SavepointEntry) -> bool:
    """Tell whether the job stands at the checkpoint that its last epoch has drained, for a savepoint (semantics P2)."""
    latest = head.latest_completed()
    made_from = entry.source.checkpoint if entry.source is not None else None
    if not entry.drains or latest is None or (latest.id, latest.epoch) != (made_from, entry.epoch):
        return False
    # Cairn 0.1 kept no checkpoint more for this; where none is left, going back would lose all state.
    return len(head.completed) > 1 or latest.restored_from is None


def made(head: Head, entry: SavepointEntry, *, files: int, size_bytes: int, now_ms: int) -> Head:
    """Complete a savepoint whose metadata stands in its folder."""
    return _ended(head, replace(entry, status=Status.COMPLETED, files=files, size_bytes=size_bytes), now_ms)


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
    """Give the checkpoint that has completed to every savepoint that waits for one; that leaves no stage out (T4)."""
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
    down. Everything else is its end. Where nothing is to be settled the head comes back as it is.
    """
    for entry in head.savepoints:
        if entry.waits:
            head = _settled(head, entry, now_ms)
    return head


def refused(head: Head, epoch: str, reason: Reason, detail: str, now_ms: int) -> Head:
    """Fail what waits for an epoch that does not begin, because its trigger was refused (semantics P2)."""
    if head.pending_of_epoch(epoch) is not None:
        return head
    for entry in head.savepoints:
        if entry.waits and not entry.next_whole and entry.epoch == epoch:
            why = f"the run {run_id_of(epoch)}, which it waited for, does not begin: {detail}"
            head = failed(head, entry, reason, why, now_ms)
    return head


def _ended(head: Head, entry: SavepointEntry, now_ms: int) -> Head:
    ended = replace(entry, ended_at_ms=max(now_ms, entry.requested_at_ms))
    return replace(head, savepoints=tuple(ended if each.id == entry.id else each for each in head.savepoints))


def _settled(head: Head, entry: SavepointEntry, now_ms: int) -> Head:
    if head.stopped is Stopped.SHUTDOWN:
        detail = f"the job was shut down; `cairn resume {head.job}` lets it go on"
        return failed(head, entry, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, detail, now_ms)
    if entry.next_whole or head.pending_of_epoch(entry.epoch) is not None:
        return head
    ended = next(head.ended_of_epoch(entry.epoch), None)
    # What ended before the job's last epoch was waited for says nothing of that one: it has still to begin.
    begins = ended is None or (entry.drains and ended.id < entry.id)
    if ended is None or begins or ended.status is Status.COMPLETED or head.resumable(entry.epoch) is not None:
        return head
    why = ended.detail if head.rewound_since(ended) is None else "the job was rewound since"
    detail = f"checkpoint {ended.id}, which it waited for, did not complete: {why}"
    return failed(head, entry, ended.reason or Reason.JOB_FAILURE, detail, now_ms)


def _with(head: Head, entry: SavepointEntry) -> Head:
    return replace(head, savepoints=tuple(entry if each.id == entry.id else each for each in head.savepoints))
