"""Options, plan and result of a job's start from a savepoint (semantics R3, R5, R6)."""

from __future__ import annotations

from dataclasses import dataclass

from ..documents.attempt import StageSpec
from ..documents.entries import SavepointOrigin
from ..rules.imports import NOTHING, Superseded


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """Options of a job's start from a savepoint (semantics R3, R6)."""

    allow_non_restored_state: bool = False
    """The next epoch may leave unclaimed state behind."""
    claim: bool = False
    """The job owns the savepoint, and deletes it once it has a copy; by default the owner keeps it."""
    again: bool = False
    """Start again even if the job has started from this savepoint before."""
    only_if_new: bool = False
    """Start only if the job has no checkpoint yet."""
    give_up: bool = True
    """Whether the job may lose checkpoints of its own; with False that is refused."""


DEFAULT_OPTIONS = ImportOptions()


@dataclass(frozen=True, slots=True)
class JobShape:
    """The job's stages, if known: a savepoint that does not fit is refused before the job loses anything."""

    stages: tuple[StageSpec, ...]
    hooks: tuple[str, ...] = ()
    """Names of the job's master hooks."""
    allow_non_restored_state: bool = False
    """Whether every epoch may leave unclaimed state behind; the options may allow it for one epoch."""
    sources: tuple[str, ...] = ()
    """Names of the job's sources."""


@dataclass(frozen=True, slots=True)
class Started:
    """Result of a job's start from a savepoint."""

    checkpoint: int
    """The checkpoint made from the savepoint; for a job that was not new, its newest one."""
    created: bool
    """Whether this call started the job; False: it had started from the savepoint before, or was not new."""
    origin: SavepointOrigin | None = None
    """None for a job that was not new and comes from no savepoint that it remembers."""
    files: int = 0
    size_bytes: int = 0
    gave_up: Superseded = NOTHING
    allowed: bool = False
    """Whether this call allowed non-restored state for a start that had not allowed it."""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """Plan of a job's start from a savepoint."""

    origin: SavepointOrigin
    files: int
    size_bytes: int
    standing: int | None
    """The checkpoint of an earlier start from this savepoint: a start does nothing, unless `again` is set."""
    gives_up: Superseded
