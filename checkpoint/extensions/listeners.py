"""What a checkpoint listener is, and the check of those that a DAG names; `notices` calls them (semantics C4, D4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ...storage.names import shorten
from ..errors import InvalidConfigError
from ..validation import check_named

if TYPE_CHECKING:
    from .committables import CheckpointNotice


@runtime_checkable
class CheckpointListener(Protocol):
    """Is notified how checkpoints end; for example, a sink that commits in two phases.

    Both methods may be called more than once for one checkpoint, and from different processes. An error of theirs keeps
    the notice; it never touches the checkpoint, which has ended.
    """

    @property
    def name(self) -> str:
        """What the listener is called in the job, within the grammar of names (semantics W1)."""

    def notify_checkpoint_complete(self, notice: CheckpointNotice) -> None:
        """Commit what was staged for the checkpoint, `notice.committables`, unless that has been done."""

    def notify_checkpoint_aborted(self, notice: CheckpointNotice) -> None:
        """Drop what was staged for the checkpoint; `notice.latest` is the newest completed one."""


def check_listeners(listeners: object) -> tuple[CheckpointListener, ...]:
    """Check a job's listeners where the DAG is parsed (semantics S3, C4).

    Raises:
        InvalidConfigError: something is no listener, or two have one name.
        InvalidNameError: a name is outside the grammar (semantics W1).
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
