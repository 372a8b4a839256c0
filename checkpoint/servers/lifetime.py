"""When a server ends: a pure function of its entry, its job and what it has done (semantics V1)."""

from __future__ import annotations

from dataclasses import dataclass

from ..documents.entries import Stopped
from ..documents.head import Head
from .record import ServerEntry


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a server may live; times in milliseconds."""

    idle_ms: int
    max_age_ms: int
    max_sessions: int
    max_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """What a server has done."""

    open_sessions: int
    sessions: int
    """All that it ever had."""
    quiet_ms: int
    """How long no session has been open."""
    age_ms: int
    memory_bytes: int


def why_end(entry: ServerEntry | None, head: Head | None, activity: Activity, limits: Limits) -> str | None:
    """Say why a server is to take no more stages; None if it goes on. It ends when no session is open.

    Args:
        entry: its own; None if it does not count any more.
        head: of its job; None if that is not there any more.
        activity: what it has done.
        limits: how long it may live.
    """
    if head is None:
        return "its job is not there any more"
    if entry is None:
        return "another server has replaced it"
    if head.stopped is Stopped.SHUTDOWN:
        return "its job was drained or stopped"
    if entry.use is not None and _is_over(head, entry.use):
        return "its epoch has ended"
    if activity.open_sessions == 0 and activity.quiet_ms >= limits.idle_ms:
        return f"no stage has used it for {limits.idle_ms // 1000} seconds"
    worn = _worn(activity, limits)
    # Between two epochs, so that one has one server; where epochs overlap for ever, at twice the limit.
    if worn is not None and (not head.pending or _worn(activity, limits, 2) is not None):
        return worn
    return None


def _is_over(head: Head, epoch: str) -> bool:
    return head.pending_of_epoch(epoch) is None and all(each.epoch != epoch for each in head.waiting)


def _worn(activity: Activity, limits: Limits, times: int = 1) -> str | None:
    if activity.age_ms >= times * limits.max_age_ms:
        return f"it is {activity.age_ms // 60_000} minutes old"
    if activity.sessions >= times * limits.max_sessions:
        return f"it has had {activity.sessions} sessions"
    if limits.max_memory_bytes is not None and activity.memory_bytes >= times * limits.max_memory_bytes:
        return f"it takes {activity.memory_bytes // 2**20} MiB of memory"
    return None
