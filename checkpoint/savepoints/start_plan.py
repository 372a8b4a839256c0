"""What starting a job from a savepoint is asked to do, would do, and has done (semantics R3, R5, R6)."""

from __future__ import annotations

from dataclasses import dataclass

from ..decisions.imports import NOTHING, Superseded
from ..documents.attempt import StageSpec
from ..documents.entries import SavepointOrigin


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How a job is to be started from a savepoint (semantics R3, R6)."""

    allow_non_restored_state: bool = False
    """The next epoch may leave behind what no stage claims."""
    claim: bool = False
    """The job owns the savepoint, and deletes it once it has a copy; by default the owner keeps it."""
    again: bool = False
    """Also where the job has started from this savepoint before."""
    only_if_new: bool = False
    """Only where the job has no checkpoint yet."""
    give_up: bool = True
    """Whether the job may lose checkpoints of its own; with False that is refused."""


DEFAULT_OPTIONS = ImportOptions()


@dataclass(frozen=True, slots=True)
class JobShape:
    """What the job runs, where known: a savepoint that does not fit is refused before the job loses anything."""

    stages: tuple[StageSpec, ...]
    hooks: tuple[str, ...] = ()
    """Names of its master hooks."""
    allow_non_restored_state: bool = False
    """Whether each of its epochs may leave behind what no stage claims; the options may allow it for one."""
    sources: tuple[str, ...] = ()
    """Names of its sources."""


@dataclass(frozen=True, slots=True)
class Started:
    """Where the job starts from."""

    checkpoint: int
    """Its checkpoint that was made from the savepoint; for a job that was not new its newest one."""
    created: bool
    """Whether this call made it so; False: the job had started from it before, or was not new."""
    origin: SavepointOrigin | None = None
    """None for a job that was not new and comes from no savepoint that it remembers."""
    files: int = 0
    size_bytes: int = 0
    gave_up: Superseded = NOTHING
    allowed: bool = False
    """Whether this call allowed non-restored state for a start that had not allowed it."""


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What starting from a savepoint would do."""

    origin: SavepointOrigin
    files: int
    size_bytes: int
    standing: int | None
    """The checkpoint in which the job has started from it before: it would do nothing, unless `again` is set."""
    gives_up: Superseded
