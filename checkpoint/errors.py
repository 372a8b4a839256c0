"""Errors of the domain; each says which job and checkpoint, what was expected and what to do."""

from __future__ import annotations

from ..storage.errors import CairnError, DocumentError, ErrorKind

__all__ = [
    "AirflowApiError",
    "AirflowApiRefusedError",
    "AlreadyReadError",
    "CallbackError",
    "CheckpointError",
    "CheckpointFailedError",
    "CheckpointNotReadyError",
    "DamagedError",
    "DocumentError",
    "FencedError",
    "InvalidConfigError",
    "InvalidStateError",
    "NoCheckpointError",
    "NoSavepointError",
    "NotTriggeredError",
    "RefusedError",
    "RetryLaterError",
    "UnreachableError",
]


class CheckpointError(CairnError):
    """The class of all errors about checkpoints."""


class InvalidConfigError(CheckpointError):
    """An option, a stage or a request is wrong; found where the DAG is parsed wherever possible (semantics S3)."""

    kind = ErrorKind.INVALID


class NotTriggeredError(InvalidConfigError):
    """The epoch has no attempt that a stage could take up, and only a trigger can open one (semantics T8, T9)."""


class InvalidStateError(CheckpointError):
    """State that cannot be written or restored as asked: a name twice, too large, not JSON."""

    kind = ErrorKind.INVALID


class NoCheckpointError(CheckpointError):
    """A checkpoint was demanded and the job has none that can be restored (semantics R1, R2)."""

    kind = ErrorKind.GONE


class NoSavepointError(CheckpointError):
    """There is no savepoint at this place, or only an incomplete one (semantics P1, C5)."""

    kind = ErrorKind.GONE


class CheckpointFailedError(CheckpointError):
    """The checkpoint or savepoint ended without completing; the text has its failure reason (semantics D1, D2, D5)."""

    kind = ErrorKind.CONFLICT
    incurable = frozenset({"job_failed", "savepoint_impossible", "stages_ended"})


class CheckpointNotReadyError(CheckpointError):
    """The checkpoint was to be completed before every stage had acknowledged; it stays pending (semantics C1)."""

    kind = ErrorKind.CONFLICT


class FencedError(CheckpointError):
    """A newer attempt has replaced this execution; its files are discarded (semantics A2, F3)."""

    kind = ErrorKind.FENCED


class RefusedError(CheckpointError):
    """A request was refused as the job is now, and nothing was changed; the text says what to do first."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class AlreadyReadError(RefusedError):
    """Another run has read the epoch's window since this one was triggered (semantics T8)."""


class RetryLaterError(CheckpointError):
    """The job's state does not allow it now; nothing was changed, and a later try may succeed."""

    kind = ErrorKind.CONFLICT


class CallbackError(CheckpointError):
    """An author's source, master hook or listener failed; the text names it, the step and the cause (T1, T7, C4)."""

    kind = ErrorKind.CONFLICT


class DamagedError(CheckpointError):
    """Stored data of the job is missing or altered: its head, a list of epochs, files of a savepoint (T5, T9, C5)."""

    kind = ErrorKind.DATA


class UnreachableError(CheckpointError):
    """The storage is gone, or a cluster, a Spark server or a secrets backend does not answer; nothing is concluded."""

    kind = ErrorKind.UNAVAILABLE
    incurable = frozenset({"storage_lost"})


class AirflowApiError(CairnError):
    """Airflow's API could not be reached, or its answer cannot be used; trying later may help."""

    kind = ErrorKind.UNAVAILABLE


class AirflowApiRefusedError(AirflowApiError):
    """Airflow's API refuses the login, or the user lacks a right; only another connection or right helps."""

    kind = ErrorKind.FORBIDDEN
    incurable = frozenset({"airflow_refused"})
