"""What may happen to the savepoints that the head knows, as pure functions (semantics P1, P3, T4, T5).

A savepoint is opened once (an id out of the job's sequence), gets the checkpoint that it is made from at once or when
that completes (`savepoint_waits`), and ends once. Between the last two the checkpoint is pinned (`live.py`). No count
of failures knows of
it: a savepoint that fails never fails the job (D5), and it subsumes and commits nothing (C2, C4).
"""

from __future__ import annotations

from dataclasses import replace

from ..documents.entries import SavepointEntry
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
