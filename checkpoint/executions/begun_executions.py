"""An execution by the attempt that began it, as the head alone tells: nothing is read that a cleaner may have taken."""

from __future__ import annotations

from dataclasses import dataclass

from ..documents.attempt import execution_token
from ..documents.entries import EndedEntry, PendingEntry


@dataclass(frozen=True, slots=True)
class BegunExecution:
    """An execution of a stage."""

    checkpoint: int
    """The checkpoint of the attempt that began it: its home."""
    epoch: str
    attempt: int
    stage: str
    token: str


def begun_in(entry: PendingEntry | EndedEntry, stage: str) -> BegunExecution:
    """Give the execution of a stage that an attempt begins, whether or not it has begun it.

    Args:
        entry: the attempt.
        stage: the stage's uid.
    """
    return BegunExecution(entry.id, entry.epoch, entry.attempt, stage, execution_token(entry.token, stage))
