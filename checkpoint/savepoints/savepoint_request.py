"""Requests for a savepoint, and for a job's start from one, with plan and result (semantics P1, P2, R3, R5, R6)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

from ...storage.errors import ForbiddenError, GoneError, InvalidKeyError, UnsupportedStorageError
from ...storage.names import check_name, check_storage_uri, parse_storage_uri, same_place
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..answers import FilesProgress
from ..documents import layout
from ..documents.attempt import StageSpec
from ..documents.entries import InterventionKind, SavepointEntry, SavepointOrigin
from ..errors import InvalidConfigError, RefusedError
from ..reasons import Status
from ..rules.rewinds import NOTHING, Superseded
from ..validation import check_span, check_whole

OpenFolder = Callable[[str], ObjectStore]
"""Opens a store that is rooted at the folder which a URI names; sends no request."""


OnProgress = Callable[[FilesProgress], None]


DEFAULT_TIMEOUT = timedelta(hours=24)
"""Default timeout: an epoch may have to end first, and then terabytes may have to pass through one machine."""


def drain_run(request: str, before: SavepointEntry | None = None) -> str:
    """Give the id of a job's last DAG run; the same request gets the same id (semantics P2).

    Args:
        request: the request's id.
        before: the request's savepoint as of now. If it has failed, its last run is over, and the next run gets another
            id, because Airflow takes an id only once.
    """
    seed = request if before is None or before.status is not Status.FAILED else f"{request}\n{before.id}"
    return f"cairn_drain__{hashlib.sha256(seed.encode()).hexdigest()[:12]}"


def no_progress(_: FilesProgress) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A request for a savepoint."""

    target: str | None
    """URI of the folder below which the savepoint's own folder is made; outside of the job. None is refused; the error
    has the target of the job's DAG, so that the caller can name it."""
    request: str
    """The request's id: the same one gives the same savepoint."""
    timeout: timedelta = DEFAULT_TIMEOUT
    """After this long a savepoint that is not complete has failed; more than zero. Until then its checkpoint is kept.
    """
    parallel: int = 8
    """Files that are copied at once; at least 1, and with 1 the calling thread copies them."""
    renew: bool = False
    """Make another savepoint if that of this id has failed; otherwise it stays failed."""
    stop: bool = False
    """Stop the job with it: no epoch begins from now on, and the job is shut down by the swap that completes the
    savepoint. If it fails, the job goes on (semantics P2)."""
    drain: str | None = None
    """With `stop`: the job's last epoch. It still begins, and drains; the savepoint waits for it."""
    actor: str = ""
    """The user who asks, for the record; set only if no process of the user waits. Then any process that has the target
    goes on with the savepoint (`SavepointEntry.actor`)."""

    @property
    def kind(self) -> InterventionKind:
        """Kind of the intervention, if a person makes the request."""
        return InterventionKind.STOP if self.stop else InterventionKind.SAVEPOINT

    def __post_init__(self) -> None:
        """Check the request as far as possible without the store.

        Raises:
            UnsupportedStorageError: no store has the target's scheme.
            InvalidKeyError: the target or the request's id does not have an accepted form.
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


# A savepoint must not lie in a job's own folder (semantics P1, P3, C3). The name of a target shows that it does. But a
# savepoint may have been copied over a job's folder: disposing of it, or claiming it, would delete the job's own files.
# So both look for a `head.json` first, in the folder and in each one above.


def is_in_job(folder: str, storage: str, job: str) -> bool:
    """Tell whether a folder is a job's own, or lies in it."""
    return parse_storage_uri(storage).below(job).has(parse_storage_uri(folder))


def check_target(target: str, storage: str, job: str, **where: str | None) -> None:
    """Refuse a target in the job's own folder, and the storage's root, where every folder is taken for a job.

    Args:
        target: URI below which the savepoint would get its own folder.
        storage: URI of the job's storage.
        job: the job's name.
        **where: the task or group that names it, for the error text.

    Raises:
        RefusedError: the target is one of these.
    """
    if is_in_job(target, storage, job):
        raise RefusedError(
            "the target lies in the job's own folder, whose files are the job's to delete; name a folder outside of it",
            code="savepoint_refused",
            **where,
            target=target,
            job=job,
            folder=f"{storage}/{job}",
        )
    if same_place(target, storage):
        raise among_jobs(target, storage, **where)


def among_jobs(target: str, storage: str, **where: str | None) -> RefusedError:
    """Give the error for a target where only jobs' folders may be."""
    return RefusedError(
        "the target lies among the storage's jobs; name a folder outside of the storage, or one in it that no job uses",
        code="savepoint_refused",
        **where,
        target=target,
        storage=storage,
    )


def check_no_job(
    folder: ObjectStore, storage: ObjectStore, open_folder: Callable[[str], ObjectStore] | None = None
) -> None:
    """Refuse a savepoint's folder that holds the head of a job, or lies below one; costs one look for each level.

    Args:
        folder: a store that is rooted at the savepoint's folder.
        storage: the storage of the job that acts.
        open_folder: opens the folders above; None: only those in `storage` are looked at.

    Raises:
        RefusedError: a job's head is in it, or above it; nothing was deleted, and nothing has changed.
        ForbiddenError: the store does not let us look into the folder itself.
    """
    if _holds_head(folder, ""):
        raise _refused(folder.uri, folder.uri)
    for above in _above(folder.uri):
        # A folder above that we may not look into, or that is not a storage, is not known to be a job's.
        with suppress(ForbiddenError, InvalidKeyError, UnsupportedStorageError):
            if above.startswith(f"{storage.uri}/"):
                found = _holds_head(storage.at_once(), f"{above.removeprefix(f'{storage.uri}/')}/")
            else:
                found = open_folder is not None and _holds_head(open_folder(above).at_once(), "")
            if found:
                raise _refused(folder.uri, above)


def _above(uri: str) -> Iterator[str]:
    """Yield the folders above one, the nearest first."""
    scheme, _, path = uri.partition("://")
    while "/" in path.strip("/"):
        path = path.rpartition("/")[0]
        yield f"{scheme}://{path}"


def _holds_head(store: ObjectStore, prefix: str) -> bool:
    try:
        store.stat(f"{prefix}{layout.HEAD}")
    except GoneError:
        return False
    return True


def _refused(savepoint: str, job_folder: str) -> RefusedError:
    return RefusedError(
        "a job lives in the savepoint's folder, or above it: deleting the savepoint would delete the job's own files. "
        "It was not deleted, and nothing has changed. Move the savepoint into a folder of its own, or delete its files "
        "yourself",
        code="savepoint_refused",
        savepoint=savepoint,
        head=f"{job_folder}/{layout.HEAD}",
    )
