"""What may happen to a head, as pure functions: each takes a head and facts and gives the head that follows.

Nothing here reads or writes. A function is called again on a newer head whenever the swap was lost, so each one
recognises what it has already achieved.
"""

from __future__ import annotations

from dataclasses import replace

from .head import (
    MAX_HISTORY,
    MAX_RESTORES,
    CompletedEntry,
    EndedEntry,
    Head,
    PendingEntry,
    RestoreRecord,
)
from .model import DocumentRef
from .reasons import Reason, Status


def expire(head: Head, now_ms: int) -> Head:
    """End every pending checkpoint that is older than its timeout (semantics D2)."""
    for entry in head.pending:
        if now_ms >= entry.expires_at_ms:
            after = (entry.expires_at_ms - entry.triggered_at_ms) // 1000
            head = abort(head, entry, Reason.CHECKPOINT_EXPIRED, f"not complete after {after} s", now_ms)
    return head


def open_attempt(head: Head, entry: PendingEntry, restore: RestoreRecord | None) -> Head:
    """Make a checkpoint pending under the next id (semantics T5, T6), and record what it restores (R5)."""
    counters = replace(
        head.counters,
        triggered=head.counters.triggered + 1,
        restored=head.counters.restored + (restore is not None),
    )
    restores = head.restores if restore is None else (*head.restores, restore)[-MAX_RESTORES:]
    return replace(head, next_id=entry.id + 1, pending=(*head.pending, entry), counters=counters, restores=restores)


def abort(head: Head, entry: PendingEntry, reason: Reason, detail: str, now_ms: int, *, acks: int = 0) -> Head:
    """End a pending checkpoint without completing it (semantics D1, D3)."""
    ended = EndedEntry(
        id=entry.id,
        epoch=entry.epoch,
        attempt=entry.attempt,
        token=entry.token,
        status=Status.FAILED,
        triggered_at_ms=entry.triggered_at_ms,
        ended_at_ms=max(now_ms, entry.triggered_at_ms),
        reason=reason,
        detail=detail[:500],
        acks=acks,
        restored_from=entry.restored_from,
        base=entry.base,
    )
    counters = replace(head.counters, failed=head.counters.failed + 1)
    return _end(replace(head, counters=counters), ended)


def complete(
    head: Head,
    entry: PendingEntry,
    *,
    metadata: DocumentRef,
    acks: int,
    size_bytes: int,
    tables: dict[str, str],
    now_ms: int,
) -> Head:
    """Complete a pending checkpoint, subsume older pending ones and retain the newest (semantics C1 to C3).

    A checkpoint that was bypassed because it is damaged (`restored_from` older than `base`) leaves the store: what it
    held has been made anew.
    """
    completed = CompletedEntry(
        id=entry.id,
        epoch=entry.epoch,
        attempt=entry.attempt,
        token=entry.token,
        triggered_at_ms=entry.triggered_at_ms,
        completed_at_ms=max(now_ms, entry.triggered_at_ms),
        metadata=metadata,
        acks=acks,
        size_bytes=size_bytes,
        restored_from=entry.restored_from,
        tables=tables,
    )
    ended = EndedEntry(
        id=entry.id,
        epoch=entry.epoch,
        attempt=entry.attempt,
        token=entry.token,
        status=Status.COMPLETED,
        triggered_at_ms=entry.triggered_at_ms,
        ended_at_ms=completed.completed_at_ms,
        acks=acks,
        size_bytes=size_bytes,
        restored_from=entry.restored_from,
    )
    counters = replace(head.counters, completed=head.counters.completed + 1)
    head = _end(replace(head, counters=counters), ended)
    sound = tuple(e for e in head.completed if e.id <= (entry.restored_from or 0))
    head = replace(head, completed=(*sound, completed)[-max(1, entry.retained) :])
    for older in head.pending:
        if older.id < entry.id:
            detail = f"checkpoint {entry.id} completed"
            head = abort(head, older, Reason.CHECKPOINT_SUBSUMED, detail, now_ms)
    return head


def reject(head: Head, ended: EndedEntry, token: str) -> Head:
    """Note that an execution of an ended checkpoint was told `DISCARDED`, so that no later attempt carries it."""
    if token in ended.rejected:
        return head
    noted = replace(ended, rejected=(*ended.rejected, token))
    return replace(head, history=tuple(noted if e.id == ended.id else e for e in head.history))


def forgotten(old: Head, new: Head) -> tuple[EndedEntry, ...]:
    """Give the completions that the history of `new` no longer remembers.

    Their epochs must be noted elsewhere before `new` is written, or a later trigger would fold them in twice.
    """
    kept = {entry.id for entry in new.history}
    return tuple(e for e in old.history if e.status is Status.COMPLETED and e.id not in kept)


def _end(head: Head, ended: EndedEntry) -> Head:
    pending = tuple(e for e in head.pending if e.id != ended.id)
    return replace(head, pending=pending, history=(*head.history, ended)[-MAX_HISTORY:])
