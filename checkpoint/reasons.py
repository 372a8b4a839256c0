"""Statuses and failure reasons, by Flink's names, and their consequences."""

from __future__ import annotations

import re

from ..storage.older_pythons import StrEnum

_VERDICT = re.compile(r"no retry cures |\w+Restart allows ")


class Status(StrEnum):
    """Status of a checkpoint. A checkpoint leaves `PENDING` once and never returns to it (semantics D3)."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Reason(StrEnum):
    """Why a checkpoint was not triggered, or ended without completing."""

    # Pre-flight: the request was declined, in the order of the checks (semantics T1).
    CHECKPOINT_COORDINATOR_SHUTDOWN = "CHECKPOINT_COORDINATOR_SHUTDOWN"
    PERIODIC_SCHEDULER_SHUTDOWN = "PERIODIC_SCHEDULER_SHUTDOWN"
    ALREADY_QUEUED = "ALREADY_QUEUED"
    TOO_MANY_CHECKPOINT_REQUESTS = "TOO_MANY_CHECKPOINT_REQUESTS"
    TOO_MANY_CONCURRENT_CHECKPOINTS = "TOO_MANY_CONCURRENT_CHECKPOINTS"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "MINIMUM_TIME_BETWEEN_CHECKPOINTS"
    IO_EXCEPTION = "IO_EXCEPTION"
    TRIGGER_CHECKPOINT_FAILURE = "TRIGGER_CHECKPOINT_FAILURE"

    # Declined by a stage (semantics D1).
    CHECKPOINT_DECLINED = "CHECKPOINT_DECLINED"
    CHECKPOINT_DECLINED_TASK_CLOSING = "CHECKPOINT_DECLINED_TASK_CLOSING"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER"
    CHECKPOINT_ASYNC_EXCEPTION = "CHECKPOINT_ASYNC_EXCEPTION"

    # Ended from outside.
    CHECKPOINT_EXPIRED = "CHECKPOINT_EXPIRED"
    CHECKPOINT_SUBSUMED = "CHECKPOINT_SUBSUMED"
    CHECKPOINT_COORDINATOR_SUSPEND = "CHECKPOINT_COORDINATOR_SUSPEND"
    JOB_FAILURE = "JOB_FAILURE"
    JOB_FAILOVER_REGION = "JOB_FAILOVER_REGION"
    FINALIZE_CHECKPOINT_FAILURE = "FINALIZE_CHECKPOINT_FAILURE"

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """Read a reason of version 0.1 that no part of Cairn gives any more as the one that replaces it."""
        return {
            "NOT_ALL_REQUIRED_TASKS_RUNNING": cls.TRIGGER_CHECKPOINT_FAILURE,
            "CHECKPOINT_DECLINED_TASK_NOT_READY": cls.CHECKPOINT_DECLINED,
            "CHECKPOINT_DECLINED_INPUT_END_OF_STREAM": cls.CHECKPOINT_DECLINED,
        }.get(str(value))


class RequestKind(StrEnum):
    """Kind of a request; kinds are admitted in this order (semantics T2)."""

    MANUAL = "manual"
    """A user: ignores the pause (semantics T3)."""
    PERIODIC = "periodic"
    """A schedule."""

    @property
    def rank(self) -> int:
        """0 is admitted first."""
        return list(RequestKind).index(self)

    @classmethod
    def _missing_(cls, value: object) -> RequestKind | None:
        """Read the other kinds of version 0.1, which were manual too."""
        return cls.MANUAL if value in ("savepoint", "forced") else None


DECLINES = frozenset(
    {
        Reason.CHECKPOINT_DECLINED,
        Reason.CHECKPOINT_DECLINED_TASK_CLOSING,
        Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER,
        Reason.CHECKPOINT_ASYNC_EXCEPTION,
        Reason.IO_EXCEPTION,
    }
)
"""Reasons that a stage may give when it declines (semantics D1)."""


class AckAnswer(StrEnum):
    """The answer to a stage's acknowledgement (semantics A2)."""

    SUCCESS = "SUCCESS"
    """The first from an expected execution: it counts."""
    DUPLICATE = "DUPLICATE"
    """The same execution has acknowledged before: the first one stays, and the cleaner takes this one's state."""
    UNKNOWN = "UNKNOWN"
    """The stage or execution was never expected; its state is deleted."""
    DISCARDED = "DISCARDED"
    """The checkpoint is no longer pending for this execution; its state is deleted."""


COUNTED = frozenset(
    {
        Reason.CHECKPOINT_DECLINED,
        Reason.CHECKPOINT_ASYNC_EXCEPTION,
        Reason.CHECKPOINT_EXPIRED,
        Reason.IO_EXCEPTION,
    }
)
"""Failures that say that checkpoints themselves do not work. A failed task is its own retry's business, and what was
declined before it began, superseded or stopped is not a failure of a checkpoint."""


BY_PAUSE = "the DAG is paused"
"""The detail of an attempt that a pause has ended."""


def cause_and_verdict(detail: str) -> tuple[str, str]:
    """Take apart why a checkpoint failed: what happened, and why no restart followed; empty: one did (semantics F4)."""
    verdict, apart, cause = detail.partition(": ")
    return (cause, verdict) if apart and _VERDICT.match(verdict) else (detail, "")


def cause_first(detail: str, reason: str | None = None) -> str:
    """Put the cause of a failure first; why no restart followed, and Flink's name of the reason, follow in brackets."""
    cause, verdict = cause_and_verdict(detail)
    behind = "; ".join(each for each in (verdict, reason) if each)
    return f"{cause} ({behind})" if cause and behind else cause or behind
