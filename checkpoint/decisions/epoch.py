"""Where is this epoch? One answer for all who ask: pending, completed, ended, or unknown (semantics T9, D3, R5).

The head says it, except of an epoch that completed so long ago that the head has forgotten it. That is looked up only
where the head knows nothing of the epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...storage.names import check_name
from ..answers import EpochCompleted
from ..documents.entries import EndedEntry, PendingEntry, RewindRecord
from ..documents.head import Head


@dataclass(frozen=True, slots=True)
class EpochPending:
    """An attempt is pending."""

    entry: PendingEntry


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """The newest attempt has ended, and the epoch has not completed."""

    newest: EndedEntry
    rewind: RewindRecord | None
    """The rewind that came after the attempt: only a trigger opens the next one then (semantics R5)."""


@dataclass(frozen=True, slots=True)
class EpochUnknown:
    """The head knows no attempt of the epoch, and the epoch has not completed."""

    undone: int | None = None
    """The checkpoint in which it had completed, long ago and before a rewind."""


EpochPlace = EpochPending | EpochCompleted | EpochEnded | EpochUnknown


def where_is(head: Head, epoch: str, find_forgotten: Callable[[], int | None]) -> EpochPlace:
    """Say where an epoch is.

    Attempts are opened before an epoch completes, and forgotten before that is. So an epoch of which the head remembers
    an attempt, and no completion, has not completed.

    Args:
        head: the version decided on.
        epoch: the epoch's name.
        find_forgotten: looks up the checkpoint that completed the epoch where the head has forgotten it; None: none
            did. Asked only where the head knows nothing of the epoch.

    Raises:
        CompletedEpochsLostError: it is not known, because a list of completed epochs is lost.
        InvalidNameError: what is asked for is no name of an epoch (semantics W1).
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
