"""The protocols `MasterHook` and `CheckpointListener`, by which authors take part in checkpoints, and their checks.

A hook is asked at an epoch's start, and the checkpoint holds the state at the epoch's end. So the hook fixes a resource
for the epoch (such as a range of ids), and answers where the next epoch goes on in it (semantics T7). A listener is
notified of a checkpoint's end (C4, D4). DAG files import this module, so it imports no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ...storage.names import shorten
from ...storage.records import dataclass
from ..errors import InvalidConfigError
from ..validation import check_named

if TYPE_CHECKING:
    from ..documents.strict_json import Json
    from .committables import CheckpointNotice, Committable

DEFAULT_TIMEOUT = timedelta(seconds=60)

MAX_ANSWER_BYTES = 256 * 1024
"""Largest stored answer of one hook: JSON, or bytes in base64."""


@dataclass(frozen=True, slots=True)
class RewindNotice:
    """Checkpoints of a job that no longer count: those after `to`, up to `through`."""

    job: str
    storage: str
    to: int
    """The checkpoint that the job is at again; 0 for its start."""
    through: int


@dataclass(frozen=True, slots=True)
class FailedCheckpoint:
    """A checkpoint that failed, as `MasterHook.trigger` was asked for it."""

    checkpoint: int
    timestamp_ms: int


@runtime_checkable
class MasterHook(Protocol):
    """Takes part in every checkpoint of a job. Derive a class from it and give that a `name`.

    Each method may be called more than once for one epoch, from different processes, because a process may die between
    a call and the write that records it: make all methods idempotent. Each call has its own thread. A call that takes
    longer than `timeout` is abandoned and counts as failed; nothing observes its thread afterwards, so bound the work
    itself too (by a statement timeout, for example). Calls of one hook do not overlap, except that `close` may come
    while an abandoned call still runs.
    """

    @property
    def name(self) -> str:
        """The hook's name in the job, within the grammar of names (semantics W1); its state is kept under it."""

    timeout: timedelta = DEFAULT_TIMEOUT
    """Longest time of each call."""

    def of_job(self, job: str, storage: str) -> MasterHook:  # noqa: ARG002 - a default
        """Return this hook for a job, by its name and the URI of its storage; all calls but `close` go to the result.

        The two together name one job, so a hook may name by them what it makes outside.
        """
        return self

    def trigger(self, checkpoint: int, timestamp_ms: int) -> Json | bytes | None:
        """Fix the epoch's resource, starting from the last `restore` or `reset`.

        Args:
            checkpoint: the pending checkpoint.
            timestamp_ms: its trigger time, milliseconds since 1970 UTC; the same at each call for this checkpoint.

        Returns:
            The hook's state, kept in the checkpoint: JSON or bytes of at most `MAX_ANSWER_BYTES`; None for none.
        """

    def restore(self, checkpoint: int, state: Json | bytes | None) -> None:  # noqa: ARG002 - a default
        """Go back to a completed checkpoint; called before every trigger, because each epoch starts from one.

        Args:
            checkpoint: the restored checkpoint.
            state: this hook's answer for it; None if the hook did not exist then, or answered None.
        """
        return  # a default: without a statement a type checker takes the method for abstract

    def rewound(self, notice: RewindNotice) -> None:  # noqa: ARG002 - a default
        """Take back what was done outside for checkpoints that no longer count (semantics R5).

        Called after `restore` or `reset` and before `trigger`. After a rewind, or after damage because of which an
        older checkpoint is restored, each trigger calls it until an epoch has completed. So it may be called again when
        all is taken back.
        """
        return  # a default

    def discard(self, failed: Sequence[FailedCheckpoint]) -> None:  # noqa: ARG002 - a default
        """Delete what was made outside for checkpoints that failed, and of which no later one can take anything over.

        Called after `trigger`, once an epoch after them has completed, until two others have. An error is only logged.
        What a later attempt of the completed epoch has taken over belongs to the state that `restore` was given; once
        another epoch has completed, attempts of that epoch are left out.

        Args:
            failed: newest first, as far as the job remembers them.
        """
        return  # a default

    def reset(self) -> None:
        """Go back to the beginning: the job starts without a checkpoint (semantics R2)."""
        return  # a default

    def close(self) -> None:
        """Close connections and the like. Called last, also after a failure; its errors are only logged."""
        return  # a default


def check_hooks(hooks: object, max_concurrent: int, within: timedelta | None = None) -> tuple[MasterHook, ...]:
    """Check a job's hooks where the DAG is parsed (semantics S3, T7).

    Args:
        hooks: a list of hooks, or None for none.
        max_concurrent: `max_concurrent_checkpoints` of the job.
        within: the timeout of its checkpoints; None where the hooks are called for no checkpoint.

    Raises:
        InvalidConfigError: an object is not a hook, two have the same name, a timeout is invalid or longer than that of
            the checkpoints, or several epochs may be pending at once.
        InvalidKeyError: a name is outside the grammar (semantics W1).
    """
    if hooks is None:
        return ()
    if not isinstance(hooks, Sequence):
        raise InvalidConfigError("master_hooks must be a list of MasterHooks", master_hooks=shorten(hooks))
    otherwise = "master_hooks must be a list of MasterHooks: derive from MasterHook, and give an object of that class"
    check_named("hook", hooks, MasterHook, otherwise)
    for hook in hooks:
        if not isinstance(hook.timeout, timedelta) or hook.timeout <= timedelta(0):
            raise InvalidConfigError(
                "the timeout of a hook must be a timedelta of more than zero",
                hook=hook.name,
                timeout=shorten(hook.timeout),
            )
        if within is not None and hook.timeout > within:
            raise InvalidConfigError(
                "the timeout of a hook must be at most that of the checkpoint, which expires before: what the hook "
                "answers after that does not count (semantics D2)",
                hook=hook.name,
                timeout=hook.timeout,
                checkpoint_timeout=within,
            )
    if hooks and max_concurrent != 1:
        raise InvalidConfigError(
            "max_concurrent_checkpoints must be 1 with master hooks: what one epoch fixes, the trigger of another "
            "would take back",
            hooks=", ".join(sorted(hook.name for hook in hooks)),
            max_concurrent_checkpoints=max_concurrent,
        )
    return tuple(hooks)


@runtime_checkable
class CheckpointListener(Protocol):
    """Is notified of the end of checkpoints; for example, a sink that commits in two phases.

    Both methods may be called more than once for one checkpoint, and from different processes. If one raises, its
    notice is kept and delivered again; the checkpoint, which has ended, is not affected.
    """

    @property
    def name(self) -> str:
        """The listener's name in the job, within the grammar of names (semantics W1)."""

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        """Commit the staged changes of the checkpoint, `notice.committables`, unless that has been done."""

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Drop the staged changes of the checkpoint; `notice.latest` is the newest completed one."""


@runtime_checkable
class CommitCheck(CheckpointListener, Protocol):
    """A listener that can tell before a checkpoint completes that it could not commit a stage's changes (C4)."""

    def runs_again(self, committables: Sequence[Committable]) -> Mapping[str, str]:
        """Give the stages that have to run again, each with its reason.

        May be called more than once, from different processes.

        Args:
            committables: all that the stages of the pending checkpoint have staged.
        """


def commit_checks(listeners: Sequence[CheckpointListener]) -> tuple[CommitCheck, ...]:
    """Give the listeners that only a task may ask before it completes a checkpoint."""
    return tuple(each for each in listeners if isinstance(each, CommitCheck))


def check_listeners(listeners: object) -> tuple[CheckpointListener, ...]:
    """Check a job's listeners where the DAG is parsed (semantics S3, C4).

    Raises:
        InvalidConfigError: an object is not a listener, or two have the same name.
        InvalidKeyError: a name is outside the grammar (semantics W1).
    """
    if listeners is None:
        return ()
    if not isinstance(listeners, Sequence):
        raise InvalidConfigError("listeners must be a list of CheckpointListeners", listeners=shorten(listeners))
    otherwise = (
        "listeners must be a list of CheckpointListeners: objects with a name, notify_checkpoint_complete and "
        "notify_checkpoint_aborted"
    )
    check_named("listener", listeners, CheckpointListener, otherwise)
    return tuple(listeners)
