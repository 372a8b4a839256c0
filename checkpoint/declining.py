"""What is said of a request that no checkpoint came of, and what the head keeps of it (semantics T1).

A request that waits stands in the line. One that is declined is kept in a short list, for people: only the newest of
each epoch, so that asking again for the same answer swaps nothing. Those that find the line full ask again by
themselves, maybe many of them, so the first of them stands for all.

So is a trigger that failed on its way to a checkpoint, wherever the head can still be written. A request that is wrong
itself (a name, a stage, state that is not claimed) is refused without a trace in the store. That the storage failed
counts against the job each time, because there is no id that could be counted once (semantics D5).
"""

from __future__ import annotations

from dataclasses import replace

from ..storage.errors import CairnError, ErrorKind
from . import decisions, requesting
from .head import MAX_DECLINED, DeclinedRequest, Head
from .head_text import one_line
from .reasons import Reason
from .requests import Declined, TriggerRequest


def noted(head: Head, request: TriggerRequest, verdict: requesting.Wait | requesting.Decline, now_ms: int) -> Head:
    """Keep a decline in the head; a request that waits is none, and the same answer again changes nothing.

    Args:
        head: the version decided on.
        request: what was asked for.
        verdict: what was decided.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if isinstance(verdict, requesting.Wait):
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
    """Keep and count a trigger that failed before its checkpoint got an id (semantics T1, D5).

    Args:
        head: the version decided on.
        request: what was asked for; it keeps its place in the line.
        error: what was raised on the way.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if error.kind is ErrorKind.INVALID:
        return head  # the request itself is wrong, so nothing of it may be written
    if head.pending_of_epoch(request.epoch) is not None or request.epoch in head.completions():
        return head  # only the answer was lost, or it failed at a checkpoint that stands
    reason, detail = reason_of(error), str(error)
    kept = _with(head, DeclinedRequest(request.epoch, request.kind, reason, one_line(detail), now_ms, request.window))
    return decisions.fail_trigger(kept, reason, detail, request.config.tolerable_failed_checkpoints, now_ms)


def answer(head: Head, request: TriggerRequest, verdict: requesting.Wait | requesting.Decline) -> Declined:
    """Say to who asked what became of the request, in words for the log.

    Args:
        head: the version with the request's place in it.
        request: what was asked for.
        verdict: what was decided.
    """
    if isinstance(verdict, requesting.Decline):
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
        return f"{whose} is before it in the line, place {position}, and {limit}"
    held = head.pending[0]
    whose = f" of DAG run {held.owner.run_id}" if held.owner else ""
    return f"checkpoint {held.id}{whose} is pending and {limit}; place {position} in the line"
