"""The line of requests that wait for a free place, as pure functions over a tuple (semantics T2).

The tuple is always in the order in which requests are admitted: by kind, and within a kind as they came. Places are
taken by coming, not by clocks, so hosts whose clocks differ cannot overtake each other.
"""

from __future__ import annotations

from ..documents.attempt import Owner
from ..documents.entries import EndedEntry, PendingEntry, WaitingRequest
from ..documents.head import MAX_WAITING
from ..reasons import RequestKind


def holds(line: tuple[WaitingRequest, ...], epoch: str) -> bool:
    """Tell whether the epoch has a place in the line."""
    return any(each.epoch == epoch for each in line)


def position(line: tuple[WaitingRequest, ...], epoch: str) -> int:
    """Give the epoch's 1-based place; it must have one."""
    return 1 + [each.epoch for each in line].index(epoch)


def join(line: tuple[WaitingRequest, ...], wish: WaitingRequest) -> tuple[WaitingRequest, ...] | None:
    """Take a place; who has one keeps it, unless it asks again as another kind.

    A full line drops its last periodic request. Where that would be the new one, or there is none, the new one is
    refused (semantics T2). Who was dropped learns it when it asks again, and may then join anew.

    Returns:
        The line with the wish in it, or None where it is refused.
    """
    if any(each.epoch == wish.epoch and each.kind is wish.kind for each in line):
        return line
    others = leave(line, wish.epoch)
    behind = next((i for i, each in enumerate(others) if each.kind.rank > wish.kind.rank), len(others))
    joined = (*others[:behind], wish, *others[behind:])
    if len(joined) <= MAX_WAITING:
        return joined
    last = next((each for each in reversed(joined) if each.kind is RequestKind.PERIODIC), None)
    return None if last is None or last.epoch == wish.epoch else leave(joined, last.epoch)


def come_back(
    line: tuple[WaitingRequest, ...], attempt: PendingEntry | EndedEntry, owner: Owner | None, now_ms: int
) -> tuple[WaitingRequest, ...]:
    """Let an epoch that goes on after its attempt has ended be the first of its kind: it is the oldest (semantics T2).

    An epoch that has a place keeps it. A full line drops its last periodic request for it, or takes it in all the same:
    there are never more of them than checkpoints may be pending.

    Args:
        line: as it is.
        attempt: the epoch's newest one.
        owner: the DAG run that the epoch belongs to.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if holds(line, attempt.epoch):
        return line
    place = WaitingRequest(attempt.epoch, attempt.kind or RequestKind.MANUAL, now_ms, owner, attempt.window)
    before = next((i for i, each in enumerate(line) if each.kind.rank >= place.kind.rank), len(line))
    joined = (*line[:before], place, *line[before:])
    if len(joined) <= MAX_WAITING:
        return joined
    last = next((each for each in reversed(joined) if each.kind is RequestKind.PERIODIC), place)
    return joined if last.epoch == place.epoch else leave(joined, last.epoch)


def leave(line: tuple[WaitingRequest, ...], epoch: str) -> tuple[WaitingRequest, ...]:
    """Give up the epoch's place, if it has one."""
    return tuple(each for each in line if each.epoch != epoch)
