"""Decides what becomes of a request: admitted, waiting, or declined (semantics T1 to T4, T6, T9).

One pure function over (head, request, clock). It is called inside the loop that swaps the head, so its conditions hold
in the very version that makes the checkpoint pending (T6).

A request that waits need not ask to learn that it still waits: `still_waits` says so from the head alone, by the same
checks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...storage.errors import CairnError, ErrorKind
from ..answers import Declined
from ..documents.attempt import Owner
from ..documents.entries import DeclinedRequest, Stopped, WaitingRequest
from ..documents.head import MAX_DECLINED, Head
from ..documents.read_windows import WindowText
from ..documents.text import one_line
from ..reasons import Reason, RequestKind, Status
from ..request import TriggerRequest
from . import queue, savepoint_entries, suspension, transitions


@dataclass(frozen=True, slots=True)
class Admit:
    """The checkpoint may be opened now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The request is to ask again; where it has an owner, `line` keeps its place (T2)."""

    reason: Reason
    position: int
    """1-based: how many are to be admitted up to and with this one."""
    waiting: tuple[WaitingRequest, ...]
    retry_at_ms: int | None = None
    """The moment the pause ends (T3), milliseconds since 1970 UTC; None: when another checkpoint has ended."""
    savepoint: str | None = None
    """The savepoint with which the job is being stopped, and how that ends is waited for (P2)."""


@dataclass(frozen=True, slots=True)
class Decline:
    """Nothing comes of the request as it stands."""

    reason: Reason
    detail: str


Verdict = Admit | Wait | Decline


@dataclass(frozen=True, slots=True)
class Turn:
    """As much of a request as says when it is its turn; small enough to be sent to another process."""

    epoch: str
    kind: RequestKind
    max_concurrent: int
    """`CheckpointConfig.max_concurrent_checkpoints`."""
    min_pause_ms: int
    """`CheckpointConfig.min_pause`."""
    owner: Owner | None = None
    """Whose DAG run asks; only needed to take a place in the queue."""
    window: WindowText | None = None
    """What the epoch reads, for people; None where a source will say it."""


@dataclass(frozen=True, slots=True)
class StillWaits:
    """Asking again would change nothing yet."""

    reason: Reason
    position: int | None
    """1-based place in the queue; None where the queue is full."""
    left_ms: int | None = None
    """How long the pause still lasts (T3); None: until a checkpoint or another request ends."""


def decide(head: Head, request: TriggerRequest, now_ms: int) -> Verdict:
    """Check a request in the order of semantics T1.

    Args:
        head: the version decided on, with what has expired already ended; the epoch has no pending attempt in it.
        request: what is asked for.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    return _held_back(head, turn_of(request), now_ms) or Admit()


def turn_of(request: TriggerRequest) -> Turn:
    """Give as much of a request as says when it is its turn."""
    config = request.config
    return Turn(
        request.epoch,
        request.kind,
        config.max_concurrent_checkpoints,
        config.min_pause_ms,
        request.owner,
        request.window,
    )


def still_waits(head: Head, turn: Turn, now_ms: int) -> StillWaits | None:
    """Say whether a request that was to wait still waits, from the head alone (semantics T2, T3).

    That a DAG run before it has ended is not in the head: see `held_up_by`.

    Args:
        head: the newest version; what has expired in it counts as ended (D2).
        turn: of the request.
        now_ms: the time, milliseconds since 1970 UTC.

    Returns:
        None where asking helps: it would be admitted or declined, has lost its place, or its epoch has gone on.
    """
    if head.pending_of_epoch(turn.epoch) is not None or turn.epoch in head.completions():
        return None
    verdict = _held_back(_without_expired(head, now_ms), turn, now_ms)
    if isinstance(verdict, Decline) and verdict.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS:
        return StillWaits(verdict.reason, None)
    if not isinstance(verdict, Wait) or not queue.holds(head.waiting, turn.epoch):
        return None
    left_ms = None if verdict.retry_at_ms is None else verdict.retry_at_ms - now_ms
    return StillWaits(verdict.reason, verdict.position, left_ms)


@dataclass(frozen=True, slots=True)
class HeldUp:
    """What may change a request's answer and is not in the head: the states of DAG runs, which Airflow knows."""

    asks: Owner | None
    """The DAG run that waits, as the queue has it."""
    pending: tuple[Owner, ...]
    """Those whose checkpoints are pending: one that has ended holds a place."""
    before: tuple[Owner, ...]
    """Those before it in the queue for whom a place is free: one that has ended does not take it."""
    last_run: str | None = None
    """The job is being stopped: the epoch that it waits for (semantics P2)."""


def held_up_by(head: Head, turn: Turn) -> HeldUp:
    """Say whose DAG runs hold up a request that waits, by the same rules as a trigger passes them over (T2)."""
    place = next((each for each in head.waiting if each.epoch == turn.epoch), None)
    ahead = head.waiting[: queue.position(head.waiting, turn.epoch) - 1] if place is not None else head.waiting
    free = max(0, turn.max_concurrent - len(head.pending))
    stopping = head.kept_from(turn.epoch)
    return HeldUp(
        asks=place.owner if place is not None else None,
        pending=tuple(each.owner for each in head.pending if each.owner is not None),
        before=tuple(each.owner for each in ahead[:free] if each.owner is not None),
        last_run=stopping.epoch if stopping is not None and stopping.waits else None,
    )


def _without_expired(head: Head, now_ms: int) -> Head:
    """Take what has expired as ended: completed or failed, as the next that asks settles it (semantics D2)."""
    pending = tuple(entry for entry in head.pending if now_ms < entry.expires_at_ms)
    return suspension.go_on_undrained(savepoint_entries.expire(replace(head, pending=pending), now_ms), now_ms)


def _held_back(head: Head, turn: Turn, now_ms: int) -> Wait | Decline | None:
    if head.stopped is Stopped.SHUTDOWN:
        detail = f"the job's coordinator was shut down; `cairn resume {head.job}` lets the job go on"
        return Decline(Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, detail)
    if head.stopped is not None and turn.kind is RequestKind.PERIODIC:
        return Decline(
            Reason.PERIODIC_SCHEDULER_SHUTDOWN, f"the job is {head.stopped}; only manual requests are accepted"
        )
    stopping = head.kept_from(turn.epoch)
    if head.stops_after(turn.epoch) and len(head.pending) < turn.max_concurrent:
        # Those before it in the queue wait for how the stop ends, and that waits for this one (semantics P2).
        return None
    asked = WaitingRequest(turn.epoch, turn.kind, now_ms, turn.owner, turn.window)
    joined = queue.join(head.waiting, asked)
    if joined is None:
        detail = f"{len(head.waiting)} requests wait already, and none of them would give way to this one"
        return Decline(Reason.TOO_MANY_CHECKPOINT_REQUESTS, detail)
    position = queue.position(joined, turn.epoch)
    # Only a request whose owner can be asked about keeps a place: an abandoned one would hold up all behind it.
    waiting = joined if turn.owner is not None else head.waiting
    if stopping is not None:
        # If the stop fails the job goes on, and so does the queue; if not, the queue is dropped (semantics P2, S1).
        return Wait(Reason.CHECKPOINT_COORDINATOR_SUSPEND, position, waiting, savepoint=stopping.uri)
    if position > turn.max_concurrent - len(head.pending):
        known = queue.holds(head.waiting, turn.epoch)
        reason = Reason.ALREADY_QUEUED if known else Reason.TOO_MANY_CONCURRENT_CHECKPOINTS
        return Wait(reason, position, waiting)
    pause_ends = _pause_ends_ms(head, turn, now_ms)
    if now_ms < pause_ends:
        return Wait(Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, position, waiting, pause_ends)
    return None


def _pause_ends_ms(head: Head, turn: Turn, now_ms: int) -> int:
    latest = head.latest_completed()
    if turn.kind is not RequestKind.PERIODIC or latest is None:
        return 0
    # The end of a savepoint starts the pause, too (semantics T4).
    ends = [each.ended_at_ms for each in head.savepoints if each.status is Status.COMPLETED]
    # What was made from a savepoint took no run's time: the first epoch after it need not wait (semantics T3).
    if head.import_of(latest.id) is None:
        ends.append(latest.completed_at_ms)
    # One that is further ahead than the pause was written by a wrong clock: it would hold the schedule up until then.
    ends = [each for each in ends if each - now_ms <= turn.min_pause_ms]
    return max(ends) + turn.min_pause_ms if ends else 0


def noted(head: Head, request: TriggerRequest, verdict: Wait | Decline, now_ms: int) -> Head:
    """Keep a decline in the head; a request that waits is none, and the same answer again changes nothing."""
    if isinstance(verdict, Wait):
        return head
    detail = one_line(verdict.detail)
    of_all = verdict.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS
    for each in head.declined:
        if (each.reason, each.detail) == (verdict.reason, detail) and (of_all or each.epoch == request.epoch):
            return head
    return _with(head, DeclinedRequest(request.epoch, request.kind, verdict.reason, detail, now_ms, request.window))


def _with(head: Head, entry: DeclinedRequest) -> Head:
    others = tuple(each for each in head.declined if each.epoch != entry.epoch)
    return replace(head, declined=(*others, entry)[-MAX_DECLINED:])


def reason_of(error: CairnError) -> Reason:
    """Say as Flink does why a trigger failed (semantics T1).

    Args:
        error: what was raised on the way to the checkpoint.
    """
    failed = error.kind in (ErrorKind.UNAVAILABLE, ErrorKind.FORBIDDEN)
    return Reason.IO_EXCEPTION if failed else Reason.TRIGGER_CHECKPOINT_FAILURE


def failed(head: Head, request: TriggerRequest, error: CairnError, now_ms: int) -> Head:
    """Keep and count a trigger that failed before its checkpoint got an id (T1, D5); its request stays in the queue."""
    if error.kind is ErrorKind.INVALID:
        return head  # the request itself is wrong, so nothing of it may be written
    if head.pending_of_epoch(request.epoch) is not None or request.epoch in head.completions():
        return head  # only the answer was lost, or it failed at a checkpoint that stands
    reason, detail = reason_of(error), str(error)
    kept = _with(head, DeclinedRequest(request.epoch, request.kind, reason, one_line(detail), now_ms, request.window))
    return transitions.fail_trigger(kept, reason, detail, request.config.tolerable_failed_checkpoints, now_ms)


def answer(head: Head, request: TriggerRequest, verdict: Wait | Decline) -> Declined:
    """Say in words for the log what became of a request; the head has its place in the queue."""
    if isinstance(verdict, Decline):
        return Declined(verdict.reason, verdict.detail)
    if verdict.savepoint is not None:
        detail = f"the job is being stopped with the savepoint {verdict.savepoint}; it goes on only if that fails"
    elif verdict.reason is Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS:
        detail = f"the last checkpoint completed less than min_pause ({request.config.min_pause}) ago"
    else:
        detail = _too_many(head, request, verdict.position)
    return Declined(verdict.reason, detail, verdict.position, verdict.retry_at_ms)


def _too_many(head: Head, request: TriggerRequest, position: int) -> str:
    limit = f"max_concurrent_checkpoints is {request.config.max_concurrent_checkpoints}"
    if len(head.pending) < request.config.max_concurrent_checkpoints:
        first = head.waiting[0]
        whose = f"DAG run {first.owner.run_id}" if first.owner else f"epoch {first.epoch}"
        return f"{whose} is before it in the queue, place {position}, and {limit}"
    held = head.pending[0]
    whose = f" of DAG run {held.owner.run_id}" if held.owner else ""
    return f"checkpoint {held.id}{whose} is pending and {limit}; place {position} in the queue"
