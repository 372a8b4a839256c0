"""Disposes of a savepoint that no job needs, or of old ones by a retention rule (semantics P3).

Order: the files that the metadata names, then the metadata, then one swap by which the head of the savepoint's job
forgets it. So the metadata of a half-deleted savepoint still names the rest, and a second call deletes that. A job that
starts from the savepoint at that time finds that a file is gone, and has changed nothing (`start_from.py`).

The caller names the folder, or a target in which the job's record has savepoints. Before anything in a folder is
deleted, the record is compared with the folder's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from datetime import timedelta

from ...storage.clock import Runtime
from ...storage.errors import CairnError, ErrorKind, InvalidKeyError, UnsupportedStorageError
from ...storage.names import same_place
from ...storage.port import DeleteFailure, ObjectStore
from ...storage.records import dataclass
from ..documents.entries import InterventionKind, SavepointEntry
from ..documents.head import Head
from ..errors import DocumentError, NoSavepointError, RefusedError
from ..reasons import Status
from ..rules import history
from ..rules.transitions import done_by
from ..store import verification
from ..store.head_store import AfterSwap, Decision, HeadStore, changed, heads_of, open_heads
from ..store.job_files import JobFiles
from ..validation import check_span, check_whole
from . import integrity
from .integrity import Savepoint
from .savepoint_format import (
    METADATA,
    REQUEST,
    FolderOwner,
    SavepointFiles,
    SavepointHeader,
    open_entry,
    open_named,
    remove_folder,
    says,
)
from .savepoint_request import OpenFolder, check_no_job

Recorded = tuple[str, SavepointEntry]
"""A job, and its record of a savepoint."""


@dataclass(frozen=True, slots=True)
class Disposal:
    """Plan or result of a disposal, with objections."""

    uri: str
    job: str
    """The job whose savepoint it is."""
    savepoint: Savepoint | None = field(repr=False)
    """Content of the folder; None for a savepoint that never completed, or of which only the head's entry is left."""
    files: int
    size_bytes: int
    against: tuple[str, ...] = ()
    """Reasons to keep the savepoint, each in a sentence."""
    failures: tuple[DeleteFailure, ...] = ()
    """Files that could not be deleted; another disposal tries again (semantics W7)."""
    owner: FolderOwner | None = field(default=None, repr=False)
    """Without `savepoint`: only what the folder says is this owner's is deleted."""


def plan(
    store: ObjectStore,
    folder: ObjectStore,
    open_folder: OpenFolder | None = None,
    recorded: Recorded | None = None,
) -> Disposal:
    """Describe the files that a disposal would delete, and the reasons against it, without changing anything.

    Args:
        store: the storage whose jobs are asked whether they need it.
        folder: a store that is rooted at the savepoint's folder.
        open_folder: opens the folder above, to see whether the others exist that lie there; None: they are not
            considered.
        recorded: the record that has led to the folder, of which the folder must be; None: the caller has named it.
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
    """Dispose of a savepoint, and have its job forget it; continue a disposal that stopped before (semantics P3).

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
        RefusedError: something speaks against it; nothing was deleted.
    """
    found = plan(store, folder, open_folder, recorded)
    if found.against and not force:
        raise RefusedError(
            f"the savepoint is still needed: {'; '.join(found.against)}. It was not deleted; --force (force=True) "
            "deletes it anyway",
            code="savepoint_refused",
            savepoint=found.uri,
        )
    heads = open_heads(JobFiles(store, found.job), runtime, after_swap)
    if any(same_place(each.uri, found.uri) and not each.ended for each in heads.load().savepoints):
        raise RefusedError(
            "the savepoint is being made; wait for its end, or until its time has run out",
            code="savepoint_refused",
            job=found.job,
            savepoint=found.uri,
        )
    failures = _delete(folder, found)
    if not failures:
        if open_folder is not None:
            remove_folder(found.uri, open_folder)
        _forget(heads, found.uri, actor)
    return replace(found, failures=tuple(failures))


def _forget(heads: HeadStore, uri: str, actor: str) -> None:
    def decide(head: Head, now_ms: int) -> Decision[None]:
        known = next((entry.id for entry in head.savepoints if same_place(entry.uri, uri)), None)
        after = history.without_savepoint(head, uri)
        return Decision(None, changed(head, done_by(actor, InterventionKind.DISPOSE, head, after, now_ms, known)))

    heads.update(decide)


def _delete(folder: ObjectStore, found: Disposal) -> list[DeleteFailure]:
    if found.savepoint is None:
        return SavepointFiles(folder, found.owner).empty() if found.owner is not None else []
    named = [file.key for file in found.savepoint.files]
    # The folder may hold foreign files, so only the savepoint's own go; the metadata last, because it names them.
    return list(folder.delete([*named, REQUEST])) or list(folder.delete([METADATA]))


def _check_same(
    store: ObjectStore, folder: ObjectStore, header: SavepointHeader, job: str, entry: SavepointEntry
) -> None:
    """Refuse a folder to which a job's record has led, and that says itself that it is another savepoint's."""
    same = (header.job, header.request, header.savepoint) == (job, entry.request, entry.id)
    if not same or says(folder, FolderOwner(job, entry.request, store.uri)) is False:
        raise RefusedError(
            "the job's record names this folder, and the folder says that it is another savepoint's. It was not "
            "deleted. If it is to go, name it: `cairn dispose PATH`",
            code="savepoint_refused",
            savepoint=folder.uri,
            job=job,
            request=entry.request,
            found=f"{header.request} of {header.job}",
        )


@dataclass(frozen=True, slots=True)
class HistoryRule:
    """Retention rule for the savepoints of a job; the newest one is always kept (semantics P3)."""

    keep: int | None = None
    """Number of newest savepoints to keep; at least 1. None: any number."""
    max_age: timedelta | None = None
    """Largest age of kept savepoints; more than zero. None: any age."""

    def __post_init__(self) -> None:
        """Check the bounds.

        Raises:
            InvalidConfigError: an option is out of its bounds.
        """
        if self.keep is not None:
            check_whole("keep", self.keep)
        if self.max_age is not None:
            check_span("max_age", self.max_age)

    def outdated(self, savepoints: tuple[SavepointEntry, ...], now_ms: int) -> tuple[SavepointEntry, ...]:
        """Give the savepoints to dispose of, oldest first.

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
    """Result of applying a retention rule."""

    disposed: tuple[Disposal, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    """Savepoints that are still needed, each with the reason."""


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
    """Dispose of the savepoints of a job that a retention rule no longer keeps (semantics P3).

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
        except (RefusedError, DocumentError, InvalidKeyError) as error:
            # One that cannot be read, as of a newer Cairn, does not keep all others for ever.
            kept.append((entry.uri, error.message))
    return Pruned(tuple(disposed), tuple(kept))


def _against(store: ObjectStore, uri: str, job: str, open_folder: OpenFolder | None) -> Iterator[str]:
    for name, head in heads_of(store):
        if isinstance(head, CairnError):
            if head.kind is ErrorKind.INVALID:
                continue  # no job can have this name, so the folder is not a job's
            yield f"the job {name} cannot be asked whether it needs it: {head}"
            continue
        if head.importing is not None and same_place(head.importing.origin.uri, uri):
            yield f"the job {name} is being started from it"
        if any(each.claimed and same_place(each.origin.uri, uri) for each in head.imports):
            yield f"the job {name} owns it (--claim), and deletes it itself when it is next started from it"
        leads_back = name == job and any(same_place(entry.uri, uri) for entry in head.savepoints)
        leads_back |= any(same_place(each, uri) for each in _origins(head))
        if leads_back and not _other_way_back(store, name, head, uri, open_folder):
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
    # The head knows the savepoints that were made; their owner may have deleted them since (semantics P1). Only those
    # beside the one that the caller has named are opened: a record alone is not followed elsewhere.
    made = (each.uri for each in reversed(head.savepoints) if each.status is Status.COMPLETED)
    others = (each for each in (*made, *_origins(head)) if not same_place(each, uri))
    beside = (each for each in others if same_place(each.rpartition("/")[0], uri.rpartition("/")[0]))
    return any(_is_whole(open_folder, each) for each in beside)


def _origins(head: Head) -> tuple[str, ...]:
    """Give the savepoints that the job has started from, newest first, without starts that a rewind has undone."""
    return tuple(each.origin.uri for each in reversed(head.imports) if head.rewind_of(each.checkpoint) is None)


def _is_whole(open_folder: OpenFolder, uri: str) -> bool:
    try:
        folder = open_named(uri, open_folder)
        return not integrity.lacking(folder, integrity.load(folder))
    except (NoSavepointError, DocumentError, InvalidKeyError, UnsupportedStorageError):
        return False


def _knowing(store: ObjectStore, uri: str) -> Iterator[Recorded]:
    """Yield the jobs whose record has a savepoint in a folder, each with what it says of that."""
    for name, head in heads_of(store):
        if isinstance(head, Head):
            yield from ((name, each) for each in head.savepoints if same_place(each.uri, uri))
