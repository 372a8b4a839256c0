"""Cairn's metrics: the changes of each swap of a job's head, reported through Airflow's own metrics (`[metrics]`).

There is no race. One process writes a version of the head, and only that process reports the version's changes. If it
dies after its swap and before sending, the metrics are lost, but never doubled. Each swap reports all gauges, so the
next swap corrects a gauge that was lost or came late.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from functools import cache

from ..checkpoint.documents.entries import EndedEntry, RestoreRecord, SavepointEntry
from ..checkpoint.documents.head import Head
from ..checkpoint.reasons import DECLINES, Reason, Status
from ..checkpoint.rules import mirrors
from ..hooks import versions
from ..storage.records import dataclass

# Derives the events of a swap of the head from the version before and the version after.
#
# Each version follows exactly one other, and one process wrote it. Only that process reports these events, so each
# event is reported at most once.


@dataclass(frozen=True, slots=True)
class Happened:
    """The events of one swap."""

    triggered: int
    """Opened attempts, and triggers that failed before their checkpoint had an id."""
    completed: tuple[EndedEntry, ...]
    failed: tuple[EndedEntry, ...]
    """Attempts that ended without completing, for any reason, except those that a pause ended and that go on."""
    failed_triggers: tuple[Reason, ...]
    """The reasons of triggers that failed before their checkpoint had an id (semantics O1)."""
    failovers: int
    """Attempts opened because a stage of the one before had failed, or because the DAG's stages had changed."""
    restores: tuple[RestoreRecord, ...]
    savepoints: tuple[SavepointEntry, ...]
    """Savepoints that have completed or failed."""


def changes_between(old: Head, new: Head) -> Happened:
    """Return the events between one version of the head and the next."""
    known = {entry.id for entry in old.history}
    ended = tuple(entry for entry in new.history if entry.id not in known)
    failed = tuple(entry for entry in ended if entry.status is Status.FAILED and not entry.by_pause)
    # The history does not contain a trigger that failed without an id: only the counter and the declined request show
    # it.
    without_id = new.counters.failed - old.counters.failed - len(failed)
    pending = {entry.epoch for entry in new.pending} - {entry.epoch for entry in old.pending if entry in new.pending}
    restored = new.counters.restored - old.counters.restored
    over = {entry.id for entry in old.savepoints if entry.ended}
    return Happened(
        triggered=new.counters.triggered - old.counters.triggered,
        completed=tuple(entry for entry in ended if entry.status is Status.COMPLETED),
        failed=failed,
        failed_triggers=tuple(each.reason for each in new.declined[-without_id:]) if without_id > 0 else (),
        failovers=sum(_follows_failed_stage(new, epoch) for epoch in pending),
        restores=new.restores[-restored:] if restored > 0 else (),
        savepoints=tuple(entry for entry in new.savepoints if entry.ended and entry.id not in over),
    )


def _follows_failed_stage(head: Head, epoch: str) -> bool:
    """Return whether the epoch's attempt before its pending one ended because a stage had failed."""
    before = next(head.ended_of_epoch(epoch), None)
    return before is not None and (before.reason is Reason.JOB_FAILOVER_REGION or before.reason in DECLINES)


log = logging.getLogger("airflow_cairn")


class Kind(StrEnum):
    """The kind of a metric, in the words of StatsD and Airflow."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; the text below each says what it counts, for `docs/reference/metrics.md` too."""

    name: str
    kind: Kind
    by_reason: bool = False
    """Whether the metric has the tag `reason`, besides `job_name`, which all have."""

    def send(self, job: str, value: int, reason: Reason | None = None) -> None:
        """Send one value to Airflow's metrics; a counter's zero is not sent."""
        # Not `job`: Prometheus uses that label for the source of a value.
        tags = {"job_name": job} | ({"reason": str(reason)} if reason is not None else {})
        if self.kind is Kind.GAUGE:
            versions.metrics().gauge(self.name, value, tags=tags)
        elif self.kind is Kind.TIMER:
            versions.metrics().timing(self.name, value, tags=tags)
        elif value:
            versions.metrics().incr(self.name, value, tags=tags)


TRIGGERED = Metric("cairn.checkpoint.triggered", Kind.COUNTER)
"""Checkpoints that were triggered: each attempt, and each trigger that failed before its checkpoint had an id."""
COMPLETED = Metric("cairn.checkpoint.completed", Kind.COUNTER)
"""Checkpoints that completed."""
FAILED = Metric("cairn.checkpoint.failed", Kind.COUNTER, by_reason=True)
"""Checkpoints that ended otherwise, by reason, in Flink's words. `JOB_FAILOVER_REGION`, `CHECKPOINT_DECLINED…` and
`CHECKPOINT_ASYNC_EXCEPTION` are a stage that failed: `cairn.failovers` counts those that another attempt follows;
`CHECKPOINT_SUBSUMED` and `CHECKPOINT_COORDINATOR_SUSPEND` are not faults."""
ACKNOWLEDGEMENTS = Metric("cairn.checkpoint.acknowledgements", Kind.COUNTER)
"""Stages that acknowledged, of checkpoints that completed."""
NEW_BYTES = Metric("cairn.checkpoint.new_bytes", Kind.COUNTER)
"""Bytes that completed checkpoints wrote; what they only refer to is not counted."""
DURATION = Metric("cairn.checkpoint.duration", Kind.TIMER)
"""From the trigger of the attempt to its completion."""
SIZE = Metric("cairn.checkpoint.size_bytes", Kind.GAUGE)
"""Bytes that the latest completed checkpoint refers to."""
COMPLETED_AT = Metric("cairn.checkpoint.completed_at", Kind.GAUGE)
"""When a checkpoint last completed, in seconds since 1970; a rewind does not turn it back. The time now less this is
the age."""
PENDING = Metric("cairn.checkpoint.pending", Kind.GAUGE)
"""Checkpoints in progress."""
FAILURES_IN_A_ROW = Metric("cairn.checkpoint.failures_in_a_row", Kind.GAUGE)
"""Failures since the last success that count against `tolerable_failed_checkpoints`."""
WAITING = Metric("cairn.requests.waiting", Kind.GAUGE)
"""Runs that wait for a free place."""
FAILOVERS = Metric("cairn.failovers", Kind.COUNTER)
"""Attempts that follow one in which a stage had failed, or that was replaced because the stages of the DAG had
changed."""
RESTORE_DURATION = Metric("cairn.restore.duration", Kind.TIMER)
"""Finding and verifying the checkpoint that an attempt starts from; its count is the number of restores."""
SAVEPOINTS_COMPLETED = Metric("cairn.savepoint.completed", Kind.COUNTER)
"""Savepoints that completed."""
SAVEPOINTS_FAILED = Metric("cairn.savepoint.failed", Kind.COUNTER)
"""Savepoints that failed."""
MIRROR_BEHIND = Metric("cairn.mirror.behind", Kind.GAUGE)
"""Completed checkpoints that the job's mirror lacks; of several mirrors, that of the furthest behind."""
MIRROR_COMPLETED_AT = Metric("cairn.mirror.completed_at", Kind.GAUGE)
"""When the newest checkpoint in the mirror completed, in seconds since 1970. The time now less this is the recovery
point."""

METRICS = (
    TRIGGERED,
    COMPLETED,
    FAILED,
    ACKNOWLEDGEMENTS,
    NEW_BYTES,
    DURATION,
    SIZE,
    COMPLETED_AT,
    PENDING,
    FAILURES_IN_A_ROW,
    WAITING,
    FAILOVERS,
    RESTORE_DURATION,
    SAVEPOINTS_COMPLETED,
    SAVEPOINTS_FAILED,
    MIRROR_BEHIND,
    MIRROR_COMPLETED_AT,
)
"""All metrics, in the order of the documentation."""


@cache
def initialize() -> None:
    """Configure Airflow's metrics for these reports, once in a process, as Airflow's own processes do.

    A task's process has already done so. The triggerer and the API server configure another copy of the same module;
    without this call, nothing would be sent from this copy.
    """
    versions.configure_metrics()


def report(old: Head, new: Head) -> None:
    """Report a swap that this process has won. Errors in sending are logged, and change nothing else."""
    try:
        initialize()
        _events(old, new)
        _gauges(new)
    except Exception:
        log.exception("The metrics of job %s could not be sent", new.job)


def _events(old: Head, new: Head) -> None:
    job, found = new.job, changes_between(old, new)
    TRIGGERED.send(job, found.triggered)
    for entry in found.completed:
        COMPLETED.send(job, 1)
        ACKNOWLEDGEMENTS.send(job, entry.acks)
        NEW_BYTES.send(job, entry.new_bytes)
        DURATION.send(job, entry.ended_at_ms - entry.triggered_at_ms)
    for reason in (*(entry.reason for entry in found.failed), *found.failed_triggers):
        FAILED.send(job, 1, reason)
    FAILOVERS.send(job, found.failovers)
    for restore in found.restores:
        RESTORE_DURATION.send(job, restore.took_ms)
    completed = sum(entry.status is Status.COMPLETED for entry in found.savepoints)
    SAVEPOINTS_COMPLETED.send(job, completed)
    SAVEPOINTS_FAILED.send(job, len(found.savepoints) - completed)


def _gauges(head: Head) -> None:
    latest = head.latest_completed()
    if latest is not None:
        SIZE.send(head.job, latest.size_bytes)
        # After a rewind the job is at an older checkpoint, but it has completed the newer one all the same.
        ends = (entry.ended_at_ms for entry in head.history if entry.status is Status.COMPLETED)
        COMPLETED_AT.send(head.job, max([latest.completed_at_ms, *ends]) // 1000)
    PENDING.send(head.job, len(head.pending))
    FAILURES_IN_A_ROW.send(head.job, head.failures)
    WAITING.send(head.job, len(head.waiting))
    lags = mirrors.lags(head)
    if lags:
        MIRROR_BEHIND.send(head.job, max(each.behind for each in lags))
        MIRROR_COMPLETED_AT.send(head.job, min(each.completed_at_ms or 0 for each in lags) // 1000)
