"""What is said of a request that no checkpoint came of, and what the head keeps of it (semantics T1).

A request that waits stands in the line. One that is declined is kept in a short list, for people: only the newest of
each epoch, so that asking again for the same answer swaps nothing. Those that find the line full ask again by
themselves, maybe many of them, so the first of them stands for all.
"""

from __future__ import annotations

from dataclasses import replace

from . import decisions, requesting
from .head import MAX_DECLINED, DeclinedRequest, Head
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
    detail = decisions.one_line(verdict.detail)
    of_all = verdict.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS
    for each in head.declined:
        if (each.reason, each.detail) == (verdict.reason, detail) and (of_all or each.epoch == request.epoch):
            return head
    others = tuple(each for each in head.declined if each.epoch != request.epoch)
    entry = DeclinedRequest(request.epoch, request.kind, verdict.reason, detail, now_ms)
    return replace(head, declined=(*others, entry)[-MAX_DECLINED:])


def answer(head: Head, request: TriggerRequest, verdict: requesting.Wait | requesting.Decline) -> Declined:
    """Say to who asked what became of the request, in words for the log.

    Args:
        head: the version with the request's place in it.
        request: what was asked for.
        verdict: what was decided.
    """
    if isinstance(verdict, requesting.Decline):
        return Declined(verdict.reason, verdict.detail)
    if verdict.reason is Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS:
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
