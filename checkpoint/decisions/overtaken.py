"""Attempts that can no longer complete, because another epoch has completed since they were opened (semantics C2).

What an attempt computes stands on its base, the newest completed checkpoint of that moment. On another base it would
leave out the epoch that came between. So an overtaken attempt ends with `CHECKPOINT_SUBSUMED`, and its epoch opens the
next one on the new base by itself. It keeps its place before other requests of its kind.
"""

from __future__ import annotations

from ..documents.attempt import Handover, PendingDocument
from ..documents.entries import EndedEntry, PendingEntry
from ..documents.head import Head
from . import transitions


def why(head: Head, entry: PendingEntry) -> str | None:
    """Say why a checkpoint can no longer complete: another has since, whose epoch it lacks; None if it can."""
    if head.latest_id() == entry.base:
        return None
    return f"checkpoint {head.latest_id() or 0} completed after this one had started from {entry.base or 0}"


def ended(head: Head, now_ms: int) -> Head:
    """End every attempt that was overtaken; each epoch is the next of its kind that gets a free place (T2)."""
    for entry in reversed(head.pending):
        detail = why(head, entry)
        if detail is not None:
            head = transitions.subsume(head, entry, detail, now_ms)
    return head


def needs_trigger(head: Head, last: EndedEntry, document: PendingDocument) -> bool:
    """Tell whether only the task that triggers can open an epoch's next attempt.

    On another base the sources' positions have to move over the input anew (T8), and the hooks to be asked anew (T7).
    """
    moved = document.slice.base is not None and document.slice.base != (head.latest_id() or 0)
    return moved or (bool(document.hook_names) and last.base != head.latest_id())


def was_overtaken(head: Head, handover: Handover) -> bool:
    """Tell of an execution that counts no more whether its epoch was overtaken, and not its stage failed."""
    entry = head.pending_of_epoch(handover.epoch)
    if entry is not None and why(head, entry) is not None:
        return True
    # No later attempt takes over what an overtaken one ran, so the first of those that it was part of says it.
    return any(each.overtaken for each in head.ended_of_epoch(handover.epoch) if each.id >= handover.checkpoint)
