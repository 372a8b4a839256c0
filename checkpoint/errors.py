"""Errors of the domain; each says which job and checkpoint, what was expected and what to do."""

from __future__ import annotations

from ..storage.errors import CairnError, DocumentError, ErrorKind

__all__ = [
    "AdoptionRefusedError",
    "AlreadyReadError",
    "CheckpointError",
    "CheckpointFailedError",
    "CheckpointNotReadyError",
    "CompletedEpochsLostError",
    "DagNotPausedError",
    "DocumentError",
    "FencedError",
    "HeadLostError",
    "InvalidConfigError",
    "InvalidStateError",
    "JobFailedError",
    "JobOwnedError",
    "JobPausedError",
    "ListenerError",
    "MasterHookError",
    "NoCheckpointError",
    "NoSavepointError",
    "NonRestoredStateError",
    "NotTriggeredError",
    "ResumeRefusedError",
    "RewindRefusedError",
    "RewoundError",
    "SavepointDamagedError",
    "SavepointRefusedError",
    "SourceMovedError",
    "SourceRefusedError",
    "StorageLostError",
    "TooMuchContentionError",
    "UndeliveredNoticesError",
]


class CheckpointError(CairnError):
    """The class of all errors about checkpoints."""


class InvalidConfigError(CheckpointError):
    """An option, a stage or a request is wrong; found where the DAG is parsed wherever possible (semantics S3)."""

    kind = ErrorKind.INVALID


class NotTriggeredError(InvalidConfigError):
    """The epoch has no attempt that a stage could take up, and only a trigger can open one (semantics T8, T9)."""


class RewoundError(NotTriggeredError):
    """The epoch was rewound after its last attempt; it starts anew where a person asks for that (semantics R5)."""


class JobOwnedError(CheckpointError):
    """The job belongs to another DAG, or to the same DAG of another deployment (semantics W8)."""

    kind = ErrorKind.INVALID


class AdoptionRefusedError(CheckpointError):
    """The job keeps its owner: a checkpoint is pending, or there is no such job; nothing was changed (semantics W8)."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class InvalidStateError(CheckpointError):
    """State that cannot be written or restored as asked: a name twice, too large, not JSON."""

    kind = ErrorKind.INVALID


class AlreadyReadError(CheckpointError):
    """Another run has read the epoch's window since this one was triggered (semantics T8)."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class CompletedEpochsLostError(CheckpointError):
    """A list of completed epochs is lost, so it is unknown whether an epoch has completed (semantics T9)."""

    kind = ErrorKind.DATA


class NonRestoredStateError(CheckpointError):
    """The checkpoint holds state that no stage, hook or source of the job claims (semantics R3)."""

    kind = ErrorKind.INVALID


class NoCheckpointError(CheckpointError):
    """A checkpoint was demanded and the job has none that can be restored (semantics R1, R2)."""

    kind = ErrorKind.GONE


class NoSavepointError(CheckpointError):
    """There is no savepoint at this place, or only an incomplete one (semantics P1, C5)."""

    kind = ErrorKind.GONE


class DagNotPausedError(CheckpointError):
    """The job has stopped, and its savepoint is kept; its DAG could not be paused (semantics P2)."""

    kind = ErrorKind.CONFLICT


class SourceRefusedError(CheckpointError):
    """This run has no input to read; the text says what to do (semantics T8)."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class SourceError(CheckpointError):
    """A source raised, or its answer cannot be stored; the text names source, step and cause (semantics T1, T8)."""

    kind = ErrorKind.CONFLICT


class ResumeRefusedError(CheckpointError):
    """The job was not started from the savepoint: it would lose something without agreement (semantics R5)."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class SavepointDamagedError(CheckpointError):
    """A savepoint cannot be made: its folder, or a file that it has to hold, is not as it should be (P1, C5)."""

    kind = ErrorKind.DATA


class SavepointRefusedError(CheckpointError):
    """A request about a savepoint was refused; nothing was changed (semantics P1, P3)."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class RewindRefusedError(CheckpointError):
    """The job was not rewound: a checkpoint is pending, or it has changed since the caller looked (semantics R5)."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class CheckpointFailedError(CheckpointError):
    """The checkpoint ended without completing; the text carries its failure reason (semantics D1, D2)."""

    kind = ErrorKind.CONFLICT


class JobFailedError(CheckpointFailedError):
    """More checkpoints in a row failed than the job tolerates; the text names the root cause (semantics D5)."""

    retry_cures = False


class JobPausedError(CheckpointError):
    """No attempt of an epoch may begin, because the DAG was paused (semantics S1): unpause it."""

    kind = ErrorKind.CONFLICT


class CheckpointNotReadyError(CheckpointError):
    """The checkpoint was to be completed before every stage had acknowledged; it stays pending (semantics C1)."""

    kind = ErrorKind.CONFLICT


class FencedError(CheckpointError):
    """A newer attempt has replaced this execution; its files are discarded (semantics A2, F3)."""

    kind = ErrorKind.FENCED


class HeadLostError(CheckpointError):
    """`head.json` is missing although checkpoints exist; going on would reuse ids (semantics T5)."""

    kind = ErrorKind.DATA


class TooMuchContentionError(CheckpointError):
    """The head kept changing under this writer until its tries ran out; nothing landed."""

    kind = ErrorKind.CONFLICT


class ListenerError(CheckpointError):
    """A listener failed when it was notified of a checkpoint's end; its notice is kept (semantics C4, D4)."""

    kind = ErrorKind.CONFLICT


class MasterHookError(CheckpointError):
    """A master hook failed, or was not done in time; the text names it and the step (semantics T7)."""

    kind = ErrorKind.CONFLICT


class UndeliveredNoticesError(CheckpointError):
    """Too many notices wait, so no further checkpoint may leave one; none was dropped (semantics C4, D4)."""

    kind = ErrorKind.CONFLICT


class SourceMovedError(CheckpointError):
    """Another epoch completed since this one's input was placed; only a trigger can place it anew (semantics T8)."""

    kind = ErrorKind.CONFLICT
    retry_cures = False


class StorageLostError(CheckpointError):
    """The bucket itself does not exist; nothing is concluded about its former objects (semantics W3)."""

    kind = ErrorKind.UNAVAILABLE
    retry_cures = False
