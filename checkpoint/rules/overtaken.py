"""Overtaken attempts: they cannot complete, because another epoch has completed since they were opened (semantics C2).

An attempt computes on its base, the newest checkpoint that had completed when it was opened. Completing it on another
base would lose the epoch that came between. So an overtaken attempt ends with `CHECKPOINT_SUBSUMED`, and its epoch
opens the next attempt on the new base by itself, with its place before other requests of its kind.
"""

from __future__ import annotations

from ..documents.attempt import Handover, PendingDocument
from ..documents.entries import EndedEntry, PendingEntry
from ..documents.head import Head
from . import transitions


def why(head: Head, entry: PendingEntry) -> str | None:
    """Say that a checkpoint can no longer complete, as it lacks a newer one's epoch; None if it can complete."""
    if head.latest_id() == entry.base:
        return None
    return f"checkpoint {head.latest_id() or 0} completed after this one had started from {entry.base or 0}"


def ended(head: Head, now_ms: int) -> Head:
    """End every overtaken attempt; its epoch gets the next free place of its kind (T2)."""
    for entry in reversed(head.pending):
        detail = why(head, entry)
        if detail is not None:
            head = transitions.subsume(head, entry, detail, now_ms)
    return head


def needs_trigger(head: Head, last: EndedEntry, document: PendingDocument) -> bool:
    """Tell whether only the task that triggers can open an epoch's next attempt.

    On another base the sources' positions have to be worked out again (T8), and the hooks asked again (T7).
    """
    moved = document.slice.base is not None and document.slice.base != (head.latest_id() or 0)
    return moved or (bool(document.hook_names) and last.base != head.latest_id())


def was_overtaken(head: Head, handover: Handover) -> bool:
    """Tell whether an execution no longer counts because its epoch was overtaken, rather than its stage failed."""
    entry = head.pending_of_epoch(handover.epoch)
    if entry is not None and why(head, entry) is not None:
        return True
    # No later attempt takes over executions of an overtaken one, so an attempt since the execution's own shows it.
    return any(each.overtaken for each in head.ended_of_epoch(handover.epoch) if each.id >= handover.checkpoint)
