"""Requests for a savepoint, and for a job's start from one, with plan and result (semantics P1, P2, R3, R5, R6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta

from ...storage.names import check_name, check_storage_uri
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..answers import FilesProgress
from ..documents import layout
from ..documents.attempt import StageSpec
from ..documents.entries import InterventionKind, SavepointEntry, SavepointOrigin
from ..errors import InvalidConfigError
from ..reasons import Status
from ..rules.imports import NOTHING, Superseded
from ..validation import check_span, check_whole

OpenFolder = Callable[[str], ObjectStore]
"""Opens a store that is rooted at the folder which a URI names; sends no request."""


OnProgress = Callable[[FilesProgress], None]


DEFAULT_TIMEOUT = timedelta(hours=24)
"""Default timeout: an epoch may have to end first, and then terabytes may have to pass through one machine."""


def drain_run(request: str, before: SavepointEntry | None = None) -> str:
    """Give the id of the DAG run that is to be a job's last one: the same request has the same (semantics P2).

    Args:
        request: the request's id.
        before: the request's savepoint as of now. If it has failed, its last run is over, and the next one is
            called otherwise: Airflow has a run's id once.
    """
    seed = request if before is None or before.status is not Status.FAILED else f"{request}\n{before.id}"
    return f"cairn_drain__{hashlib.sha256(seed.encode()).hexdigest()[:12]}"


def no_progress(_: FilesProgress) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A request for a savepoint."""

    target: str | None
    """URI of the folder below which the savepoint's own folder is made; outside of the job. None is refused, with what
    the job's DAG has given, so that the caller can name it."""
    request: str
    """The request's id: the same one gives the same savepoint."""
    timeout: timedelta = DEFAULT_TIMEOUT
    """After this long a savepoint that is not complete has failed; more than zero. Until then its checkpoint is kept.
    """
    parallel: int = 8
    """Files that are copied at once; at least 1, which copies them in the thread that asks."""
    renew: bool = False
    """Make another one if the one asked for with this id has failed; else it stays failed."""
    stop: bool = False
    """Stop the job with it: no epoch begins from now on, and the job is shut down by the swap that completes the
    savepoint. If it fails, the job goes on (semantics P2)."""
    drain: str | None = None
    """With `stop`: the epoch that is the job's last one, begins all the same and drains; the savepoint waits."""
    actor: str = ""
    """The user who asks, for the record, if no process of the user waits; then each process that names the target goes
    on with it (`SavepointEntry.actor`)."""

    @property
    def kind(self) -> InterventionKind:
        """Kind of the intervention, if a person makes the request."""
        return InterventionKind.STOP if self.stop else InterventionKind.SAVEPOINT

    def __post_init__(self) -> None:
        """Check the request as far as possible without the store.

        Raises:
            UnsupportedStorageError: the target's scheme is none of ours.
            InvalidKeyError: the target is not of an accepted form; or the request's id is none.
            InvalidConfigError: another option is out of its bounds.
        """
        if self.target is not None:
            object.__setattr__(self, "target", check_storage_uri(self.target))
        layout.check_request(self.request)
        check_span("timeout", self.timeout)
        check_whole("parallel", self.parallel)
        if self.drain is not None:
            check_name("epoch", self.drain)
            if not self.stop:
                raise InvalidConfigError("drain is the last epoch of a job that stops: give stop too", drain=self.drain)


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
