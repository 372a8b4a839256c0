"""Keeps ended checkpoints in the head: the history, notices for listeners, and savepoints (semantics O1, C4, D4, P1).

Pure functions, which `transitions` calls at each checkpoint's end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

from ...storage.names import check_name, same_place
from ...storage.records import dataclass
from ..answers import EpochCompleted
from ..documents.attempt import AttemptRef, DocumentRef, RestorePointer
from ..documents.entries import (
    CompletedEntry,
    EndedEntry,
    LateAck,
    Notice,
    OpenedEntry,
    PendingEntry,
    RewindRecord,
    SavepointEntry,
    Stopped,
)
from ..documents.head import MAX_HISTORY, MAX_LATE, MAX_RESTARTED, MAX_SAVEPOINTS, MAX_UNFINISHED, Head
from ..documents.layout import run_id_of
from ..documents.strict_json import common
from ..masking import one_line
from ..reasons import Reason, Status


def ended_entry(entry: PendingEntry, status: Status, now_ms: int, *, acks: int) -> EndedEntry:
    """Give the history entry of a checkpoint that ends now."""
    return EndedEntry(
        **common(entry, OpenedEntry), status=status, ended_at_ms=max(now_ms, entry.triggered_at_ms), acks=acks
    )


def end(head: Head, ended: EndedEntry) -> Head:
    """Move a checkpoint from the pending ones to the history."""
    pending = tuple(e for e in head.pending if e.id != ended.id)
    return _leave_behind(replace(head, pending=pending, history=(*head.history, ended)))


def _leave_behind(head: Head) -> Head:
    """Mark attempts whose epochs lend no executions any more, because enough others have ended since.

    An epoch that waits in the queue is never marked. A mark is never taken back: the cleaner relies on that.
    """
    awaited = {each.epoch for each in head.waiting} | {each.epoch for each in head.pending}
    later: set[str] = set()
    history = []
    for each in reversed(head.history):
        newest = each.epoch not in later and each.epoch not in awaited and each.status is not Status.COMPLETED
        old = newest and len(later) >= MAX_UNFINISHED and len(later) >= each.places
        history.append(replace(each, left_behind=True) if old and not each.left_behind else each)
        later.add(each.epoch)
    return replace(head, history=tuple(reversed(history)))


def with_ended(head: Head, ended: EndedEntry) -> Head:
    """Replace the history entry of a checkpoint."""
    return replace(head, history=tuple(ended if each.id == ended.id else each for each in head.history))


def reject(head: Head, ended: EndedEntry, token: str) -> Head:
    """Note that an execution of an ended checkpoint was answered `DISCARDED`, so no later attempt takes it over."""
    if token in ended.rejected:
        return head
    return with_ended(head, replace(ended, rejected=(*ended.rejected, token)))


def note_late(head: Head, checkpoint: int, late: LateAck) -> Head:
    """Add a late acknowledgement to the history entry of a failed checkpoint (semantics O1)."""
    ended = head.ended_by_id(checkpoint)
    if ended is None or ended.status is not Status.FAILED or len(ended.late) >= MAX_LATE:
        return head
    if any(each.stage == late.stage for each in ended.late):
        return head
    return with_ended(head, replace(ended, late=(*ended.late, late)))


def note_restarted(head: Head, checkpoint: int, stages: Collection[str]) -> Head:
    """Record the stages that run again in the attempt after an ended one (semantics F1, F2)."""
    names = tuple(sorted(stages)[:MAX_RESTARTED])
    history = tuple(replace(each, restarted=names) if each.id == checkpoint else each for each in head.history)
    return replace(head, history=history) if names else head


def leave_notice(
    head: Head, ended: EndedEntry, listeners: tuple[str, ...], metadata: DocumentRef | None = None
) -> Head:
    """Leave a notice in the same version of the head that ends the checkpoint."""
    if not listeners:
        return head
    notice = Notice(
        **common(ended, AttemptRef),
        status=ended.status,
        latest=head.latest_id(),
        listeners=listeners,
        reason=ended.reason,
        detail=ended.detail,
        metadata=metadata,
        paused=ended.paused,
    )
    return replace(head, notices=tuple(sorted((*head.notices, notice), key=lambda each: each.checkpoint)))


def failed_before(head: Head, restored: RestorePointer | None) -> Iterator[EndedEntry]:
    """Yield the attempts that failed before a completed checkpoint, back to the second one before it, newest first.

    No later attempt takes anything over from them: that needs the same newest completed checkpoint, or a rewind, which
    covers them. From those of an epoch that completed before the restored one, its checkpoint may have taken something
    over; they are left out.
    """
    below, completed = restored.checkpoint if restored else 0, ""
    for each in sorted((each for each in head.history if each.id < below), key=lambda each: -each.id):
        if each.status is Status.COMPLETED:
            if completed:
                return
            completed = each.epoch
        elif each.epoch != completed:
            yield each


def note_delivered(head: Head, checkpoint: int, listener: str) -> Head:
    """Note that a listener was notified how a checkpoint ended; drop a notice without listeners (C4, D4)."""
    notices = (
        replace(each, listeners=tuple(name for name in each.listeners if name != listener))
        if each.checkpoint == checkpoint
        else each
        for each in head.notices
    )
    return replace(head, notices=tuple(each for each in notices if each.listeners))


def bounded(old: Head, new: Head) -> Head:
    """Give `new` with no more history than a head holds; the lowest ids go first (semantics O1).

    Called once in a swap, after all its other decisions. An attempt that ends in this very swap stays, so that its
    tasks can read how it ended; there is room, because fewer may be pending at once than the history holds (semantics
    S3). An attempt from which the next one of its epoch is made goes last: the epoch waits in the queue, or for a
    person (S1, C2, F4).
    """
    excess = len(new.history) - MAX_HISTORY
    if excess <= 0:
        return new
    needed = {found.id for epoch in new.incomplete() if (found := new.unfinished(epoch))}
    ids = sorted((entry.id in needed, entry.id) for entry in new.history if old.pending_by_id(entry.id) is None)
    dropped = {each for _, each in ids[:excess]}
    return replace(new, history=tuple(entry for entry in new.history if entry.id not in dropped))


def forgotten(old: Head, new: Head) -> dict[str, int]:
    """Give the completed epochs, each with its checkpoint, that `new` no longer remembers.

    They must be noted elsewhere before `new` is written, or a later trigger would fold their input in twice. Epochs
    that `new` rewinds are not among them: they have to run again.
    """
    kept = new.completions()
    return {
        epoch: checkpoint
        for epoch, checkpoint in old.completions().items()
        if epoch not in kept and new.rewind_of(checkpoint) is None
    }


# Place of an epoch: pending, completed, ended, or unknown (semantics T9, D3, R5).
#
# The head tells, unless the epoch completed so long ago that the head has forgotten it. The list of completed epochs is
# read only if the head knows nothing of the epoch.


@dataclass(frozen=True, slots=True)
class EpochPending:
    """An attempt is pending."""

    entry: PendingEntry


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """The newest attempt has ended, and the epoch has not completed."""

    newest: EndedEntry
    rewind: RewindRecord | None
    """A rewind after the attempt, if there was one: only a trigger opens the next attempt then (semantics R5)."""


@dataclass(frozen=True, slots=True)
class EpochUnknown:
    """The head knows no attempt of the epoch, and the epoch has not completed."""

    undone: int | None = None
    """The checkpoint in which the epoch had completed, long ago and before a rewind."""


EpochPlace = EpochPending | EpochCompleted | EpochEnded | EpochUnknown


def where_is(head: Head, epoch: str, find_forgotten: Callable[[], int | None]) -> EpochPlace:
    """Find out whether an epoch is pending, completed, ended or unknown.

    The head forgets an epoch's attempts before its completion. So an epoch of which the head knows an attempt, but no
    completion, has not completed.

    Args:
        head: the version decided on.
        epoch: the epoch's name.
        find_forgotten: looks up the checkpoint that completed the epoch; None: none did. Called only if the head knows
            nothing of the epoch.
    """
    check_name("epoch", epoch)
    pending = head.pending_of_epoch(epoch)
    if pending is not None:
        return EpochPending(pending)
    completed = head.completions().get(epoch)
    if completed is not None:
        return EpochCompleted(epoch, completed)
    newest = next(head.ended_of_epoch(epoch), None)
    if newest is not None:
        return EpochEnded(newest, head.rewound_since(newest))
    found = None if head.remembers_all() else find_forgotten()
    if found is None or head.rewind_of(found) is not None:
        return EpochUnknown(found)
    return EpochCompleted(epoch, found)


# Savepoints in the head (semantics P1 to P3, T4, T5).
#
# A savepoint is opened, with an id of the job's sequence; is given the checkpoint to copy; and ends: each once. From
# the second step to the third the cleaner keeps that checkpoint. A failed savepoint does not count as a failed
# checkpoint, so it never fails the job (D5); and a savepoint subsumes and commits nothing (C2, C4).
#
# A savepoint gets its checkpoint at once, or waits for that of one epoch: the epoch under way when it was requested, or
# the job's last one. If the job is idle and its newest checkpoint has left out stages, the savepoint waits for the next
# epoch to begin, and then for its checkpoint; while a savepoint waits, no stage is left out (`partial_completion`). An
# at-least-once job (B2) has no checkpoint without data in flight; its savepoint includes that data, and names the
# stages that have still to read it.
#
# `settle_savepoints` runs on every version of the head before it is written. So the end of an epoch, in whichever way,
# settles the savepoints that wait for it in the same swap, and lets a job that is being stopped go on.


IMPORT_TIMEOUT_MS = 7 * 24 * 3_600_000
"""Time after which an unfinished start from a savepoint is given up, and its copied files are deleted."""


def savepoints_full(head: Head) -> bool:
    """Tell whether `MAX_SAVEPOINTS` savepoints are under way, so that the head takes no more."""
    return sum(not entry.ended for entry in head.savepoints) >= MAX_SAVEPOINTS


def with_savepoint(head: Head, entry: SavepointEntry) -> Head:
    """Add a savepoint under the next id; it replaces a failed one of the same request (T5).

    Beyond `MAX_SAVEPOINTS` the head forgets the oldest savepoint that has ended; there is one, since the head is not
    full. Its folder belongs to its owner and stays; the metadata in it keeps another savepoint from being made there.
    """
    kept = [each for each in head.savepoints if each.request != entry.request]
    forgotten = head.forgotten
    while len(kept) >= MAX_SAVEPOINTS:
        oldest = next(each for each in kept if each.ended)
        kept.remove(oldest)
        forgotten += oldest.status is Status.FAILED
    return replace(head, next_id=entry.id + 1, savepoints=(*kept, entry), forgotten=forgotten)


def without_savepoint(head: Head, uri: str) -> Head:
    """Forget a savepoint that has ended, because its files are gone (semantics P3).

    A deletion in its folder may land late, so a folder is never used again: the next savepoint of the same request gets
    another name, by the count that grows here.
    """
    left = tuple(each for each in head.savepoints if not same_place(each.uri, uri) or not each.ended)
    if left == head.savepoints:
        return head
    return replace(head, savepoints=left, forgotten=head.forgotten + 1)


def expire_savepoints(head: Head, now_ms: int) -> Head:
    """Fail every savepoint that has not ended in time, so that its checkpoint is not kept forever (semantics D2).

    An unfinished start from a savepoint is given up, too, so that its copied files are not kept forever.
    """
    if head.importing is not None and now_ms >= head.importing.started_at_ms + IMPORT_TIMEOUT_MS:
        head = replace(head, importing=None)
    for entry in head.savepoints:
        if entry.status is Status.PENDING and now_ms >= entry.expires_at_ms:
            after = (entry.expires_at_ms - entry.requested_at_ms) // 1000
            names = ", ".join(savepoint_held_by(head, entry))
            held = f": these listeners had not been notified that a checkpoint has completed: {names}" if names else ""
            why = f"not complete after {after} s{held}"
            head = savepoint_failed(head, entry, Reason.CHECKPOINT_EXPIRED, why, now_ms)
    return head


def savepoint_held_by(head: Head, entry: SavepointEntry) -> tuple[str, ...]:
    """Name the listeners that must be notified of a completed checkpoint before a savepoint is made.

    A job that starts from the savepoint does not notify them: what a two-phase sink has staged would never be
    committed, although the savepoint's state counts it (semantics P1, C4). Once a job has stopped, no run notifies any
    listener, so a stop waits for all (P2).

    Returns:
        Sorted names; none while the savepoint waits for an epoch, or if it has ended.
    """
    if entry.source is None or entry.ended:
        return ()
    made_from, waiting = entry.source.checkpoint, head.undelivered_completions()
    if not entry.stops:
        waiting = tuple(each for each in waiting if each.metadata is not None and each.checkpoint <= made_from)
    return tuple(sorted({name for notice in waiting for name in notice.listeners}))


def savepoint_failed(head: Head, entry: SavepointEntry, reason: Reason, detail: str, now_ms: int) -> Head:
    """Fail a savepoint; the job is not affected (semantics D5).

    If the job's last epoch has drained the job for it, the job goes back (`transitions.go_on_undrained`); the detail
    tells users.
    """
    if drained_in_vain(head, entry):
        detail = (
            f"{detail}. The job goes back to the checkpoint before, because its last run had drained it. Clear the run "
            f"{run_id_of(entry.epoch)} to have its input read without draining"
        )
    return _savepoint_ended(head, replace(entry, status=Status.FAILED, reason=reason, detail=one_line(detail)), now_ms)


def drained_in_vain(head: Head, entry: SavepointEntry) -> bool:
    """Tell whether the newest checkpoint is the one in which the job was drained for a savepoint (semantics P2)."""
    latest = head.latest_completed()
    made_from = entry.source.checkpoint if entry.source is not None else None
    if not entry.drains or latest is None or (latest.id, latest.epoch) != (made_from, entry.epoch):
        return False
    # Cairn 0.1 kept no extra checkpoint for this; if none is left, going back would lose all state.
    return len(head.completed) > 1 or latest.restored_from is None


def savepoint_made(head: Head, entry: SavepointEntry, *, files: int, size_bytes: int, now_ms: int) -> Head:
    """Complete a savepoint whose metadata is in its folder."""
    return _savepoint_ended(head, replace(entry, status=Status.COMPLETED, files=files, size_bytes=size_bytes), now_ms)


def savepoint_awaited(head: Head) -> bool:
    """Tell whether a savepoint waits for the next checkpoint, which may then leave out no stage (semantics T4)."""
    return any(entry.waits for entry in head.savepoints)


def savepoints_begun(head: Head, epoch: str) -> Head:
    """Bind savepoints that wait for any next epoch to the epoch that has begun."""
    if not any(entry.waits_for_next for entry in head.savepoints):
        return head
    savepoints = (
        replace(entry, epoch=epoch, next_whole=False) if entry.waits_for_next else entry for entry in head.savepoints
    )
    return replace(head, savepoints=tuple(savepoints))


def give_savepoints(head: Head, checkpoint: CompletedEntry) -> Head:
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
        head = replace(head, savepoints=tuple(given if each.id == given.id else each for each in head.savepoints))
    return head


def settle_savepoints(head: Head, now_ms: int) -> Head:
    """Fail every savepoint that waits for an epoch that will not complete (semantics P2).

    An epoch may complete while an attempt of it is pending, or if the next one follows by itself: after a counted
    failure within the limit (D5) and after a pause of the DAG (S1). An epoch that has not begun may begin, unless the
    job is shut down. In all other cases the epoch is over. If no savepoint fails, the same head is returned.
    """
    for entry in head.savepoints:
        if entry.waits:
            head = _settled_savepoint(head, entry, now_ms)
    return head


def refuse_savepoints(head: Head, epoch: str, reason: Reason, detail: str, now_ms: int) -> Head:
    """Fail savepoints that wait for an epoch whose trigger was refused (semantics P2)."""
    if head.pending_of_epoch(epoch) is not None:
        return head
    for entry in head.savepoints:
        if entry.waits and not entry.next_whole and entry.epoch == epoch:
            why = f"the run {run_id_of(epoch)}, which it waited for, does not begin: {detail}"
            head = savepoint_failed(head, entry, reason, why, now_ms)
    return head


def _savepoint_ended(head: Head, entry: SavepointEntry, now_ms: int) -> Head:
    ended = replace(entry, ended_at_ms=max(now_ms, entry.requested_at_ms))
    return replace(head, savepoints=tuple(ended if each.id == entry.id else each for each in head.savepoints))


def _settled_savepoint(head: Head, entry: SavepointEntry, now_ms: int) -> Head:
    if head.stopped is Stopped.SHUTDOWN:
        detail = "the job was shut down, and is to be resumed first"
        return savepoint_failed(head, entry, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, detail, now_ms)
    if entry.next_whole or head.pending_of_epoch(entry.epoch) is not None:
        return head
    ended = next(head.ended_of_epoch(entry.epoch), None)
    # An attempt that ended before a draining savepoint was requested does not matter: the last epoch has yet to begin.
    begins = ended is None or (entry.drains and ended.id < entry.id)
    if ended is None or begins or ended.status is Status.COMPLETED or head.resumable(entry.epoch) is not None:
        return head
    why = ended.detail if head.rewound_since(ended) is None else "the job was rewound since"
    detail = f"checkpoint {ended.id}, which it waited for, did not complete: {why}"
    return savepoint_failed(head, entry, ended.reason or Reason.JOB_FAILURE, detail, now_ms)
