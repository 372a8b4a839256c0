"""A job in numbers: counts over its life, distributions over its bounded history, failovers, restores (O1, O2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..documents import layout
from ..documents.entries import EndedEntry, Intervention, RestoreRecord, Stopped
from ..documents.head import Head
from ..documents.read_windows import WindowText
from ..reasons import DECLINES, Reason, Status


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a quantity was over the completed checkpoints of the history; each value is one that occurred."""

    count: int
    min: int
    avg: float
    p50: int
    p95: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True)
class Failover:
    """One attempt that ended because a stage failed, and was followed by the next."""

    checkpoint: int
    """The attempt that ended."""
    run_id: str
    input: WindowText | None
    """The window of time that the run reads; None: it reads none, or it is not known."""
    attempt: int
    at_ms: int
    root: str
    """The first failure, with its stage."""
    others: tuple[str, ...]
    """Further stages that had failed by then, each with its reason; ten at most."""
    acks: int
    """Stages whose acknowledgements the next attempt could take over."""
    stages: int


@dataclass(frozen=True, slots=True)
class Restarts:
    """What the job's restart strategy has counted of an epoch that is pending (semantics F4)."""

    checkpoint: int
    """Its attempt."""
    run_id: str
    input: WindowText | None
    """As of a failover."""
    restarts: int
    """In a row so far."""
    left: int | None
    """How many more failed tries would be answered by a restart; None: any number."""


@dataclass(frozen=True, slots=True)
class JobStats:
    """One job in numbers."""

    job: str
    triggered: int
    in_progress: int
    completed: int
    failed: int
    restored: int
    total_bytes: int
    """Written for all checkpoints that ever completed, what they only refer to not counted."""
    waiting: int
    """Requests that wait for their turn."""
    stopped: Stopped | None
    """What the job refuses; None: nothing."""
    failures_in_a_row: int
    """Counted failures since the newest success (semantics D5)."""
    restarts: tuple[Restarts, ...]
    """Of the epochs that are pending and have been restarted, or may be only so often."""
    history: int
    """Ended checkpoints that the distributions and the failovers are taken from; the head keeps the last 100."""
    duration_ms: Distribution | None
    """From the trigger to the completion. None, as the next three: nothing in the history has completed."""
    size_bytes: Distribution | None
    """Of all files that the checkpoint names."""
    new_bytes: Distribution | None
    """Of the files that the checkpoint's own executions wrote (incremental size)."""
    acks: Distribution | None
    """Stages that acknowledged."""
    failures: dict[str, int]
    """Failed checkpoints of the history by reason."""
    failovers: tuple[Failover, ...]
    """Oldest first."""
    restores: tuple[RestoreRecord, ...]
    """The last 20, oldest first."""
    interventions: tuple[Intervention, ...]
    """What people had the job do, as far as it is known who: the last 20, oldest first."""


def stats(head: Head) -> JobStats:
    """Compute a job's numbers from its head alone (semantics O1, O2)."""
    done = [entry for entry in head.history if entry.status is Status.COMPLETED]
    failures: dict[str, int] = {}
    for entry in head.history:
        if entry.reason is not None and not entry.paused:
            failures[entry.reason] = failures.get(entry.reason, 0) + 1
    return JobStats(
        job=head.job,
        triggered=head.counters.triggered,
        in_progress=len(head.pending),
        completed=head.counters.completed,
        failed=head.counters.failed,
        restored=head.counters.restored,
        total_bytes=head.counters.new_bytes,
        waiting=len(head.waiting),
        stopped=head.stopped,
        failures_in_a_row=head.failures,
        restarts=tuple(
            Restarts(entry.id, layout.run_id_of(entry.epoch), entry.window, entry.restarts, entry.restarts_left)
            for entry in head.pending
            if entry.restarts or entry.restarts_left is not None
        ),
        history=len(head.history),
        duration_ms=distribution(entry.ended_at_ms - entry.triggered_at_ms for entry in done),
        size_bytes=distribution(entry.size_bytes for entry in done),
        new_bytes=distribution(entry.new_bytes for entry in done),
        acks=distribution(entry.acks for entry in done),
        failures=dict(sorted(failures.items())),
        failovers=tuple(_failover(entry) for entry in head.history if _was_failed_over(head, entry)),
        restores=head.restores,
        interventions=head.interventions,
    )


def distribution(values: Iterable[int]) -> Distribution | None:
    """Describe some values; percentiles by nearest rank. None where there are none."""
    ordered = sorted(values)
    if not ordered:
        return None

    def rank(percent: int) -> int:
        return ordered[math.ceil(percent * len(ordered) / 100) - 1]

    average = sum(ordered) / len(ordered)
    return Distribution(len(ordered), ordered[0], average, rank(50), rank(95), rank(99), ordered[-1])


def _was_failed_over(head: Head, entry: EndedEntry) -> bool:
    """Tell whether a stage's failure ended the attempt and another one followed.

    The task that reports the failed try ends it and opens the next at once. Where the task that waits sees the
    decline first, the attempt ends for the decline's reason, and the next is opened after it.
    """
    if entry.reason is Reason.JOB_FAILOVER_REGION:
        return True
    if entry.reason not in DECLINES:
        return False
    pending = head.pending_of_epoch(entry.epoch)
    return pending is not None or any(each.id > entry.id for each in head.ended_of_epoch(entry.epoch))


def _failover(entry: EndedEntry) -> Failover:
    return Failover(
        checkpoint=entry.id,
        run_id=layout.run_id_of(entry.epoch),
        input=entry.window,
        attempt=entry.attempt,
        at_ms=entry.ended_at_ms,
        root=entry.detail,
        others=entry.others,
        acks=entry.acks,
        stages=entry.stages,
    )
