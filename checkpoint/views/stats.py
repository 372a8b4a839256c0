"""A job in numbers: counts over its life, distributions over its bounded history, failovers, restores (O1, O2)."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from ...storage.records import dataclass
from ..documents import layout
from ..documents.acknowledgement import OF_ROWS, Output, StateHandle
from ..documents.entries import EndedEntry, Intervention, RestoreRecord, Stopped
from ..documents.head import Head
from ..documents.read_windows import WindowText
from ..reasons import DECLINES, Reason, Status


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of a quantity over the completed checkpoints of the history; each value has occurred."""

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
    """Restart strategy's count for a pending epoch (semantics F4)."""

    checkpoint: int
    """Id of the attempt."""
    run_id: str
    input: WindowText | None
    """As of a failover."""
    restarts: int
    """In a row so far."""
    left: int | None
    """Further failed tries that would lead to a restart; None: any number."""


_MONTH_MS = 730 * 3_600_000
"""A twelfth of a year."""


@dataclass(frozen=True, slots=True)
class StoreCost:
    """Estimated requests to the store by epochs without failures, from the history; Spark's own are not counted."""

    reads: int
    """Requests of an epoch that read an object or ask for its size."""
    writes: int
    """Requests of an epoch that write or list: stores take about twelve times as much for them."""
    epochs_a_month: int
    """By the median time between the triggers of the newest epochs, those of a backfill included."""
    dollars_a_month: float
    """At S3's list price: $0.0004 for a thousand reads, $0.005 for a thousand writes."""


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
    """Written for all checkpoints that ever completed; files of older checkpoints are counted once."""
    waiting: int
    """Requests that wait for their turn."""
    stopped: Stopped | None
    """Why the job refuses requests; None: it takes all."""
    failures_in_a_row: int
    """Counted failures since the newest success (semantics D5)."""
    restarts: tuple[Restarts, ...]
    """Of each pending epoch that has been restarted, or whose restarts have a limit."""
    history: int
    """Ended checkpoints that the distributions and the failovers are taken from; the head keeps the last 100."""
    duration_ms: Distribution | None
    """From the trigger to the completion. None, as for the next three, if nothing in the history has completed."""
    size_bytes: Distribution | None
    """Bytes of all files that the checkpoint names."""
    new_bytes: Distribution | None
    """Bytes of the files that the checkpoint's own executions wrote (incremental size)."""
    acks: Distribution | None
    """Stages that acknowledged."""
    store_cost: StoreCost | None
    """None: fewer than two epochs of the history have completed."""
    failures: dict[str, int]
    """Failed checkpoints of the history by reason."""
    failovers: tuple[Failover, ...]
    """Oldest first."""
    restores: tuple[RestoreRecord, ...]
    """The last 20, oldest first."""
    interventions: tuple[Intervention, ...]
    """The last 20 interventions of known persons, oldest first."""


def stats(head: Head) -> JobStats:
    """Compute a job's numbers from its head alone (semantics O1, O2)."""
    done = [entry for entry in head.history if entry.status is Status.COMPLETED]
    failures: dict[str, int] = {}
    for entry in head.history:
        if entry.reason is not None and not entry.by_pause:
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
        store_cost=_store_cost(done),
        failures=dict(sorted(failures.items())),
        failovers=tuple(_failover(entry) for entry in head.history if _was_failed_over(head, entry)),
        restores=head.restores,
        interventions=head.interventions,
    )


def _store_cost(done: list[EndedEntry]) -> StoreCost | None:
    if len(done) < 2:
        return None
    begun = sorted(entry.triggered_at_ms for entry in done)
    apart = statistics.median(after - before for before, after in pairwise(begun))
    epochs, stages = round(_MONTH_MS / max(apart, 1)), done[-1].stages
    # The reads of the acts are 3 a stage and 4; the others are looks of tasks and drivers.
    reads, writes = 7 * stages + 5, 2 * stages + 6
    return StoreCost(reads, writes, epochs, epochs * (reads * 0.0004 + writes * 0.005) / 1000)


def distribution(values: Iterable[int]) -> Distribution | None:
    """Describe some values; percentiles by nearest rank. None without values."""
    ordered = sorted(values)
    if not ordered:
        return None

    def rank(percent: int) -> int:
        return ordered[math.ceil(percent * len(ordered) / 100) - 1]

    average = sum(ordered) / len(ordered)
    return Distribution(len(ordered), ordered[0], average, rank(50), rank(95), rank(99), ordered[-1])


def _was_failed_over(head: Head, entry: EndedEntry) -> bool:
    """Tell whether a stage's failure ended the attempt and another one followed.

    The task that reports the failed try ends it and opens the next at once. Where `wait_for_checkpoint` sees the
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


# Counts the files of one stage, by output and by subtask, in one pass and in bounded memory (semantics O1).


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output of a stage."""

    kind: str
    name: str
    folder: str
    """Relative to the job's prefix; an older checkpoint's if the stage left it unchanged."""
    files: int = 0
    size_bytes: int = 0
    rows: int | None = None
    """Rows in its files; None if the rows of one file are not known, or the output has no rows."""

    @property
    def of_rows(self) -> bool:
        """Whether the output has rows: a list, a value and raw files have none."""
        return self.kind in OF_ROWS


@dataclass(frozen=True, slots=True)
class SubtaskRow:
    """One subtask of a stage that has acknowledged."""

    index: int
    files: int = 0
    size_bytes: int = 0
    new_bytes: int = 0
    """Bytes of the files that this execution wrote; the rest is referred to."""
    rows: int | None = None
    """Rows in its files; None if the rows of one file are not known, or no output of the stage has rows."""

    @property
    def weight(self) -> tuple[int, int, int]:
        """The order of a list by size: new bytes, then all bytes, then the lower index."""
        return (self.new_bytes, self.size_bytes, -self.index)


class Tally:
    """Counts files that come in the order of their subtasks.

    Args:
        outputs: what the stage names.
        own: the folder of the stage's execution, which has written all files below.
        keep: the number of subtasks to keep a row of: the largest ones.
    """

    def __init__(self, outputs: Iterable[Output], own: str, keep: int) -> None:
        self._outputs = {
            each.id: OutputRow(each.kind, each.name, each.folder, rows=0 if each.kind in OF_ROWS else None)
            for each in outputs
        }
        self._no_rows = 0 if any(each.of_rows for each in self._outputs.values()) else None
        self._own = own
        self._keep = keep
        self._open = SubtaskRow(0, rows=self._no_rows)
        self.new_bytes = 0
        """Bytes of all files so far that the execution wrote itself."""
        self._heap: list[tuple[tuple[int, int, int], SubtaskRow]] = []

    def add(self, subtask: int, handle: StateHandle) -> None:
        """Count one file."""
        self._open_up_to(subtask)
        row = self._outputs.get(handle.output)
        if row is not None:
            self._outputs[handle.output] = replace(
                row,
                files=row.files + 1,
                size_bytes=row.size_bytes + handle.size_bytes,
                rows=handle.rows_with(row.rows),
            )
        new_bytes = handle.size_bytes if handle.path.startswith(self._own) else 0
        self.new_bytes += new_bytes
        self._open = replace(
            self._open,
            files=self._open.files + 1,
            size_bytes=self._open.size_bytes + handle.size_bytes,
            new_bytes=self._open.new_bytes + new_bytes,
            rows=handle.rows_with(self._open.rows),
        )

    def outputs(self) -> tuple[OutputRow, ...]:
        """Give the outputs with what was counted so far."""
        return tuple(self._outputs.values())

    def subtasks(self, parallelism: int) -> tuple[SubtaskRow, ...]:
        """Give the largest subtasks, largest first; to be called once, when every file is counted.

        Args:
            parallelism: how many subtasks there are, those without files included.
        """
        self._open_up_to(parallelism)
        return tuple(row for _, row in sorted(self._heap, key=lambda each: each[0], reverse=True))

    def _open_up_to(self, subtask: int) -> None:
        while self._open.index < subtask:
            self._close()
            self._open = SubtaskRow(self._open.index + 1, rows=self._no_rows)

    def _close(self) -> None:
        item = (self._open.weight, self._open)
        if len(self._heap) < self._keep:
            heapq.heappush(self._heap, item)
        elif self._keep:
            heapq.heappushpop(self._heap, item)
