"""What may happen to the savepoints that the head knows, as pure functions (semantics P1, P3, T4, T5).

A savepoint is opened once (an id out of the job's sequence), gets the checkpoint that it is made from at once or when
that completes, and ends once. Between the last two the checkpoint is pinned (`live.py`). No count of failures knows of
it: a savepoint that fails never fails the job (D5), and it subsumes and commits nothing (C2, C4).
"""

from __future__ import annotations

from dataclasses import replace

from .head import MAX_SAVEPOINTS, CompletedEntry, EndedEntry, Head, SavepointEntry
from .head_text import one_line
from .model import RestorePointer
from .reasons import Reason, Status

EPOCH_IS_LOST = frozenset({Reason.JOB_FAILURE, Reason.CHECKPOINT_COORDINATOR_SUSPEND})
"""Ends of an attempt after which nobody opens the epoch's next one by himself; what waits for it fails with it."""


IMPORT_TIMEOUT_MS = 7 * 24 * 3_600_000
"""After this long a start from a savepoint that has not ended is given up; what was copied is deleted then."""


def awaited(head: Head) -> bool:
    """Tell whether a savepoint waits for the next checkpoint; it has to be aligned and whole then (semantics T4)."""
    return any(entry.waits for entry in head.savepoints)


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


def completed(head: Head, checkpoint: CompletedEntry) -> Head:
    """Give the checkpoint that has completed to every savepoint that waits for one."""
    if not awaited(head):
        return head
    pointer = RestorePointer(checkpoint.id, checkpoint.metadata)
    savepoints = (
        # One that drains the job holds its last epoch, and no earlier one (semantics P2).
        replace(each, source=pointer, epoch=checkpoint.epoch)
        if each.waits and (not each.drains or each.epoch == checkpoint.epoch)
        else each
        for each in head.savepoints
    )
    return replace(head, savepoints=tuple(savepoints))


def lost(head: Head, ended: EndedEntry, now_ms: int) -> Head:
    """Fail what waits for an epoch of which nobody opens another attempt by himself.

    Args:
        head: the version decided on.
        ended: the epoch's last attempt.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    detail = f"checkpoint {ended.id}, which it waited for, did not complete: {ended.detail}"
    reason = ended.reason or Reason.JOB_FAILURE
    for entry in head.savepoints:
        if entry.waits and entry.epoch == ended.epoch:
            head = failed(head, entry, reason, detail, now_ms)
    return head


def expire(head: Head, now_ms: int) -> Head:
    """Fail every savepoint that has not ended in time, so that its checkpoint is not kept for good (semantics D2).

    Nor are the copies of one that somebody began to start the job from, and never went on with.
    """
    if head.importing is not None and now_ms >= head.importing.started_at_ms + IMPORT_TIMEOUT_MS:
        head = replace(head, importing=None)
    for entry in head.savepoints:
        if entry.status is Status.PENDING and now_ms >= entry.expires_at_ms:
            after = (entry.expires_at_ms - entry.requested_at_ms) // 1000
            head = failed(head, entry, Reason.CHECKPOINT_EXPIRED, f"not complete after {after} s", now_ms)
    return head


def failed(head: Head, entry: SavepointEntry, reason: Reason, detail: str, now_ms: int) -> Head:
    """End a savepoint without completing it; nothing else of the job changes (semantics D5)."""
    return _ended(head, replace(entry, status=Status.FAILED, reason=reason, detail=one_line(detail)), now_ms)


def made(head: Head, entry: SavepointEntry, *, files: int, size_bytes: int, now_ms: int) -> Head:
    """Complete a savepoint whose metadata stands in its folder.

    Args:
        head: the version decided on.
        entry: the savepoint.
        files: that it names.
        size_bytes: of these.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    return _ended(head, replace(entry, status=Status.COMPLETED, files=files, size_bytes=size_bytes), now_ms)


def _ended(head: Head, entry: SavepointEntry, now_ms: int) -> Head:
    ended = replace(entry, ended_at_ms=max(now_ms, entry.requested_at_ms))
    return replace(head, savepoints=tuple(ended if each.id == entry.id else each for each in head.savepoints))
