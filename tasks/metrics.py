"""Cairn's metrics: what each swap of a job's head has changed, through Airflow's own metrics (`[metrics]`).

There is no race. A version of the head is written by one process, and only that one reports what the version changed. A
process that dies after its swap and before the packets has reported nothing, so a metric may be lost and is never
doubled. Each swap reports all gauges, so one that was lost or came late is mended by the next swap.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from ..checkpoint.documents.head import Head
from ..checkpoint.reasons import Reason, Status
from ..checkpoint.views import happened
from ..hooks.versions import metrics as airflow_metrics

log = logging.getLogger("airflow_cairn")


class Kind(StrEnum):
    """What a metric is, as StatsD and Airflow call it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `docs/reference/metrics.md` says what it means."""

    name: str
    kind: Kind
    by_reason: bool = False
    """Whether it has the tag `reason`, beside `job_name`, which all have."""

    def send(self, job: str, value: int, reason: Reason | None = None) -> None:
        """Give one value to Airflow's metrics; a counter that counts nothing is not sent."""
        # Not `job`: that is Prometheus' own label for where a value was read.
        tags = {"job_name": job} | ({"reason": str(reason)} if reason is not None else {})
        if self.kind is Kind.GAUGE:
            airflow_metrics.sink.gauge(self.name, value, tags=tags)
        elif self.kind is Kind.TIMER:
            airflow_metrics.sink.timing(self.name, value, tags=tags)
        elif value:
            airflow_metrics.sink.incr(self.name, value, tags=tags)


TRIGGERED = Metric("cairn.checkpoint.triggered", Kind.COUNTER)
COMPLETED = Metric("cairn.checkpoint.completed", Kind.COUNTER)
FAILED = Metric("cairn.checkpoint.failed", Kind.COUNTER, by_reason=True)
ACKNOWLEDGEMENTS = Metric("cairn.checkpoint.acknowledgements", Kind.COUNTER)
NEW_BYTES = Metric("cairn.checkpoint.new_bytes", Kind.COUNTER)
DURATION = Metric("cairn.checkpoint.duration", Kind.TIMER)
SIZE = Metric("cairn.checkpoint.size_bytes", Kind.GAUGE)
COMPLETED_AT = Metric("cairn.checkpoint.completed_at", Kind.GAUGE)
PENDING = Metric("cairn.checkpoint.pending", Kind.GAUGE)
FAILURES_IN_A_ROW = Metric("cairn.checkpoint.failures_in_a_row", Kind.GAUGE)
WAITING = Metric("cairn.requests.waiting", Kind.GAUGE)
FAILOVERS = Metric("cairn.failovers", Kind.COUNTER)
RESTORE_DURATION = Metric("cairn.restore.duration", Kind.TIMER)
SAVEPOINTS_COMPLETED = Metric("cairn.savepoint.completed", Kind.COUNTER)
SAVEPOINTS_FAILED = Metric("cairn.savepoint.failed", Kind.COUNTER)

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
)
"""All that there are, in the order of the documentation."""


@cache
def initialize() -> None:
    """Configure Airflow's metrics for what is reported here, once in a process, as Airflow's own processes do.

    A task's process has done so itself. The triggerer and the API server configure another copy of the same module,
    and of this one nothing would be sent.
    """
    airflow_metrics.configure()


def report(old: Head, new: Head) -> None:
    """Report a swap that this process has won. Metrics that cannot be sent are logged, and change nothing else.

    Args:
        old: the version that was decided on.
        new: the version that took its place.
    """
    try:
        initialize()
        _events(old, new)
        _gauges(new)
    except Exception:
        log.exception("the metrics of job %s could not be sent", new.job)


def _events(old: Head, new: Head) -> None:
    job, found = new.job, happened.between(old, new)
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
        # A rewind goes back to an older checkpoint, and the job has completed the newer one all the same.
        ends = (entry.ended_at_ms for entry in head.history if entry.status is Status.COMPLETED)
        COMPLETED_AT.send(head.job, max(latest.completed_at_ms, *ends) // 1000)
    PENDING.send(head.job, len(head.pending))
    FAILURES_IN_A_ROW.send(head.job, head.failures)
    WAITING.send(head.job, len(head.waiting))
