"""Keeps ended checkpoints in the head: the history, and notices for listeners (semantics O1, C4, D4).

Pure functions, which `transitions` calls at each checkpoint's end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from ...storage.names import check_name
from ..answers import EpochCompleted
from ..documents.attempt import AttemptRef, DocumentRef
from ..documents.entries import EndedEntry, LateAck, Notice, OpenedEntry, PendingEntry, RewindRecord
from ..documents.head import MAX_HISTORY, MAX_LATE, MAX_RESTARTED, MAX_UNFINISHED, Head
from ..documents.strict_json import common
from ..reasons import Status


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
        left_behind = each.left_behind or (newest and len(later) >= max(MAX_UNFINISHED, each.places))
        history.append(each if left_behind == each.left_behind else replace(each, left_behind=True))
        later.add(each.epoch)
    return replace(head, history=tuple(reversed(history)))


def with_ended(head: Head, ended: EndedEntry) -> Head:
    """Replace the history entry of a checkpoint."""
    return replace(head, history=tuple(ended if each.id == ended.id else each for each in head.history))


def reject(head: Head, ended: EndedEntry, token: str) -> Head:
    """Note that an execution of an ended checkpoint was answered `DISCARDED`, so that no later attempt carries it."""
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


def note_delivered(head: Head, checkpoint: int, listener: str) -> Head:
    """Note that a listener was notified how a checkpoint ended; a notice without listeners goes (C4, D4)."""
    notices = (
        replace(each, listeners=tuple(name for name in each.listeners if name != listener))
        if each.checkpoint == checkpoint
        else each
        for each in head.notices
    )
    return replace(head, notices=tuple(each for each in notices if each.listeners))


def bounded(old: Head, new: Head) -> Head:
    """Give `new` with no more history than a head holds; the lowest ids go first (semantics O1).

    Once in a swap, after all that the swap decides. What ends in this very swap stays, so that its tasks can read how
    it ended; there is room, because fewer may be pending at once than the history holds (semantics S3). What an epoch's
    next attempt is made from goes after all others: the epoch waits in the queue, or for a person (S1, C2, F4).
    """
    excess = len(new.history) - MAX_HISTORY
    if excess <= 0:
        return new
    needed = {found.id for epoch in {each.epoch for each in new.history} if (found := new.unfinished(epoch))}
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

    Raises:
        InvalidKeyError: `epoch` is not a valid name of an epoch (semantics W1).
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
