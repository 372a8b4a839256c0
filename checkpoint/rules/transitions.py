"""Transitions of the head, as pure functions: each takes a head and facts and returns the next head.

After a lost swap a transition is applied again to a newer head, so each one recognises its own earlier effect.

The queue of requests that wait for a free place is always in the order of admission: by kind, and within a kind by
arrival. Arrival is the order of swaps, not of clocks, so hosts whose clocks differ cannot overtake each other
(semantics T2).

An attempt computes on its base, the newest checkpoint that had completed when it was opened. Completing it on another
base would lose the epoch that came between. So an overtaken attempt ends with `CHECKPOINT_SUBSUMED`, and its epoch
opens the next attempt on the new base by itself, with its place before other requests of its kind (semantics C2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from ...storage.records import dataclass
from ..documents.attempt import DocumentRef, Handover, Owner, PendingDocument
from ..documents.entries import (
    AttemptEntry,
    CompletedEntry,
    EndedEntry,
    Intervention,
    InterventionKind,
    PendingEntry,
    RestoreRecord,
    RewindRecord,
    Slowest,
    Stopped,
    WaitingRequest,
)
from ..documents.head import MAX_INTERVENTIONS, MAX_OTHERS, MAX_RESTORES, MAX_WAITING, Head
from ..documents.read_windows import NOTHING_READ, ReadWindows
from ..documents.strict_json import common
from ..masking import one_line
from ..reasons import BY_PAUSE, Reason, RequestKind, Status, cause_first
from . import failures, history
from .partial_completion import Without


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a checkpoint that does not complete."""

    reason: Reason
    """Flink's reason."""
    detail: str
    """The reason in words; one line is kept, cut to `MAX_DETAIL` characters."""
    acks: int = 0
    """Number of stages that had acknowledged, if the caller has counted them; otherwise the swap does (`acks`)."""
    rejected: tuple[str, ...] = ()
    """Tokens of executions that no later attempt may carry over."""
    others: Sequence[str] = ()
    """Further stages that had failed, each with its reason; the first `MAX_OTHERS` are kept."""
    for_good: bool = False
    """The job fails, because no other try follows (semantics F4); the restart count starts at zero."""
    paused: bool = False
    """The epoch goes on after the DAG is unpaused (semantics S1), and so does a savepoint that waits for it."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """Contents of a completed checkpoint."""

    metadata: DocumentRef
    size_bytes: int = 0
    """Bytes of all files that the metadata names."""
    tables: dict[str, str] = field(default_factory=dict)
    """Folder of each published table, by name."""
    table_files: dict[str, int] = field(default_factory=dict)
    """Number of files of each published table, by name."""
    new_bytes: int = 0
    """Bytes of the files that the checkpoint's own executions wrote."""
    subtasks: int = 0
    """Number of subtasks that acknowledged, over all stages."""
    slowest: Slowest | None = None
    """The stage that took longest; None where every stage was taken over."""
    committables: bool = False
    """Whether a stage has staged a committable outside the store, so that listeners need the metadata."""
    owing: tuple[str, ...] = ()
    """Stages that took part and have still to read some of their input (semantics B2)."""
    read: ReadWindows = NOTHING_READ
    """The windows of time that the state has read (semantics T8)."""


def expire_one(head: Head, entry: PendingEntry, now_ms: int, *, acks: int = 0, rejected: tuple[str, ...] = ()) -> Head:
    """Abort a checkpoint whose timeout has run out (semantics D2); see `abort`.

    Only `acts.overdue` calls this, because it knows that the checkpoint is not complete.
    """
    after = (entry.expires_at_ms - entry.triggered_at_ms) // 1000
    detail = f"not complete after {after} s"
    return abort(head, entry, Ending(Reason.CHECKPOINT_EXPIRED, detail, acks, rejected), now_ms)


def open_attempt(head: Head, entry: PendingEntry, restore: RestoreRecord | None) -> Head:
    """Make a checkpoint pending under the next id (semantics T5, T6), and record its restore (R5)."""
    counters = replace(head.counters, triggered=head.counters.triggered + 1)
    opened = replace(
        head,
        next_id=entry.id + 1,
        pending=(*head.pending, entry),
        waiting=leave_queue(head.waiting, entry.epoch),
        counters=counters,
    )
    opened = history.savepoints_begun(opened, entry.epoch)
    return opened if restore is None else record_restore(opened, restore)


def record_restore(head: Head, restore: RestoreRecord) -> Head:
    """Add a restore to the head: its checkpoint, time, cause and duration (semantics R5)."""
    counters = replace(head.counters, restored=head.counters.restored + 1)
    return replace(head, counters=counters, restores=(*head.restores, restore)[-MAX_RESTORES:])


def abort(head: Head, entry: PendingEntry, ending: Ending, now_ms: int) -> Head:
    """End a pending checkpoint without completing it (semantics D1, D3), and count its failure (D5).

    If more counted failures in a row have happened than the job tolerates, the job fails: all other pending checkpoints
    end too.
    """
    weighed = failures.count_failure(
        head.failures, ending.reason, entry.tolerable, checkpoint=entry.id, newest_success=head.latest_id()
    )
    ended = replace(
        history.ended_entry(entry, Status.FAILED, now_ms, acks=ending.acks),
        reason=ending.reason,
        detail=one_line(ending.detail),
        rejected=ending.rejected,
        others=tuple(one_line(each) for each in ending.others[:MAX_OTHERS]),
        job_failed=weighed.job_fails or ending.for_good,
        for_good=ending.for_good,
        paused=ending.paused,
    )
    # A pause is not a failure (semantics S1).
    counters = replace(head.counters, failed=head.counters.failed + (not ending.paused))
    after = replace(head, counters=counters, failures=weighed.count)
    if ending.for_good:
        after = replace(after, restart_memory=None)
    after = history.leave_notice(history.end(after, ended), ended, entry.listeners)
    if not weighed.job_fails:
        return after
    root_cause = f"checkpoint {entry.id}: {cause_first(ending.detail, ending.reason)}"
    return fail_job(after, failures.verdict(head.failures + 1, entry.tolerable, root_cause), now_ms)


def subsume(head: Head, entry: PendingEntry, detail: str, now_ms: int, *, acks: int = 0) -> Head:
    """Abort a pending checkpoint because another epoch has completed; its own epoch goes first of its kind (C2, T2)."""
    return keep_place(abort(head, entry, Ending(Reason.CHECKPOINT_SUBSUMED, detail, acks), now_ms), entry, now_ms)


def keep_place(head: Head, entry: PendingEntry, now_ms: int) -> Head:
    """Put an epoch that goes on by itself after its attempt has ended into the queue."""
    if entry.owner is None:
        return head
    return replace(head, waiting=rejoin_queue(head.waiting, entry, entry.owner, now_ms))


def fail_trigger(head: Head, reason: Reason, detail: str, tolerable: int, now_ms: int) -> Head:
    """Count a trigger that failed before its checkpoint got an id (semantics O1, D5), each time that it fails.

    The counters include it as a triggered and failed checkpoint, like one whose master hooks fail. It counts towards
    the limit of failures in a row only if its reason does.
    """
    weighed = failures.count_failure(head.failures, reason, tolerable, checkpoint=None, newest_success=head.latest_id())
    counted = head.counters
    counters = replace(counted, triggered=counted.triggered + 1, failed=counted.failed + 1)
    after = replace(head, failures=weighed.count, counters=counters)
    if not weighed.job_fails:
        return after
    return fail_job(after, failures.verdict(head.failures + 1, tolerable, cause_first(detail, reason)), now_ms)


def fail_job(head: Head, why: str, now_ms: int) -> Head:
    """Abort all pending checkpoints, because the job failed (semantics D5)."""
    for entry in head.pending:
        head = abort(head, entry, Ending(Reason.JOB_FAILURE, why), now_ms)
    return head


def complete(head: Head, entry: PendingEntry, made: Assembled, without: Without, now_ms: int) -> Head:
    """Complete a pending checkpoint, subsume older pending ones and retain the newest (semantics C1 to C3).

    A checkpoint that was bypassed because it is damaged (`restored_from` older than `base`) leaves the store: its state
    has been computed anew. A checkpoint that only leaves out lagging stages does not end a row of regional ones.

    Args:
        head: the version decided on.
        entry: the checkpoint to complete.
        made: its contents.
        without: the stages that it leaves out (semantics B3, F6).
        now_ms: the time, milliseconds since 1970 UTC.
    """
    left_out = without.stages
    before = head.latest_completed()
    in_a_row = before.regional_in_a_row if before is not None and left_out else 0
    acks = entry.stages - len(left_out)
    completed = CompletedEntry(
        **common(entry, AttemptEntry),
        completed_at_ms=max(now_ms, entry.triggered_at_ms),
        metadata=made.metadata,
        acks=acks,
        size_bytes=made.size_bytes,
        replayed=entry.replayed,
        tables=made.tables,
        table_files=made.table_files,
        left_out=tuple(sorted(left_out)),
        regional_in_a_row=in_a_row + bool(without.failed),
        read=made.read,
        owing=tuple(sorted(made.owing)),
    )
    ended = replace(
        history.ended_entry(entry, Status.COMPLETED, now_ms, acks=acks),
        size_bytes=made.size_bytes,
        new_bytes=made.new_bytes,
        left_out=completed.left_out,
        subtasks=made.subtasks,
        slowest=made.slowest,
    )
    counted = head.counters
    counters = replace(counted, completed=counted.completed + 1, new_bytes=counted.new_bytes + made.new_bytes)
    head = history.end(replace(head, counters=counters, failures=0), ended)
    sound = tuple(e for e in head.completed if e.id <= (entry.restored_from or 0))
    # If the stop fails, a last epoch that has drained the job is undone (semantics P2): one more checkpoint is kept.
    kept = max(1, entry.retained) + entry.draining
    head = replace(head, completed=(*sound, completed)[-kept:])
    head = history.give_savepoints(head, completed)
    head = history.leave_notice(head, ended, entry.listeners, made.metadata if made.committables else None)
    for older in reversed(head.pending):
        if older.id < entry.id:
            head = subsume(head, older, f"checkpoint {entry.id} completed", now_ms)
    return head


def done_by(
    actor: str, kind: InterventionKind, old: Head, new: Head, now_ms: int, checkpoint: int | None = None
) -> Head:
    """Add a record of a person's intervention to the head that follows it, in the same swap (semantics O1).

    Args:
        actor: the person; empty where unknown: then nothing is recorded.
        kind: of the intervention.
        old: the head before; if `new` equals it, nothing is recorded.
        new: the head after.
        now_ms: the time, milliseconds since 1970 UTC.
        checkpoint: the one that the person named.
    """
    if not actor or new == old:
        return new
    record = Intervention(kind, one_line(actor), now_ms, checkpoint)
    return replace(new, interventions=(*new.interventions, record)[-MAX_INTERVENTIONS:])


# Stopping a job, and letting it go on again (semantics S1, P2, R5).


def pause(head: Head, now_ms: int) -> Head:
    """Stop periodic requests because the DAG is paused (semantics S1): abort pending ones, drop waiting requests.

    Aborted epochs, and those that wait for their next attempt, go on by themselves after the pause. Both keep a place
    in the queue, so that the cleaner keeps their executions. A job that is shut down stays so.
    """
    if head.stopped is Stopped.SHUTDOWN:
        return head
    begun = tuple(each for each in head.waiting if next(head.ended_of_epoch(each.epoch), None) is not None)
    head = replace(head, waiting=begun, stopped=Stopped.PAUSED)
    for entry in reversed(head.pending):
        ending = Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, BY_PAUSE, paused=True)
        head = keep_place(abort(head, entry, ending, now_ms), entry, now_ms)
    return head


def unpause(head: Head) -> Head:
    """Take periodic requests again because the DAG is unpaused; a shutdown stays in force (semantics S1)."""
    return replace(head, stopped=None) if head.stopped is Stopped.PAUSED else head


def shut_down(head: Head, now_ms: int) -> Head:
    """Take no requests until a person resumes the job (T1, P2): abort pending checkpoints, drop waiting requests."""
    head = suspend_pending(head, "the job is shut down", now_ms)
    return replace(head, waiting=(), stopped=Stopped.SHUTDOWN)


def suspend_pending(head: Head, detail: str, now_ms: int) -> Head:
    """Abort all pending checkpoints, because the job stops or is restored (semantics S1, R5).

    Epochs that a pause has aborted do not go on by themselves any more either.
    """
    for entry in head.pending:
        head = abort(head, entry, Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail), now_ms)
    history = tuple(replace(each, paused=False) if each.paused else each for each in head.history)
    return replace(head, history=history)


def give_up_stop(head: Head, detail: str, now_ms: int) -> Head:
    """Give up a stop with a savepoint: the savepoint fails and the job goes on (semantics P2)."""
    stopping = head.stopping()
    if stopping is None:
        return head
    failed = history.savepoint_failed(head, stopping, Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail, now_ms)
    return go_on_undrained(failed, now_ms)


def go_on_undrained(head: Head, now_ms: int) -> Head:
    """Let a job whose stop has failed go on from its last checkpoint that was not drained (semantics P2).

    The draining epoch is aborted. If it has completed, its checkpoint leaves the store, as by a rewind.
    """
    for each in head.savepoints:
        if each.status is Status.FAILED and history.drained_in_vain(head, each):
            head = _without_newest(head, now_ms)
    for entry in head.pending:
        if entry.draining and not head.drains(entry.epoch):
            detail = "the job was to stop after this epoch, and goes on: its savepoint has failed"
            head = abort(head, entry, Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail), now_ms)
    return head


def _without_newest(head: Head, now_ms: int) -> Head:
    """Drop the newest checkpoint, whose epoch runs again, and abort pending ones (semantics R5)."""
    newest = head.completed[-1]
    to = head.completed[-2].id if len(head.completed) > 1 else 0
    record = RewindRecord(to, head.next_id - 1, now_ms, drained=newest.id)
    apart = tuple(each for each in head.rewinds if each.to < to)
    head = replace(head, completed=head.completed[:-1], rewinds=(*apart, record))
    return suspend_pending(head, f"{record.said} after its savepoint had failed", now_ms)


def has_place(waiting: tuple[WaitingRequest, ...], epoch: str) -> bool:
    """Tell whether the epoch has a place in the queue."""
    return any(each.epoch == epoch for each in waiting)


def place_of(waiting: tuple[WaitingRequest, ...], epoch: str) -> int:
    """Give the epoch's 1-based place; it must have one."""
    return 1 + [each.epoch for each in waiting].index(epoch)


def join_queue(waiting: tuple[WaitingRequest, ...], request: WaitingRequest) -> tuple[WaitingRequest, ...] | None:
    """Take a place; a request that has one keeps it, unless it asks again as another kind.

    A full queue drops its last periodic request. If that would be the new one, or there is none, the new one is refused
    (semantics T2). A dropped request finds out when it asks again, and may then join again.

    Returns:
        The queue with the request in it, or None if the request is refused.
    """
    if any(each.epoch == request.epoch and each.kind is request.kind for each in waiting):
        return waiting
    others = leave_queue(waiting, request.epoch)
    behind = next((i for i, each in enumerate(others) if each.kind.rank > request.kind.rank), len(others))
    joined = (*others[:behind], request, *others[behind:])
    if len(joined) <= MAX_WAITING:
        return joined
    last = next((each for each in reversed(joined) if each.kind is RequestKind.PERIODIC), None)
    return None if last is None or last.epoch == request.epoch else leave_queue(joined, last.epoch)


def rejoin_queue(
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
    if has_place(waiting, attempt.epoch):
        return waiting
    place = WaitingRequest(attempt.epoch, attempt.kind or RequestKind.MANUAL, now_ms, owner, attempt.window)
    before = next((i for i, each in enumerate(waiting) if each.kind.rank >= place.kind.rank), len(waiting))
    joined = (*waiting[:before], place, *waiting[before:])
    if len(joined) <= MAX_WAITING:
        return joined
    last = next((each for each in reversed(joined) if each.kind is RequestKind.PERIODIC), place)
    return joined if last.epoch == place.epoch else leave_queue(joined, last.epoch)


def leave_queue(waiting: tuple[WaitingRequest, ...], epoch: str) -> tuple[WaitingRequest, ...]:
    """Give up the epoch's place, if it has one."""
    return tuple(each for each in waiting if each.epoch != epoch)


def why_overtaken(head: Head, entry: PendingEntry) -> str | None:
    """Say that a checkpoint can no longer complete, as it lacks a newer one's epoch; None if it can complete."""
    if head.latest_id() == entry.base:
        return None
    return f"checkpoint {head.latest_id() or 0} completed after this one had started from {entry.base or 0}"


def end_overtaken(head: Head, now_ms: int) -> Head:
    """End every overtaken attempt; its epoch gets the next free place of its kind (T2)."""
    for entry in reversed(head.pending):
        detail = why_overtaken(head, entry)
        if detail is not None:
            head = subsume(head, entry, detail, now_ms)
    return head


def needs_trigger(head: Head, last: EndedEntry, document: PendingDocument) -> bool:
    """Tell whether only the task that triggers can open an epoch's next attempt.

    On another base the sources' positions have to be worked out again (T8), and the hooks asked again (T7).
    """
    moved = document.slice.base is not None and document.slice.base != (head.latest_id() or 0)
    return moved or (bool(document.hook_names) and last.base != head.latest_id())


def was_overtaken(head: Head, handover: Handover) -> bool:
    """Tell whether an execution no longer counts because its epoch was overtaken, rather than its stage failed."""
    entry = head.pending_of_epoch(handover.epoch)
    if entry is not None and why_overtaken(head, entry) is not None:
        return True
    # No later attempt carries over executions of an overtaken one, so an overtaken attempt since then proves it.
    return any(each.overtaken for each in head.ended_of_epoch(handover.epoch) if each.id >= handover.checkpoint)
