"""Throws savepoints away: one that no job needs, or what is too old or too many (semantics P3).

Order: the files that the metadata names, then the metadata, then one swap of the head of the job that it was taken of,
which forgets it. So a half-deleted savepoint still says what is left of it, and disposing of it again finishes.
A job that starts from it meanwhile finds that a file is gone, and has changed nothing (`importing.py`).

Which folder it is, the caller says: it names the folder, or the target in which the job's record has some. What the
record says is compared with what the folder says of itself before anything in it is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

from ...storage.errors import CairnError, ErrorKind, InvalidKeyError, UnsupportedStorageError
from ...storage.port import DeleteFailure, ObjectStore
from ..decisions import savepoint_entries
from ..decisions.transitions import done_by
from ..documents.entries import InterventionKind, SavepointEntry
from ..documents.head import Head
from ..errors import DocumentError, InvalidConfigError, NoSavepointError, SavepointRefusedError
from ..open_job import heads_of
from ..reasons import Status
from ..runtime import Runtime
from ..store import verification
from ..store.before_swap import open_heads
from ..store.head_store import AfterSwap, Decision, HeadStore, changed
from ..store.job_files import JobFiles
from ..validation import check_whole
from . import integrity
from .files import REQUEST, FolderOwner, SavepointFiles, says
from .integrity import Savepoint
from .live_folder import check_no_job
from .savepoint_format import METADATA, SavepointHeader
from .savepoint_request import OpenFolder
from .savepoint_uri import open_entry, open_named

Recorded = tuple[str, SavepointEntry]
"""A job, and what its record says of a savepoint."""


@dataclass(frozen=True, slots=True)
class Disposal:
    """What disposing of a savepoint deletes, and what speaks against it."""

    uri: str
    job: str
    """The job that it was taken of."""
    savepoint: Savepoint | None = field(repr=False)
    """What is in the folder; None for one that never completed, or of which only the head's entry is left."""
    files: int
    size_bytes: int
    against: tuple[str, ...] = ()
    """Why it should be kept, each in a sentence."""
    failures: tuple[DeleteFailure, ...] = ()
    """What could not be deleted; disposing again goes on with it (semantics W7)."""
    owner: FolderOwner | None = field(default=None, repr=False)
    """Without `savepoint`: only what the folder says is this owner's is deleted."""


def plan(
    store: ObjectStore,
    folder: ObjectStore,
    open_folder: OpenFolder | None = None,
    recorded: Recorded | None = None,
) -> Disposal:
    """Say what disposing of a savepoint would delete, and what speaks against it; changes nothing.

    Args:
        store: the storage whose jobs are asked whether they need it.
        folder: a store that is rooted at the savepoint's folder.
        open_folder: opens the folder above, to see whether the others exist that lie there; None: they are not
            considered.
        recorded: the record that has led to the folder, of which the folder must be; None: the caller has named it.

    Raises:
        NoSavepointError: there is none, and no job of the storage knows of one.
        SavepointRefusedError: a job lives in the folder, or above it; or the folder is not what is `recorded`.
        DocumentError: its metadata is broken, altered or of a newer format.
    """
    check_no_job(folder, store, open_folder)
    try:
        savepoint = integrity.load(folder)
    except NoSavepointError:
        known = (recorded,) if recorded is not None else _knowing(store, folder.uri)
        owner = next((FolderOwner(job, entry.request, store.uri) for job, entry in known), None)
        if owner is None:
            raise
        return Disposal(folder.uri, owner.job, None, 0, 0, owner=owner)
    if recorded is not None:
        _check_same(store, folder, savepoint.header, *recorded)
    against = tuple(_against(store, folder.uri, savepoint.header.job, open_folder))
    return Disposal(folder.uri, savepoint.header.job, savepoint, savepoint.end.files, savepoint.end.size_bytes, against)


def dispose(
    store: ObjectStore,
    folder: ObjectStore,
    runtime: Runtime,
    open_folder: OpenFolder | None = None,
    *,
    recorded: Recorded | None = None,
    force: bool = False,
    actor: str = "",
    after_swap: AfterSwap | None = None,
) -> Disposal:
    """Throw a savepoint away, and have its job forget it; go on where that stopped before (semantics P3).

    Args:
        store: the storage whose jobs are asked whether they need it.
        folder: a store that is rooted at the savepoint's folder.
        runtime: clock and ids.
        open_folder: as in `plan`.
        recorded: as in `plan`.
        force: also where something speaks against it. One that is being made is never thrown away, nor is one in whose
            folder a job lives, whichever that is.
        actor: who wants it, for the record; empty where that is not known.
        after_swap: told of the version of the job's head that forgets it.

    Raises:
        NoSavepointError: there is none, and no job of the storage knows of one.
        SavepointRefusedError: something speaks against it; nothing was deleted.
        DocumentError: its metadata is broken, altered or of a newer format.
    """
    found = plan(store, folder, open_folder, recorded)
    if found.against and not force:
        raise SavepointRefusedError(
            f"the savepoint is still needed: {'; '.join(found.against)}. It was not deleted; --force (force=True) "
            "deletes it anyway",
            savepoint=found.uri,
        )
    heads = open_heads(JobFiles(store, found.job), runtime, after_swap)
    if any(each.uri == found.uri and not each.ended for each in heads.load().savepoints):
        raise SavepointRefusedError(
            "the savepoint is being made; wait for its end, or until its time has run out",
            job=found.job,
            savepoint=found.uri,
        )
    failures = _delete(folder, found)
    if not failures:
        _forget(heads, found.uri, actor)
    return replace(found, failures=tuple(failures))


def _forget(heads: HeadStore, uri: str, actor: str) -> None:
    def decide(head: Head, now_ms: int) -> Decision[None]:
        known = next((entry.id for entry in head.savepoints if entry.uri == uri), None)
        after = savepoint_entries.forgotten(head, uri)
        return Decision(None, changed(head, done_by(actor, InterventionKind.DISPOSE, head, after, now_ms, known)))

    heads.update(decide)


def _delete(folder: ObjectStore, found: Disposal) -> list[DeleteFailure]:
    if found.savepoint is None:
        return SavepointFiles(folder, found.owner).empty() if found.owner is not None else []
    named = [file.key for file in found.savepoint.files]
    # Only what is the savepoint's, because more may lie there; and the metadata last, because it says what that is.
    return list(folder.delete([*named, REQUEST])) or list(folder.delete([METADATA]))


def _check_same(
    store: ObjectStore, folder: ObjectStore, header: SavepointHeader, job: str, entry: SavepointEntry
) -> None:
    """Refuse a folder to which a job's record has led, and that says itself that it is another savepoint's."""
    same = (header.job, header.request, header.savepoint) == (job, entry.request, entry.id)
    if not same or says(folder, FolderOwner(job, entry.request, store.uri)) is False:
        raise SavepointRefusedError(
            "the job's record names this folder, and the folder says that it is another savepoint's. It was not "
            "deleted. If it is to go, name it: `cairn dispose PATH`",
            savepoint=folder.uri,
            job=job,
            request=entry.request,
            found=f"{header.request} of {header.job}",
        )


@dataclass(frozen=True, slots=True)
class HistoryRule:
    """Which savepoints of a series are kept; the newest one always is (semantics P3)."""

    keep: int | None = None
    """So many of the newest; at least 1. None: any number."""
    max_age: timedelta | None = None
    """None older than this; more than zero. None: of any age."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            InvalidConfigError: an option is out of its bounds.
        """
        if self.keep is not None:
            check_whole("keep", self.keep)
        if self.max_age is not None and (not isinstance(self.max_age, timedelta) or self.max_age <= timedelta(0)):
            raise InvalidConfigError("max_age must be a timedelta of more than zero", max_age=repr(self.max_age))

    def outdated(self, savepoints: tuple[SavepointEntry, ...], now_ms: int) -> tuple[SavepointEntry, ...]:
        """Give the savepoints that are to go, oldest first.

        Args:
            savepoints: of the series, by id; only those that have completed count.
            now_ms: the time, milliseconds since 1970 UTC.
        """
        completed = [entry for entry in savepoints if entry.status is Status.COMPLETED]
        kept = completed[-self.keep :] if self.keep is not None else completed
        if self.max_age is not None:
            since = now_ms - self.max_age // timedelta(milliseconds=1)
            kept = [entry for entry in kept if entry.ended_at_ms >= since] or kept[-1:]
        return tuple(entry for entry in completed if entry not in kept)


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was done with savepoints that were too old or too many."""

    disposed: tuple[Disposal, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    """Those that are still needed: each with why."""


def prune(
    store: ObjectStore,
    job: str,
    rule: HistoryRule,
    target: str,
    open_folder: OpenFolder,
    runtime: Runtime,
    *,
    series: str = "",
    after_swap: AfterSwap | None = None,
) -> Pruned:
    """Throw away the savepoints of a job that a rule no longer keeps (semantics P3).

    Works while no run is active, and again where it was stopped half-way: the head forgets a savepoint only after its
    files are gone. Only savepoints whose request id begins with `series` count, and only those in `target` go, which
    the caller names. `after_swap`: as in `dispose`.
    """
    head = open_heads(JobFiles(store, job), runtime).load()
    mine = tuple(entry for entry in head.savepoints if entry.request.startswith(series))
    disposed: list[Disposal] = []
    kept: list[tuple[str, str]] = []
    for entry in rule.outdated(mine, runtime.now_ms()):
        try:
            folder = open_entry(entry, target, open_folder)
            disposed.append(dispose(store, folder, runtime, open_folder, recorded=(job, entry), after_swap=after_swap))
        except (SavepointRefusedError, DocumentError, InvalidKeyError) as error:
            # One that cannot be read, as of a newer Cairn, does not keep all others for ever.
            kept.append((entry.uri, error.message))
    return Pruned(tuple(disposed), tuple(kept))


def _against(store: ObjectStore, uri: str, job: str, open_folder: OpenFolder | None) -> Iterator[str]:
    for name, head in heads_of(store):
        if isinstance(head, CairnError):
            if head.kind is ErrorKind.INVALID:
                continue  # what can be no job's name is none's folder
            yield f"the job {name} cannot be asked whether it needs it: {head}"
            continue
        if head.importing is not None and head.importing.origin.uri == uri:
            yield f"the job {name} is being started from it"
        if any(each.claimed and each.origin.uri == uri for each in head.imports):
            yield f"the job {name} owns it (--claim), and deletes it itself when it is next started from it"
        leads_back = name == job and _known(head, uri)
        if (leads_back or uri in _origins(head)) and not _other_way_back(store, name, head, uri, open_folder):
            yield (
                f"the job {name} has no other way back: none of its retained checkpoints is whole, and no other "
                "savepoint of it exists"
            )


def _other_way_back(store: ObjectStore, job: str, head: Head, uri: str, open_folder: OpenFolder | None) -> bool:
    files = JobFiles(store, job)
    if any(verification.verify(files, entry).whole for entry in reversed(head.completed)):
        return True
    if open_folder is None:
        return False
    # The head knows what was made, and the owner may have deleted it since (semantics P1). Only where the caller has
    # named one: what lies elsewhere, by the record alone, is not opened.
    made = (each.uri for each in reversed(head.savepoints) if each.status is Status.COMPLETED)
    target, _, _ = uri.rpartition("/")
    beside = (each for each in (*made, *_origins(head)) if each != uri and each.rpartition("/")[0] == target)
    return any(_stands(open_folder, each) for each in beside)


def _origins(head: Head) -> tuple[str, ...]:
    """Give the savepoints that the job has started from, newest first, unless it went back behind that since."""
    return tuple(each.origin.uri for each in reversed(head.imports) if head.rewind_of(each.checkpoint) is None)


def _stands(open_folder: OpenFolder, uri: str) -> bool:
    try:
        folder = open_named(uri, open_folder)
        return not integrity.lacking(folder, integrity.load(folder))
    except (NoSavepointError, DocumentError, InvalidKeyError, UnsupportedStorageError):
        return False


def _knowing(store: ObjectStore, uri: str) -> Iterator[Recorded]:
    """Yield the jobs whose record has a savepoint in a folder, each with what it says of that."""
    for name, head in heads_of(store):
        if isinstance(head, Head):
            yield from ((name, each) for each in head.savepoints if each.uri == uri)


def _known(head: Head, uri: str) -> bool:
    return any(entry.uri == uri for entry in head.savepoints)
