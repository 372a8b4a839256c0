"""Entries of the head about mirrors: how far one is, whose mirror a job is, and where a job has moved to."""

from __future__ import annotations

from dataclasses import field

from ...storage.records import dataclass
from .attempt import RestorePointer
from .codec import CheckpointId, Count, Epoch, Key, Target, Token
from .strict_json import SPARSE

HOLD_MS = 60 * 60 * 1_000
"""Duration of a hold that its holder does not renew."""


@dataclass(frozen=True, slots=True)
class MirrorHold:
    """A checkpoint that a pass copies, which the cleaner spares until the hold ends by itself."""

    token: Token
    """Token of the pass."""
    source: RestorePointer
    until_ms: Count
    """The pass renews the hold only before this moment: a hold that a cleaner saw as dead stays dead."""
    files: tuple[Key, ...] = field(default=(), metadata=SPARSE)
    """Other files that the pass copies: lists of completed epochs, and the metadata of waiting notices."""
    epochs: tuple[Epoch, ...] = field(default=(), metadata=SPARSE)
    """Epochs whose input the pass copies."""


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """A mirror of the job, in the job's own head."""

    uri: Target
    """The mirror's storage: compared with the one that a pass is given, never followed (semantics W10)."""
    id: Token
    """Made at the first pass; the mirror's head has it too."""
    checkpoint: CheckpointId | None = None
    """The newest checkpoint that the mirror holds; None: no pass has ended yet."""
    completed_at_ms: Count = 0
    """When that checkpoint completed."""
    counted: Count = 0
    """`Counters.completed` when that checkpoint was the newest."""
    revision: Count = 0
    """Revision of the job's head of which the mirror's is a copy."""
    unswept: bool = field(default=False, metadata=SPARSE)
    """Whether the mirror may hold files that its head does not name: a pass has begun and not ended, or has spared
    what another one, or a savepoint, was copying."""
    holds: tuple[MirrorHold, ...] = field(default=(), metadata=SPARSE)


@dataclass(frozen=True, slots=True)
class MirrorOf:
    """The job that this one is a mirror of, in the mirror's head."""

    id: Token
    uri: Target
    """The first storage, for people and to be compared; never followed (semantics W10)."""
    revision: Count = 0
    """Revision of the job's head of which this is the copy; 0: no pass has ended yet."""
    at_ms: Count = 0
    """When that head was read."""
    again: tuple[Epoch, ...] = field(default=(), metadata=SPARSE)
    """Epochs that the mirror lacks, as far as is known: begun when the last pass began, or completed since."""
    activated_at_ms: Count = field(default=0, metadata=SPARSE)
    """When the mirror became the job; 0: it is a mirror, and takes no trigger."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The place where a job goes on, in the head that it has left."""

    id: Token
    """The mirror's id."""
    uri: Target
    at_ms: Count
