"""Declines at a cancellation barrier (semantics B4).

A decline is passed on to the stages that read from the declining one: the attempt is lost, and submitting them would be
useless. So they decline too, with `CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER`, and claim nothing. This marker is
judged like any decline: it counts as long as the head lists the execution. The next attempt runs both stages anew,
because a stage is never carried over without its upstream (semantics F1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ..answers import Cancelled
from ..documents.acknowledgement import DeclineDocument
from ..documents.attempt import Execution, PendingDocument
from ..masking import one_line
from ..reasons import Reason
from ..rules.failures import producers
from ..store import acks
from ..store.job_files import JobFiles

BARRIER = Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
_NO_REASON = (Reason.CHECKPOINT_DECLINED, "declined")
FEW = 3
"""Upstreams that are looked up by name: stores take for a listing twelve times what they take for a look."""


def pass_on(files: JobFiles, document: PendingDocument, stage: str) -> Cancelled | None:
    """Decline for a stage if a direct or indirect upstream has declined; None where none has.

    A stage that runs at least once waits for no upstream, so no decline is passed on to it (B2).

    Costs a look at each of a few upstreams, or one listing for each checkpoint that is the home of one's execution;
    nothing for a stage without upstream.
    """
    if document.limits.at_least_once:
        return None
    above = {uid: document.executions[uid] for uid in producers(document.stages, stage)}
    if len(above) <= FEW:
        declined = frozenset(uid for uid in sorted(above) if acks.has_declined(files, uid, above[uid]))
    else:
        declined = acks.marked(files, above, "declines")
    if declined:
        # A decline after the acknowledgement does not count (D1); looked up only here, so the healthy path stays cheap.
        declined -= acks.marked(files, above, "acks")
    if not declined:
        return None
    upstream, _, why = causes(files, above, declined)[0]
    own = document.executions[stage]
    acks.write_decline(
        files,
        DeclineDocument(
            job=document.job,
            checkpoint=own.home,
            epoch=document.epoch,
            stage=stage,
            token=own.token,
            reason=BARRIER,
            detail=one_line(f"{upstream}, which it reads from, has declined: {why}"),
        ),
    )
    return Cancelled(document.checkpoint, document.attempt, upstream, one_line(why))


def causes(
    files: JobFiles, executions: Mapping[str, Execution], declined: Collection[str]
) -> list[tuple[str, Reason, str]]:
    """Give the declined stages by name, each with reason and detail; those that declined by themselves come first."""
    found = [(uid, *(acks.why_declined(files, uid, executions[uid]) or _NO_REASON)) for uid in sorted(declined)]
    return sorted(found, key=lambda each: each[1] is BARRIER)


def describe(found: Iterable[tuple[str, Reason, str]]) -> tuple[str, ...]:
    """Write each cause as a line for people."""
    return tuple(f"{uid}: {why}" for uid, _, why in found)
