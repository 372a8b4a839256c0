"""The queue of requests that wait for a free place, as pure functions over a tuple (semantics T2).

The tuple is always in the order of admission: by kind, and within a kind by arrival. Arrival is the order of swaps, not
of clocks, so hosts whose clocks differ cannot overtake each other.
"""

from __future__ import annotations

from ..documents.attempt import Owner
from ..documents.entries import EndedEntry, PendingEntry, WaitingRequest
from ..documents.head import MAX_WAITING
from ..reasons import RequestKind


def holds(waiting: tuple[WaitingRequest, ...], epoch: str) -> bool:
    """Tell whether the epoch has a place in the queue."""
    return any(each.epoch == epoch for each in waiting)


def position(waiting: tuple[WaitingRequest, ...], epoch: str) -> int:
    """Give the epoch's 1-based place; it must have one."""
    return 1 + [each.epoch for each in waiting].index(epoch)


def join(waiting: tuple[WaitingRequest, ...], request: WaitingRequest) -> tuple[WaitingRequest, ...] | None:
    """Take a place; a request that has one keeps it, unless it asks again as another kind.

    A full queue drops its last periodic request. If that would be the new one, or there is none, the new one is refused
    (semantics T2). A dropped request finds out when it asks again, and may then join again.

    Returns:
        The queue with the request in it, or None if the request is refused.
    """
    if any(each.epoch == request.epoch and each.kind is request.kind for each in waiting):
        return waiting
    others = leave(waiting, request.epoch)
    behind = next((i for i, each in enumerate(others) if each.kind.rank > request.kind.rank), len(others))
    joined = (*others[:behind], request, *others[behind:])
    if len(joined) <= MAX_WAITING:
        return joined
    last = next((each for each in reversed(joined) if each.kind is RequestKind.PERIODIC), None)
    return None if last is None or last.epoch == request.epoch else leave(joined, last.epoch)


def rejoin(
    waiting: tuple[WaitingRequest, ...], attempt: PendingEntry | EndedEntry, owner: Owner | None, now_ms: int
) -> tuple[WaitingRequest, ...]:
    """Put an epoch whose attempt has ended first among its kind, because it is the oldest (semantics T2).

    An epoch that has a place keeps it. A full queue drops its last periodic request for it, or grows beyond its limit:
    there are never more such epochs than checkpoints may be pending.

    Args:
        waiting: the queue as it is.
        attempt: the epoch's newest one.
        owner: the DAG run that the epoch belongs to.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if holds(waiting, attempt.epoch):
        return waiting
    place = WaitingRequest(attempt.epoch, attempt.kind or RequestKind.MANUAL, now_ms, owner, attempt.window)
    before = next((i for i, each in enumerate(waiting) if each.kind.rank >= place.kind.rank), len(waiting))
    joined = (*waiting[:before], place, *waiting[before:])
    if len(joined) <= MAX_WAITING:
        return joined
    last = next((each for each in reversed(joined) if each.kind is RequestKind.PERIODIC), place)
    return joined if last.epoch == place.epoch else leave(joined, last.epoch)


def leave(waiting: tuple[WaitingRequest, ...], epoch: str) -> tuple[WaitingRequest, ...]:
    """Give up the epoch's place, if it has one."""
    return tuple(each for each in waiting if each.epoch != epoch)
