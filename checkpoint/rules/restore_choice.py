"""The checkpoint that an attempt restores (semantics R2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..answers import Damage
from ..documents.attempt import BacklogEpoch, ReplayedEpoch, RestorePointer, Slice
from ..documents.entries import RestoreRecord
from ..documents.read_windows import NOTHING_READ, ReadWindows
from ..documents.text import one_line
from .state_assignment import RestoredStage


@dataclass(frozen=True, slots=True)
class RestoreChoice:
    """The checkpoint that an attempt restores; without a pointer the attempt starts empty (semantics R2)."""

    pointer: RestorePointer | None
    replay: tuple[ReplayedEpoch, ...] = ()
    """Epochs whose checkpoints were bypassed, oldest first: their input has to be read again."""
    damages: tuple[Damage, ...] = ()
    stages: tuple[RestoredStage, ...] = ()
    """State of each stage in the checkpoint; it must be claimed, and fit (semantics R3, R4)."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks with state in the checkpoint; it must be claimed (semantics T7)."""
    slice: Slice | None = None
    """The input of the checkpoint's epoch, with its sources' positions (semantics T8)."""
    backlogs: dict[str, tuple[BacklogEpoch, ...]] = field(default_factory=dict)
    """Backlog in the checkpoint by stage, oldest epoch first (semantics B3, F6)."""
    read: ReadWindows = NOTHING_READ
    """The windows of time that the checkpoint's state has read (semantics T8)."""

    def record(self, why: str, begin_ms: int, end_ms: int, *, into: int | None = None) -> RestoreRecord | None:
        """Make the head's record of the restore; None for an empty start (semantics R5).

        Args:
            why: cause of the restore, for people.
            begin_ms: start of the search, milliseconds since 1970 UTC.
            end_ms: end of the search.
            into: the checkpoint of the attempt that restores.
        """
        if self.pointer is None:
            return None
        return RestoreRecord(
            checkpoint=self.pointer.checkpoint,
            at_ms=begin_ms,
            took_ms=max(0, end_ms - begin_ms),
            why=why,
            into=into,
            damages=tuple(one_line(str(damage)) for damage in self.damages[:10]),
        )
