"""What may happen to a head, as pure functions: each takes a head and facts and gives the head that follows.

Nothing here reads or writes. A function is called again on a newer head whenever the swap was lost, so each one
recognises what it has already achieved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ..documents.attempt import DocumentRef
from ..documents.entries import (
    CompletedEntry,
    EndedEntry,
    LateAck,
    Notice,
    PendingEntry,
    RestoreRecord,
    RewindRecord,
    Slowest,
    Stopped,
)
from ..documents.head import MAX_HISTORY, MAX_LATE, MAX_OTHERS, MAX_RESTARTED, MAX_RESTORES, MAX_UNFINISHED, Head
from ..documents.read_windows import NOTHING_READ, ReadWindows
from ..documents.text import one_line
from ..failures import counting
from ..reasons import Reason, Status
from . import queue, savepoint_entries, savepoint_waits
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


def give_up_stop(head: Head, detail: str, now_ms: int) -> Head:
    """Let a job go on that is being stopped with a savepoint; that fails (semantics P2)."""
    stopping = head.stopping()
    if stopping is None:
        return head
    failed = savepoint_entries.failed(head, stopping, Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail, now_ms)
    return go_on_undrained(failed, now_ms)


def pause(head: Head, now_ms: int) -> Head:
    """Take no periodic requests, because the DAG is paused (semantics S1): end what is pending, drop what waits.

    What it ends goes on by itself after the pause, and so does an epoch that waits for its next attempt: both have a
    place in the line, so that what they go on from is kept. A job that is shut down stays so.
    """
    if head.stopped is Stopped.SHUTDOWN:
        return head
    begun = tuple(each for each in head.waiting if next(head.ended_of_epoch(each.epoch), None) is not None)
    head = replace(head, waiting=begun, stopped=Stopped.PAUSED)
    for entry in reversed(head.pending):
        ending = Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, "the DAG is paused", paused=True)
        head = _come_back(abort(head, entry, ending, now_ms), entry, now_ms)
    return head


def shut_down(head: Head, now_ms: int) -> Head:
    """Take no request until a person lets the job go on (semantics T1, P2): end what is pending, drop what waits."""
    head = suspend_pending(head, "the job is shut down", now_ms)
    return replace(head, waiting=(), stopped=Stopped.SHUTDOWN)


def unpause(head: Head) -> Head:
    """Take periodic requests again, because the DAG is not paused (semantics S1); nothing else that stops is lifted."""
    return replace(head, stopped=None) if head.stopped is Stopped.PAUSED else head


def suspend_pending(head: Head, detail: str, now_ms: int) -> Head:
    """End everything that is pending, because the job stops or is restored (semantics S1, R5).

    What a pause has ended does not go on by itself then either.
    """
    for entry in head.pending:
        head = abort(head, entry, Ending(Reason.CHECKPOINT_COORDINATOR_SUSPEND, detail), now_ms)
    for ended in head.history:
        if ended.paused:
            gone = replace(ended, paused=False)
            history = tuple(gone if each.id == ended.id else each for each in head.history)
            head = replace(head, history=history)
    return head


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
    opened = savepoint_waits.begun(opened, entry.epoch)
    return opened if restore is None else record_restore(opened, restore)


def record_restore(head: Head, restore: RestoreRecord) -> Head:
    """Note a restore: which checkpoint, when, why, how long (semantics R5)."""
    counters = replace(head.counters, restored=head.counters.restored + 1)
    return replace(head, counters=counters, restores=(*head.restores, restore)[-MAX_RESTORES:])


def abort(head: Head, entry: PendingEntry, ending: Ending, now_ms: int) -> Head:
    """End a pending checkpoint without completing it (semantics D1, D3), and count its failure (D5).

    Where there have been more counted failures in a row than the job tolerates, the job fails: whatever else is
    pending ends too.

    Args:
        head: the version decided on.
        entry: what is to end.
        ending: how.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    weighed = counting.weigh(
        head.failures, ending.reason, entry.tolerable, checkpoint=entry.id, newest_success=head.latest_id()
    )
    ended = replace(
        _ended(entry, Status.FAILED, now_ms, acks=ending.acks),
        reason=ending.reason,
        detail=one_line(ending.detail),
        rejected=ending.rejected,
        others=tuple(one_line(each) for each in ending.others[:MAX_OTHERS]),
        job_failed=weighed.job_fails or ending.for_good,
        for_good=ending.for_good,
        paused=ending.paused,
    )
    counters = replace(head.counters, failed=head.counters.failed + 1)
    after = replace(head, counters=counters, failures=weighed.count)
    if ending.for_good:
        after = replace(after, restart_memory=None)
    after = _notice(_end(after, ended), ended, entry.listeners)
    if not weighed.job_fails:
        return after
    root_cause = f"checkpoint {entry.id}: {ending.reason}: {ending.detail}"
    return fail_job(after, counting.verdict(head.failures + 1, entry.tolerable, root_cause), now_ms)


def subsume(head: Head, entry: PendingEntry, detail: str, now_ms: int, *, acks: int = 0) -> Head:
    """End a pending checkpoint because another epoch has completed; its own is the next of its kind (semantics C2, T2).

    Args:
        head: the version decided on.
        entry: what is to end.
        detail: which one has completed, for people.
        now_ms: the time, milliseconds since 1970 UTC.
        acks: stages that had acknowledged, where they were counted.
    """
    return _come_back(abort(head, entry, Ending(Reason.CHECKPOINT_SUBSUMED, detail, acks), now_ms), entry, now_ms)


def _come_back(head: Head, entry: PendingEntry, now_ms: int) -> Head:
    """Give the epoch of an attempt that has ended, and that goes on by itself, its place in the line."""
    if entry.owner is None:
        return head
    return replace(head, waiting=queue.come_back(head.waiting, entry, entry.owner, now_ms))


def fail_trigger(head: Head, reason: Reason, detail: str, tolerable: int, now_ms: int) -> Head:
    """Count a trigger that failed before its checkpoint got an id (semantics O1, D5); it counts every time.

    It is a checkpoint that was triggered and failed, as one is whose master hooks fail. Against the limit of failures
    in a row it counts only where its reason does.

    Args:
        head: the version decided on.
        reason: why, as Flink calls it.
        detail: why, for people.
        tolerable: counted failures in a row that the job tolerates.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    weighed = counting.weigh(head.failures, reason, tolerable, checkpoint=None, newest_success=head.latest_id())
    counted = head.counters
    counters = replace(counted, triggered=counted.triggered + 1, failed=counted.failed + 1)
    after = replace(head, failures=weighed.count, counters=counters)
    if not weighed.job_fails:
        return after
    return fail_job(after, counting.verdict(head.failures + 1, tolerable, f"{reason}: {detail}"), now_ms)


def fail_job(head: Head, why: str, now_ms: int) -> Head:
    """End what is pending, because the job failed (semantics D5).

    Args:
        head: the version decided on.
        why: names the root cause.
        now_ms: the time, milliseconds since 1970 UTC.
    """
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
        _ended(entry, Status.COMPLETED, now_ms, acks=acks),
        size_bytes=made.size_bytes,
        new_bytes=made.new_bytes,
        left_out=completed.left_out,
        subtasks=made.subtasks,
        slowest=made.slowest,
    )
    counted = head.counters
    counters = replace(counted, completed=counted.completed + 1, new_bytes=counted.new_bytes + made.new_bytes)
    head = _end(replace(head, counters=counters, failures=0), ended)
    sound = tuple(e for e in head.completed if e.id <= (entry.restored_from or 0))
    # A last epoch that has drained the job may have to be undone, if the stop fails (semantics P2): one more is kept.
    kept = max(1, entry.retained) + entry.draining
    head = replace(head, completed=(*sound, completed)[-kept:])
    head = savepoint_waits.completed(head, completed)
    head = _notice(head, ended, entry.listeners, made.metadata if made.committables else None)
    for older in reversed(head.pending):
        if older.id < entry.id:
            head = subsume(head, older, f"checkpoint {entry.id} completed", now_ms)
    return head


def reject(head: Head, ended: EndedEntry, token: str) -> Head:
    """Note that an execution of an ended checkpoint was told `DISCARDED`, so that no later attempt carries it."""
    if token in ended.rejected:
        return head
    noted = replace(ended, rejected=(*ended.rejected, token))
    return replace(head, history=tuple(noted if e.id == ended.id else e for e in head.history))


def note_late(head: Head, checkpoint: int, late: LateAck) -> Head:
    """Note of a failed checkpoint that a stage which had begun in it has acknowledged since (semantics O1)."""
    ended = head.ended_by_id(checkpoint)
    if ended is None or ended.status is not Status.FAILED or len(ended.late) >= MAX_LATE:
        return head
    if any(each.stage == late.stage for each in ended.late):
        return head
    noted = replace(ended, late=(*ended.late, late))
    return replace(head, history=tuple(noted if each.id == ended.id else each for each in head.history))


def note_acks(head: Head, checkpoint: int, acks: int) -> Head:
    """Note of a checkpoint that has ended how many stages had acknowledged by then (semantics O1)."""
    return replace(
        head, history=tuple(replace(each, acks=acks) if each.id == checkpoint else each for each in head.history)
    )


def note_restarted(head: Head, checkpoint: int, stages: Collection[str]) -> Head:
    """Note which stages run again in the attempt that follows an ended one (semantics F1, F2)."""
    names = tuple(sorted(stages)[:MAX_RESTARTED])
    history = tuple(replace(each, restarted=names) if each.id == checkpoint else each for each in head.history)
    return replace(head, history=history) if names else head


def told(head: Head, checkpoint: int, listener: str) -> Head:
    """Take note that a listener has been told how a checkpoint ended; a notice without listeners goes (C4, D4)."""
    notices = (
        replace(each, listeners=tuple(name for name in each.listeners if name != listener))
        if each.checkpoint == checkpoint
        else each
        for each in head.notices
    )
    return replace(head, notices=tuple(each for each in notices if each.listeners))


def bounded(old: Head, new: Head) -> Head:
    """Give `new` with no more history than a head holds; the lowest ids go first (semantics O1).

    Once in a swap, after all that the swap decides. What ends in this very swap stays, so that everybody learns of it;
    there is room, because fewer may be pending at once than the history holds (semantics S3). The last attempt of an
    epoch that waits in the line goes after all others: the next attempt takes over from it (semantics S1, C2).

    Args:
        old: the version decided on.
        new: the version that is to follow.
    """
    excess = len(new.history) - MAX_HISTORY
    if excess <= 0:
        return new
    needed = {newest.id for request in new.waiting if (newest := next(new.ended_of_epoch(request.epoch), None))}
    ids = sorted((entry.id in needed, entry.id) for entry in new.history if old.pending_by_id(entry.id) is None)
    dropped = {each for _, each in ids[:excess]}
    return replace(new, history=tuple(entry for entry in new.history if entry.id not in dropped))


def forgotten(old: Head, new: Head) -> dict[str, int]:
    """Give the completed epochs, each with its checkpoint, that `new` no longer remembers.

    They must be noted elsewhere before `new` is written, or a later trigger would fold their input in twice. What `new`
    rewinds is not forgotten: it is to run again.
    """
    kept = new.completions()
    return {
        epoch: checkpoint
        for epoch, checkpoint in old.completions().items()
        if epoch not in kept and new.rewind_of(checkpoint) is None
    }


def _ended(entry: PendingEntry, status: Status, now_ms: int, *, acks: int) -> EndedEntry:
    return EndedEntry(
        id=entry.id,
        epoch=entry.epoch,
        attempt=entry.attempt,
        token=entry.token,
        status=status,
        triggered_at_ms=entry.triggered_at_ms,
        ended_at_ms=max(now_ms, entry.triggered_at_ms),
        acks=acks,
        stages=entry.stages,
        restored_from=entry.restored_from,
        base=entry.base,
        kind=entry.kind,
        restarts=entry.restarts,
        restart_at_ms=entry.restart_at_ms,
        window=entry.window,
        places=entry.places,
    )


def _end(head: Head, ended: EndedEntry) -> Head:
    pending = tuple(e for e in head.pending if e.id != ended.id)
    return _leave_behind(replace(head, pending=pending, history=(*head.history, ended)))


def _leave_behind(head: Head) -> Head:
    """Mark the attempts for whose epochs nothing is kept any more, because enough others have ended since.

    An epoch that waits in the line goes on however many have. What is marked stays so, and the cleaner builds on that.
    """
    awaited = {each.epoch for each in head.waiting} | {each.epoch for each in head.pending}
    later: set[str] = set()
    history = []
    for each in reversed(head.history):
        newest = each.epoch not in later and each.epoch not in awaited and each.status is not Status.COMPLETED
        left_behind = each.left_behind or (newest and len(later) >= max(MAX_UNFINISHED, each.places))
        history.append(each if left_behind == each.left_behind else replace(each, left_behind=True))
        later.add(each.epoch)
    return replace(head, history=tuple(reversed(history)))


def _notice(head: Head, ended: EndedEntry, listeners: tuple[str, ...], metadata: DocumentRef | None = None) -> Head:
    """Leave a notice in the version of the head that ends the checkpoint, so that neither stands without the other."""
    if not listeners:
        return head
    notice = Notice(
        checkpoint=ended.id,
        epoch=ended.epoch,
        attempt=ended.attempt,
        token=ended.token,
        status=ended.status,
        latest=head.latest_id(),
        listeners=listeners,
        reason=ended.reason,
        detail=ended.detail,
        metadata=metadata,
    )
    return replace(head, notices=tuple(sorted((*head.notices, notice), key=lambda each: each.checkpoint)))
