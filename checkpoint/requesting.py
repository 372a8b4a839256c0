"""Decides what becomes of a request: admitted, waiting, or declined (semantics T1 to T4, T6, T9).

One pure function over (head, request, clock). It is called inside the loop that swaps the head, so its conditions hold
in the very version that makes the checkpoint pending (T6). Forced requests pass both limits (T4).
"""

from __future__ import annotations

from dataclasses import dataclass

from . import queue
from .head import Head, Stopped, WaitingRequest
from .reasons import Reason, RequestKind
from .requests import TriggerRequest


@dataclass(frozen=True, slots=True)
class Admit:
    """The checkpoint may be opened now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The request is to ask again; where it has an owner, `line` keeps its place (T2)."""

    reason: Reason
    position: int
    """1-based: how many are to be admitted up to and with this one."""
    line: tuple[WaitingRequest, ...]
    retry_at_ms: int | None = None
    """The moment the pause ends (T3), milliseconds since 1970 UTC; None: when another checkpoint has ended."""


@dataclass(frozen=True, slots=True)
class Decline:
    """Nothing comes of the request as it stands."""

    reason: Reason
    detail: str


Verdict = Admit | Wait | Decline


def decide(head: Head, request: TriggerRequest, now_ms: int) -> Verdict:
    """Check a request in the order of semantics T1.

    Args:
        head: the version decided on, with what has expired already ended; the epoch has no pending attempt in it.
        request: what is asked for.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if head.stopped is Stopped.SHUTDOWN:
        return Decline(Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, "the job's coordinator was shut down")
    if head.stopped is Stopped.SUSPENDED and request.kind is RequestKind.PERIODIC:
        return Decline(Reason.PERIODIC_SCHEDULER_SHUTDOWN, "the job is suspended; only requests by hand are taken")
    if not request.kind.forced:
        wish = WaitingRequest(request.epoch, request.kind, now_ms, request.owner)
        joined = queue.join(head.waiting, wish)
        if joined is None:
            detail = f"{len(head.waiting)} requests wait already, and none of them would give way to this one"
            return Decline(Reason.TOO_MANY_CHECKPOINT_REQUESTS, detail)
        position = queue.position(joined, request.epoch)
        # Only a request whose owner can be asked about keeps a place: an abandoned one would hold up all behind it.
        line = joined if request.owner is not None else head.waiting
        if position > request.config.max_concurrent_checkpoints - len(head.pending):
            known = queue.holds(head.waiting, request.epoch)
            reason = Reason.ALREADY_QUEUED if known else Reason.TOO_MANY_CONCURRENT_CHECKPOINTS
            return Wait(reason, position, line)
        pause_ends = _pause_ends_ms(head, request)
        if now_ms < pause_ends:
            return Wait(Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, position, line, pause_ends)
    if request.absent:
        detail = f"these stages cannot take part: {', '.join(sorted(request.absent))}"
        return Decline(Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, detail)
    return Admit()


def _pause_ends_ms(head: Head, request: TriggerRequest) -> int:
    latest = head.latest_completed()
    if request.kind is not RequestKind.PERIODIC or latest is None:
        return 0
    return latest.completed_at_ms + request.config.min_pause_ms
