"""What may happen to a head, as pure functions: each takes a head and facts and gives the head that follows.

Nothing here reads or writes. A function is called again on a newer head whenever the swap was lost, so each one
recognises what it has already achieved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..documents.attempt import DocumentRef
from ..documents.entries import (
    CompletedEntry,
    Intervention,
    InterventionKind,
    PendingEntry,
    RestoreRecord,
    Slowest,
)
from ..documents.head import MAX_INTERVENTIONS, MAX_OTHERS, MAX_RESTORES, Head
from ..documents.read_windows import NOTHING_READ, ReadWindows
from ..documents.text import one_line
from ..failures import counting
from ..reasons import Reason, Status
from . import history, queue, savepoint_entries
from .partial_completion import Without


@dataclass(frozen=True, slots=True)
class Ending:
    """How a checkpoint ends that does not complete."""

    reason: Reason
    """Why, as Flink calls it."""
    detail: str
    """Why, for people; one line of it is kept, cut to `MAX_DETAIL` characters."""
    acks: int = 0
    """Stages that had acknowledged, where they were counted; otherwise the swap counts them (`ended_acks`)."""
    rejected: tuple[str, ...] = ()
    """Tokens of executions that no later attempt may carry over."""
    others: Sequence[str] = ()
    """Further stages that had failed, each with its reason; the first `MAX_OTHERS` are kept."""
    for_good: bool = False
    """The job fails with it, because no other try follows (semantics F4); its count of restarts starts anew."""
    paused: bool = False
    """Its epoch goes on when the DAG is no longer paused (semantics S1), and so does a savepoint that waits."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a completed checkpoint holds."""

    metadata: DocumentRef
    size_bytes: int = 0
    """Of all files that the metadata names."""
    tables: dict[str, str] = field(default_factory=dict)
    """The folder of each published table, by its name."""
    table_files: dict[str, int] = field(default_factory=dict)
    """By table, how many files its folder has."""
    new_bytes: int = 0
    """Of the files that the checkpoint's own executions wrote."""
    subtasks: int = 0
    """That acknowledged, over all stages."""
    slowest: Slowest | None = None
    """The stage that it waited for longest; None where every stage was taken over."""
    committables: bool = False
    """Whether a stage has staged something outside, so that who listens needs the metadata."""
    owing: tuple[str, ...] = ()
    """Stages that took part and have still to read some of their input (semantics B2)."""
    read: ReadWindows = NOTHING_READ
    """The windows of time that its state has read (semantics T8)."""


def expire_one(head: Head, entry: PendingEntry, now_ms: int, *, acks: int = 0, rejected: tuple[str, ...] = ()) -> Head:
    """End a checkpoint because its timeout has run out, and it is not complete (semantics D2); see `abort`.

    Only `completion.settle` knows whether it is.
    """
    after = (entry.expires_at_ms - entry.triggered_at_ms) // 1000
    detail = f"not complete after {after} s"
    return abort(head, entry, Ending(Reason.CHECKPOINT_EXPIRED, detail, acks, rejected), now_ms)


def open_attempt(head: Head, entry: PendingEntry, restore: RestoreRecord | None) -> Head:
    """Make a checkpoint pending under the next id (semantics T5, T6), and record what it restores (R5)."""
    counters = replace(head.counters, triggered=head.counters.triggered + 1)
    opened = replace(
        head,
        next_id=entry.id + 1,
        pending=(*head.pending, entry),
        waiting=queue.leave(head.waiting, entry.epoch),
        counters=counters,
    )
    opened = savepoint_entries.begun(opened, entry.epoch)
    return opened if restore is None else record_restore(opened, restore)


def record_restore(head: Head, restore: RestoreRecord) -> Head:
    """Note a restore: which checkpoint, when, why, how long (semantics R5)."""
    counters = replace(head.counters, restored=head.counters.restored + 1)
    return replace(head, counters=counters, restores=(*head.restores, restore)[-MAX_RESTORES:])


def abort(head: Head, entry: PendingEntry, ending: Ending, now_ms: int) -> Head:
    """End a pending checkpoint without completing it (semantics D1, D3), and count its failure (D5).

    Where there have been more counted failures in a row than the job tolerates, the job fails: whatever else is
    pending ends too.
    """
    weighed = counting.weigh(
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
    # semantics S1: a pause is no failure.
    counters = replace(head.counters, failed=head.counters.failed + (not ending.paused))
    after = replace(head, counters=counters, failures=weighed.count)
    if ending.for_good:
        after = replace(after, restart_memory=None)
    after = history.leave_notice(history.end(after, ended), ended, entry.listeners)
    if not weighed.job_fails:
        return after
    root_cause = f"checkpoint {entry.id}: {ending.reason}: {ending.detail}"
    return fail_job(after, counting.verdict(head.failures + 1, entry.tolerable, root_cause), now_ms)


def subsume(head: Head, entry: PendingEntry, detail: str, now_ms: int, *, acks: int = 0) -> Head:
    """End a pending checkpoint because another epoch has completed; its own is the next of its kind (C2, T2)."""
    return keep_place(abort(head, entry, Ending(Reason.CHECKPOINT_SUBSUMED, detail, acks), now_ms), entry, now_ms)


def keep_place(head: Head, entry: PendingEntry, now_ms: int) -> Head:
    """Give the epoch of an attempt that has ended, and that goes on by itself, its place in the queue."""
    if entry.owner is None:
        return head
    return replace(head, waiting=queue.rejoin(head.waiting, entry, entry.owner, now_ms))


def fail_trigger(head: Head, reason: Reason, detail: str, tolerable: int, now_ms: int) -> Head:
    """Count a trigger that failed before its checkpoint got an id (semantics O1, D5); it counts every time.

    It is a checkpoint that was triggered and failed, as one is whose master hooks fail. Against the limit of failures
    in a row it counts only where its reason does.
    """
    weighed = counting.weigh(head.failures, reason, tolerable, checkpoint=None, newest_success=head.latest_id())
    counted = head.counters
    counters = replace(counted, triggered=counted.triggered + 1, failed=counted.failed + 1)
    after = replace(head, failures=weighed.count, counters=counters)
    if not weighed.job_fails:
        return after
    return fail_job(after, counting.verdict(head.failures + 1, tolerable, f"{reason}: {detail}"), now_ms)


def fail_job(head: Head, why: str, now_ms: int) -> Head:
    """End what is pending, because the job failed (semantics D5)."""
    for entry in head.pending:
        head = abort(head, entry, Ending(Reason.JOB_FAILURE, why), now_ms)
    return head


def complete(head: Head, entry: PendingEntry, made: Assembled, without: Without, now_ms: int) -> Head:
    """Complete a pending checkpoint, subsume older pending ones and retain the newest (semantics C1 to C3).

    A checkpoint that was bypassed because it is damaged (`restored_from` older than `base`) leaves the store: what it
    held has been made anew. One that only leaves out stages that lag ends no row of regional ones.

    Args:
        head: the version decided on.
        entry: what is to complete.
        made: what it holds.
        without: the stages that it completes without (semantics B3, F6).
        now_ms: the time, milliseconds since 1970 UTC.
    """
    left_out = without.stages
    before = head.latest_completed()
    in_a_row = before.regional_in_a_row if before is not None and left_out else 0
    acks = entry.stages - len(left_out)
    completed = CompletedEntry(
        id=entry.id,
        epoch=entry.epoch,
        attempt=entry.attempt,
        token=entry.token,
        triggered_at_ms=entry.triggered_at_ms,
        completed_at_ms=max(now_ms, entry.triggered_at_ms),
        metadata=made.metadata,
        acks=acks,
        size_bytes=made.size_bytes,
        restored_from=entry.restored_from,
        replayed=entry.replayed,
        tables=made.tables,
        table_files=made.table_files,
        left_out=tuple(sorted(left_out)),
        regional_in_a_row=in_a_row + bool(without.failed),
        read=made.read,
        owing=tuple(sorted(made.owing)),
        window=entry.window,
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
    # A last epoch that has drained the job may have to be undone, if the stop fails (semantics P2): one more is kept.
    kept = max(1, entry.retained) + entry.draining
    head = replace(head, completed=(*sound, completed)[-kept:])
    head = savepoint_entries.completed(head, completed)
    head = history.leave_notice(head, ended, entry.listeners, made.metadata if made.committables else None)
    for older in reversed(head.pending):
        if older.id < entry.id:
            head = subsume(head, older, f"checkpoint {entry.id} completed", now_ms)
    return head


def done_by(
    actor: str, kind: InterventionKind, old: Head, new: Head, now_ms: int, checkpoint: int | None = None
) -> Head:
    """Give the head that follows what a person wanted, with a record of it in the same swap (semantics O1).

    Args:
        actor: who wanted it; empty where that is not known: then nothing is recorded.
        kind: what it was.
        old: the head before; where nothing has changed since, nothing is recorded either.
        new: the head after.
        now_ms: the time, milliseconds since 1970 UTC.
        checkpoint: the one that was named.
    """
    if not actor or new == old:
        return new
    record = Intervention(kind, one_line(actor), now_ms, checkpoint)
    return replace(new, interventions=(*new.interventions, record)[-MAX_INTERVENTIONS:])
