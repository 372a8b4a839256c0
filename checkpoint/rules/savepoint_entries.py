"""Transitions of the savepoints that the head knows, as pure functions (semantics P1 to P3, T4, T5).

A savepoint is opened once, with an id out of the job's sequence, gets the checkpoint that it is made from, and ends
once. From the second to the third the checkpoint is pinned (the cleaner). A failed savepoint does not count as a failed
checkpoint, so it never fails the job (D5); and a savepoint subsumes and commits nothing (C2, C4).

A savepoint gets its checkpoint at once, or waits for that of one epoch: the epoch under way when it was requested, or
the job's last one. If the job is idle and its newest checkpoint has left out stages, the savepoint waits for the next
epoch to begin, and then for its checkpoint; while a savepoint waits, no stage is left out (`partial_completion`). An
at-least-once job (B2) has no checkpoint without data in flight; its savepoint includes that data, and names the stages
that have still to read it.

`settle` runs on every version of the head before it is written. So the end of an epoch, in whichever way, settles the
savepoints that wait for it in the same swap, and lets a job that is being stopped go on.
"""

from __future__ import annotations

from dataclasses import replace

from ...storage.names import same_place
from ..documents.attempt import RestorePointer
from ..documents.entries import CompletedEntry, SavepointEntry, Stopped
from ..documents.head import MAX_SAVEPOINTS, Head
from ..documents.layout import run_id_of
from ..documents.texts import one_line
from ..reasons import Reason, Status

IMPORT_TIMEOUT_MS = 7 * 24 * 3_600_000
"""Time after which an unfinished start from a savepoint is given up, and its copied files are deleted."""


def is_full(head: Head) -> bool:
    """Tell whether `MAX_SAVEPOINTS` savepoints are under way, so that the head takes no more."""
    return sum(not entry.ended for entry in head.savepoints) >= MAX_SAVEPOINTS


def opened(head: Head, entry: SavepointEntry) -> Head:
    """Add a savepoint under the next id; it replaces a failed one of the same request (T5).

    Beyond `MAX_SAVEPOINTS` the head forgets the oldest savepoint that has ended; one has, as the head is not full. Its
    folder belongs to its owner and stays; the metadata in it keeps another savepoint from being made there.
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

    A deletion in its folder may land late, so a folder is never used again: the next savepoint of the same request gets
    another name, by the count that grows here.
    """
    left = tuple(each for each in head.savepoints if not same_place(each.uri, uri) or not each.ended)
    if left == head.savepoints:
        return head
    return replace(head, savepoints=left, forgotten=head.forgotten + 1)


def expire(head: Head, now_ms: int) -> Head:
    """Fail every savepoint that has not ended in time, so that its checkpoint is not kept forever (semantics D2).

    An unfinished start from a savepoint is given up, too, so that its copied files are not kept forever.
    """
    if head.importing is not None and now_ms >= head.importing.started_at_ms + IMPORT_TIMEOUT_MS:
        head = replace(head, importing=None)
    for entry in head.savepoints:
        if entry.status is Status.PENDING and now_ms >= entry.expires_at_ms:
            after = (entry.expires_at_ms - entry.requested_at_ms) // 1000
            head = failed(head, entry, Reason.CHECKPOINT_EXPIRED, f"not complete after {after} s", now_ms)
    return head


def failed(head: Head, entry: SavepointEntry, reason: Reason, detail: str, now_ms: int) -> Head:
    """Fail a savepoint; the job is not affected (semantics D5).

    If the job's last epoch has drained the job for it, the job goes back (`transitions.go_on_undrained`); the detail
    tells users.
    """
    if drained_in_vain(head, entry):
        detail = (
            f"{detail}. The job goes back to the checkpoint before, because its last run had drained it. Clear the run "
            f"{run_id_of(entry.epoch)} to have its input read without draining"
        )
    return _ended(head, replace(entry, status=Status.FAILED, reason=reason, detail=one_line(detail)), now_ms)


def drained_in_vain(head: Head, entry: SavepointEntry) -> bool:
    """Tell whether the newest checkpoint is the one in which the job was drained for a savepoint (semantics P2)."""
    latest = head.latest_completed()
    made_from = entry.source.checkpoint if entry.source is not None else None
    if not entry.drains or latest is None or (latest.id, latest.epoch) != (made_from, entry.epoch):
        return False
    # Cairn 0.1 kept no extra checkpoint for this; if none is left, going back would lose all state.
    return len(head.completed) > 1 or latest.restored_from is None


def made(head: Head, entry: SavepointEntry, *, files: int, size_bytes: int, now_ms: int) -> Head:
    """Complete a savepoint whose metadata is in its folder."""
    return _ended(head, replace(entry, status=Status.COMPLETED, files=files, size_bytes=size_bytes), now_ms)


def awaited(head: Head) -> bool:
    """Tell whether a savepoint waits for the next checkpoint, which may then leave out no stage (semantics T4)."""
    return any(entry.waits for entry in head.savepoints)


def begun(head: Head, epoch: str) -> Head:
    """Bind savepoints that wait for any next epoch to the epoch that has begun."""
    if not any(entry.waits_for_next for entry in head.savepoints):
        return head
    savepoints = (
        replace(entry, epoch=epoch, next_whole=False) if entry.waits_for_next else entry for entry in head.savepoints
    )
    return replace(head, savepoints=tuple(savepoints))


def completed(head: Head, checkpoint: CompletedEntry) -> Head:
    """Give a completed checkpoint, which leaves out no stage, to every savepoint that waits for it (semantics T4)."""
    for entry in head.savepoints:
        # A savepoint that drains the job takes the job's last epoch, and no earlier one (semantics P2).
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
    """Fail every savepoint that waits for an epoch that will not complete (semantics P2).

    An epoch may complete while an attempt of it is pending, or if the next one follows by itself: after a counted
    failure within the limit (D5) and after a pause of the DAG (S1). An epoch that has not begun may begin, unless the
    job is shut down. In all other cases it has ended. If no savepoint fails, the same head is returned.
    """
    for entry in head.savepoints:
        if entry.waits:
            head = _settled(head, entry, now_ms)
    return head


def refused(head: Head, epoch: str, reason: Reason, detail: str, now_ms: int) -> Head:
    """Fail savepoints that wait for an epoch whose trigger was refused (semantics P2)."""
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
        detail = "the job was shut down, and is to be resumed first"
        return failed(head, entry, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, detail, now_ms)
    if entry.next_whole or head.pending_of_epoch(entry.epoch) is not None:
        return head
    ended = next(head.ended_of_epoch(entry.epoch), None)
    # An attempt that ended before a draining savepoint was requested does not matter: the last epoch has yet to begin.
    begins = ended is None or (entry.drains and ended.id < entry.id)
    if ended is None or begins or ended.status is Status.COMPLETED or head.resumable(entry.epoch) is not None:
        return head
    why = ended.detail if head.rewound_since(ended) is None else "the job was rewound since"
    detail = f"checkpoint {ended.id}, which it waited for, did not complete: {why}"
    return failed(head, entry, ended.reason or Reason.JOB_FAILURE, detail, now_ms)


def _with(head: Head, entry: SavepointEntry) -> Head:
    return replace(head, savepoints=tuple(entry if each.id == entry.id else each for each in head.savepoints))
