"""Places that no run will use any more, because the DAG runs that hold them have ended (semantics T2, D2, W8)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..documents.attempt import Owner
from ..documents.head import Head
from ..reasons import Reason
from . import queue, transitions
from .ownership import RunState, is_over

StateOf = Callable[[Owner], RunState]
"""Tells what this deployment knows of a DAG run that holds a place."""


def always_running(_owner: Owner) -> RunState:
    """Take every DAG run that holds a place to be running still."""
    return RunState.RUNNING


def without_ended(
    head: Head, state_of: StateOf, asks: Owner | None, epoch: str, max_concurrent: int, now_ms: int
) -> Head:
    """Free the places before an epoch whose DAG runs have ended: what is pending ends, who waits leaves the line.

    Args:
        head: the version decided on; the epoch has no pending attempt in it.
        state_of: tells what is known of a DAG run; of those in the line it is asked only as far as places are free.
        asks: the DAG run that asks.
        epoch: its epoch.
        max_concurrent: `CheckpointConfig.max_concurrent_checkpoints`.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    for entry in head.pending:
        if entry.owner is not None and is_over(state_of(entry.owner), entry.owner, asks):
            detail = f"its DAG run {entry.owner.run_id} has ended"
            head = transitions.abort(head, entry, Reason.JOB_FAILURE, detail, now_ms)
    free = max_concurrent - len(head.pending)
    for other in head.waiting:
        if free <= 0 or other.epoch == epoch:
            break
        if other.owner is not None and state_of(other.owner) is not RunState.RUNNING:
            head = replace(head, waiting=queue.leave(head.waiting, other.epoch))
        else:
            free -= 1
    return head
