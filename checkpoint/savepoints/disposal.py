"""Throws savepoints away: one that no job needs, or what is too old or too many (semantics P3).

Order: the files that the metadata names, then the metadata, then one swap of the head of the job that it was taken of,
which forgets it. So a half-deleted savepoint still says what is left of it, and disposing of it again finishes.
A job that starts from it meanwhile finds that a file is gone, and has changed nothing (`importing.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

from ...storage.errors import CairnError, ErrorKind
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
from .files import REQUEST, SavepointFiles
from .integrity import Savepoint
from .live_folder import check_no_job
from .savepoint_format import METADATA
from .savepoint_request import OpenFolder


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


def plan(store: ObjectStore, folder: ObjectStore, open_folder: OpenFolder | None = None) -> Disposal:
    """Say what disposing of a savepoint would delete, and what speaks against it; changes nothing.

    Args:
        store: the storage whose jobs are asked whether they need it.
        folder: a store that is rooted at the savepoint's folder.
        open_folder: opens other savepoints, to see whether they exist; None: they are not considered.

    Raises:
        NoSavepointError: there is none, and no job of the storage knows of one.
        SavepointRefusedError: a job lives in the folder, or above it.
        DocumentError: its metadata is broken, altered or of a newer format.
    """
    check_no_job(folder, store, open_folder)
    try:
        savepoint = integrity.load(folder)
    except NoSavepointError:
        known = (name for name, head in heads_of(store) if isinstance(head, Head) and _known(head, folder.uri))
        job = next(known, None)
        if job is None:
            raise
        return Disposal(folder.uri, job, None, 0, 0)
    against = tuple(_against(store, folder.uri, savepoint.header.job, open_folder))
    return Disposal(folder.uri, savepoint.header.job, savepoint, savepoint.end.files, savepoint.end.size_bytes, against)


def dispose(
    store: ObjectStore,
    folder: ObjectStore,
    runtime: Runtime,
    open_folder: OpenFolder | None = None,
    *,
    force: bool = False,
    actor: str = "",
    after_swap: AfterSwap | None = None,
) -> Disposal:
    """Throw a savepoint away, and have its job forget it; go on where that stopped before (semantics P3).

    Args:
        store: the storage whose jobs are asked whether they need it.
        folder: a store that is rooted at the savepoint's folder.
        runtime: clock and ids.
        open_folder: opens other savepoints, to see whether they exist; None: they are not considered.
        force: also where something speaks against it. One that is being made is never thrown away, nor is one in whose
            folder a job lives, whichever that is.
        actor: who wants it, for the record; empty where that is not known.
        after_swap: told of the version of the job's head that forgets it.

    Raises:
        NoSavepointError: there is none, and no job of the storage knows of one.
        SavepointRefusedError: something speaks against it; nothing was deleted.
        DocumentError: its metadata is broken, altered or of a newer format.
    """
    found = plan(store, folder, open_folder)
    if found.against and not force:
        raise SavepointRefusedError(
            f"the savepoint is still needed: {'; '.join(found.against)}. It was not deleted; --force (force=True) "
            "deletes it anyway",
            savepoint=found.uri,
        )
    heads = open_heads(JobFiles(store, found.job), runtime, after_swap)
    if any(entry.uri == found.uri and not entry.ended for entry in heads.load().savepoints):
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
        files = SavepointFiles(folder, found.job)
        # What lies there is ours only if it says so.
        return files.empty() if files.owner() is not None else []
    named = [file.key for file in found.savepoint.files]
    # Only what is the savepoint's, because more may lie there; and the metadata last, because it says what that is.
    return list(folder.delete([*named, REQUEST])) or list(folder.delete([METADATA]))


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
    open_folder: OpenFolder,
    runtime: Runtime,
    *,
    series: str = "",
    after_swap: AfterSwap | None = None,
) -> Pruned:
    """Throw away the savepoints of a job that a rule no longer keeps (semantics P3).

    Works while no run is active, and again where it was stopped half-way: the head forgets a savepoint only after its
    files are gone. Only savepoints whose request id begins with `series` count. `after_swap`: as in `dispose`.
    """
    head = open_heads(JobFiles(store, job), runtime).load()
    mine = tuple(entry for entry in head.savepoints if entry.request.startswith(series))
    disposed: list[Disposal] = []
    kept: list[tuple[str, str]] = []
    for entry in rule.outdated(mine, runtime.now_ms()):
        try:
            disposed.append(dispose(store, open_folder(entry.uri), runtime, open_folder, after_swap=after_swap))
        except (SavepointRefusedError, DocumentError) as error:
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
    # The head knows what was made. The owner may have deleted it since (semantics P1).
    made = (each.uri for each in reversed(head.savepoints) if each.status is Status.COMPLETED)
    return any(_stands(open_folder(each)) for each in (*made, *_origins(head)) if each != uri)


def _origins(head: Head) -> tuple[str, ...]:
    """Give the savepoints that the job has started from, newest first, unless it went back behind that since."""
    return tuple(each.origin.uri for each in reversed(head.imports) if head.rewind_of(each.checkpoint) is None)


def _stands(folder: ObjectStore) -> bool:
    try:
        return not integrity.lacking(folder, integrity.load(folder))
    except (NoSavepointError, DocumentError):
        return False


def _known(head: Head, uri: str) -> bool:
    return any(entry.uri == uri for entry in head.savepoints)
