"""A job that stops, and one that goes on again: what is pending ends, and what waits (semantics S1, P2, R5).

Pure functions, as in `transitions`.
"""

from __future__ import annotations

from dataclasses import replace

from ..documents.entries import RewindRecord, Stopped
from ..documents.head import Head
from ..reasons import Reason, Status
from . import savepoint_entries
from .transitions import Ending, abort, keep_place


def pause(head: Head, now_ms: int) -> Head:
    """Take no periodic requests, because the DAG is paused (semantics S1): end what is pending, drop what waits.

    What it ends goes on by itself after the pause, and so does an epoch that waits for its next attempt: both have a
    place in the queue, so that what they go on from is kept. A job that is shut down stays so.
    """
    if head.stopped is Stopped.SHUTDOWN:
        return head
    begun = tuple(each for each in head.waiting if next(head.ended_of_epoch(each.epoch), None) is not None)
    head = replace(head, waiting=begun, stopped=Stopped.PAUSED)
    for entry in reversed(head.pending):
        ending = Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, "the DAG is paused", paused=True)
        head = keep_place(abort(head, entry, ending, now_ms), entry, now_ms)
    return head


def unpause(head: Head) -> Head:
    """Take periodic requests again, because the DAG is not paused (semantics S1); nothing else that stops is lifted."""
    return replace(head, stopped=None) if head.stopped is Stopped.PAUSED else head


def shut_down(head: Head, now_ms: int) -> Head:
    """Take no request until a person lets the job go on (semantics T1, P2): end what is pending, drop what waits."""
    head = suspend_pending(head, "the job is shut down", now_ms)
    return replace(head, waiting=(), stopped=Stopped.SHUTDOWN)


def suspend_pending(head: Head, detail: str, now_ms: int) -> Head:
    """End everything that is pending, because the job stops or is restored (semantics S1, R5).

    What a pause has ended does not go on by itself then either.
    """
    for entry in head.pending:
        head = abort(head, entry, Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail), now_ms)
    history = tuple(replace(each, paused=False) if each.paused else each for each in head.history)
    return replace(head, history=history)


def give_up_stop(head: Head, detail: str, now_ms: int) -> Head:
    """Let a job go on that is being stopped with a savepoint; that fails (semantics P2)."""
    stopping = head.stopping()
    if stopping is None:
        return head
    failed = savepoint_entries.failed(head, stopping, Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail, now_ms)
    return go_on_undrained(failed, now_ms)


def go_on_undrained(head: Head, now_ms: int) -> Head:
    """Let a job that does not stop after all go on from its last checkpoint that was not drained (semantics P2).

    Its last epoch ends. If that has completed, its checkpoint leaves the store, as by a rewind.
    """
    for each in head.savepoints:
        if each.status is Status.FAILED and savepoint_entries.drained_in_vain(head, each):
            head = _without_newest(head, now_ms)
    for entry in head.pending:
        if entry.draining and not head.drains(entry.epoch):
            detail = "the job was to stop after this epoch, and goes on: its savepoint has failed"
            head = abort(head, entry, Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail), now_ms)
    return head


def _without_newest(head: Head, now_ms: int) -> Head:
    """Go back behind the newest checkpoint: what is pending ends, and its epoch runs again (semantics R5)."""
    newest = head.completed[-1]
    to = head.completed[-2].id if len(head.completed) > 1 else 0
    record = RewindRecord(to, head.next_id - 1, now_ms, drained=newest.id)
    apart = tuple(each for each in head.rewinds if each.to < to)
    head = replace(head, completed=head.completed[:-1], rewinds=(*apart, record))
    return suspend_pending(head, f"{record.said} after its savepoint had failed", now_ms)
