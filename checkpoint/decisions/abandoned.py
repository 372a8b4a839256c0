"""What is given up for a DAG run that has ended: its place (semantics T2, D2, W8), and the stop that waits for it (P2).

What ends in the head settles a stop in the same swap (`savepoint_entries.settle`). Here is the rest: a trigger that was
refused, and a DAG run that has ended without its epoch. The first is seen by that trigger itself, the second by any
other run of the job, whose trigger the stop holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..answers import Declined, EpochCompleted, InputRefused, TriggerAnswer, Triggered
from ..documents.attempt import Owner, PendingDocument
from ..documents.entries import EndedEntry
from ..documents.head import Head
from ..documents.layout import run_id_of
from ..reasons import Reason
from ..request import TriggerRequest
from . import queue, savepoint_entries, transitions
from .ownership import RunState, is_over
from .transitions import Ending

StateOf = Callable[[Owner], RunState]
"""Tells what this deployment knows of a DAG run that holds a place."""


def always_running(_owner: Owner) -> RunState:
    """Take every DAG run that holds a place to be running still."""
    return RunState.RUNNING


def without_ended(
    head: Head, state_of: StateOf, asks: Owner | None, epoch: str, max_concurrent: int, now_ms: int
) -> Head:
    """Free the places before an epoch whose DAG runs have ended: what is pending ends, what waits leaves the queue.

    Args:
        head: the version decided on; the epoch has no pending attempt in it.
        state_of: tells what is known of a DAG run; of those in the queue it is asked only as far as places are free.
        asks: the DAG run that asks.
        epoch: its epoch.
        max_concurrent: `CheckpointConfig.max_concurrent_checkpoints`.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    for entry in head.pending:
        if entry.owner is not None and is_over(state_of(entry.owner), entry.owner, asks):
            detail = f"its DAG run {entry.owner.run_id} has ended"
            head = transitions.abort(head, entry, Ending(Reason.JOB_FAILURE, detail), now_ms)
    free = max_concurrent - len(head.pending)
    for other in head.waiting:
        if free <= 0 or other.epoch == epoch:
            break
        if other.owner is not None and state_of(other.owner) is not RunState.RUNNING:
            head = replace(head, waiting=queue.leave(head.waiting, other.epoch))
        else:
            free -= 1
    return head


def why_not_begun(answer: TriggerAnswer) -> tuple[Reason, str] | None:
    """Say why no attempt of an epoch follows from what its trigger was answered; None where one does, or may."""
    if isinstance(answer, Triggered):
        return None
    if isinstance(answer, Declined):
        asks_again = answer.position is not None or answer.reason is Reason.TOO_MANY_CHECKPOINT_REQUESTS
        return None if asks_again else (answer.reason, answer.detail)
    if isinstance(answer, EpochCompleted):
        return Reason.TRIGGER_CHECKPOINT_FAILURE, f"it has completed before, in checkpoint {answer.checkpoint}"
    if isinstance(answer, InputRefused):
        return Reason.TRIGGER_CHECKPOINT_FAILURE, f"{answer.source}: {answer.detail}"
    if answer.source:
        return Reason.TRIGGER_CHECKPOINT_FAILURE, f"{answer.source}: {answer.window}"
    return (
        Reason.TRIGGER_CHECKPOINT_FAILURE,
        f"checkpoint {answer.checkpoint} holds its input, {answer.window}, already",
    )


def given_up_where_over(
    head: Head,
    request: TriggerRequest,
    document_of: Callable[[EndedEntry], PendingDocument | None],
    state_of: StateOf,
    now_ms: int,
) -> Head:
    """Fail a stop that keeps a request back and waits for a DAG run that has ended.

    Args:
        head: the version decided on.
        request: what is asked for, by another run of the job.
        document_of: reads what an ended attempt expected; None where that is gone.
        state_of: tells what is known of a DAG run; one that is not known may still be made.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if not head.stops_after(request.epoch):
        # Its attempt may just have ended because that run has; then this request is kept back no more. The one that it
        # waits for is about to open its next attempt.
        head = savepoint_entries.settle(head, now_ms)
    stopping = head.kept_from(request.epoch)
    if stopping is None or not stopping.waits or head.pending_of_epoch(stopping.epoch) is not None:
        return head
    ended = next(head.ended_of_epoch(stopping.epoch), None)
    document = document_of(ended) if ended is not None else None
    owner = document.owner if document is not None else None
    if owner is None and request.owner is not None:
        # The job's last run is one of the same DAG.
        owner = replace(request.owner, run_id=run_id_of(stopping.epoch))
    if owner is None or state_of(owner) is not RunState.ENDED:
        return head
    detail = f"its DAG run {owner.run_id} has ended"
    return savepoint_entries.refused(head, stopping.epoch, Reason.JOB_FAILURE, detail, now_ms)
