"""Starts a job from a savepoint: copies it in as the job's newest checkpoint (semantics R1, R5, R6, T5).

The order is: one swap hands out an id and keeps the cleaner from that id's folder; the files are copied, each once; the
metadata that names them; one swap makes them the newest checkpoint. Before the second swap the job is unchanged, and
another call with the same savepoint continues where the first one stopped. After it nothing refers to the savepoint, so
its owner may move or delete it. A job that owns the savepoint (CLAIM) then deletes it: the second swap notes that, a
caller that claims it deletes the files, and another swap notes that this is done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from ...storage.names import same_place
from ...storage.port import DeleteFailure, ObjectStore
from ..acts.use_case import UseCase, end_overdue
from ..answers import FilesProgress
from ..documents import layout
from ..documents.attempt import DocumentRef, window_text
from ..documents.entries import CompletedEntry, ImportEntry, ImportRecord, SavepointOrigin
from ..documents.head import Head
from ..errors import DocumentError, InvalidConfigError, NoSavepointError, RefusedError
from ..rules import history, restored_state
from ..rules.restored_state import ALLOWING, check_claimed_by_hooks, check_claimed_by_sources, check_claimed_by_stages
from ..rules.rewinds import NOTHING, Superseded, given_up, imported
from ..store import completed_epochs, verification
from ..store.head_store import Decision, HeadStore, changed
from ..store.job_files import JobFiles
from ..store.jsonl import Spool
from . import integrity
from .copy_in import Copied, ImportCopy, ends_of
from .integrity import Savepoint
from .savepoint_format import METADATA, REQUEST
from .savepoint_request import DEFAULT_OPTIONS, ImportOptions, JobShape, Started, StartPlan, check_no_job, is_in_job

log = logging.getLogger("airflow_cairn")


class Importing(UseCase):
    """Starts one job from savepoints."""

    def plan(self, folder: ObjectStore) -> StartPlan:
        """Describe the effects of a start from a savepoint, without starting; expired checkpoints are settled (D2).

        Raises:
            NoSavepointError: there is none, or only a part of one.
            DocumentError: its metadata is broken, altered, or of a newer format.
            InvalidConfigError: it lies in the job's own prefix.
        """
        # The files of a claimed savepoint may be gone: then a start only continues to delete them.
        claimed = self._heads.observe(lambda head, _now_ms: record_to_delete(head, folder))
        found = claimed or self._found_or_gone(folder)
        if isinstance(found, ImportRecord):
            return StartPlan(found.origin, 0, 0, found.checkpoint, NOTHING)
        origin, end = _origin(folder, found), found.end

        def decide(head: Head, _now_ms: int) -> Decision[StartPlan]:
            gives_up = given_up(head, self._back_to(head, origin))
            record = _valid_start(head, lambda each: each.sha256 == origin.sha256)
            plan = StartPlan(origin, end.files, end.size_bytes, record.checkpoint if record else None, gives_up)
            return Decision(plan)

        return self._update_settled(decide)[1]

    def start(
        self,
        folder: ObjectStore,
        options: ImportOptions = DEFAULT_OPTIONS,
        *,
        agreed: StartPlan | None = None,
        runs: JobShape | None = None,
        on_progress: Callable[[FilesProgress], None] = lambda _: None,
        open_folder: Callable[[str], ObjectStore] | None = None,
    ) -> Started:
        """Copy a savepoint into the job and make it the newest checkpoint, once.

        Epochs that the savepoint does not hold no longer count: later checkpoints of the job leave the store, pending
        ones end with `CHECKPOINT_COORDINATOR_SUSPEND`, and epochs that have completed since have to run again.

        If the job has started from the savepoint before, and nothing has completed since, the call only allows
        non-restored state, if the options say so: for a user whose trigger has reported unclaimed state (semantics R3).
        By then the owner, or a job that has claimed the savepoint, may have deleted it.

        Args:
            folder: a store that is rooted at the savepoint's folder.
            options: of the start.
            agreed: the plan that the caller has seen; if the job would lose something else by now, it is refused.
            runs: the job's stages, hooks and sources; None: the next trigger checks whether the savepoint fits.
            on_progress: called after each file.
            open_folder: opens the folders above the savepoint's, to check whether a job lives there; None: only folders
                of the job's own storage are checked.

        Raises:
            RefusedError: the options claim it, and a job lives in its folder, or above it; or the job would lose
                something without agreement, or another import took the place of this one; nothing was lost.
            NoSavepointError: there is no savepoint, or only a part of one; the job has not changed.
            DocumentError: its metadata is broken, altered, or of a newer format.
            InvalidConfigError: it lies in the job's own prefix.
            InvalidStateError: it holds state of a stage, a hook or a source that the job has not (semantics R3); or a
                stage cannot be restored at its parallelism (semantics R4).
        """
        found = self._heads.observe(lambda head, _now_ms: self._without_reading(head, folder, options))
        if found is not None:
            if options.claim:
                delete_claimed(self._heads, self._files, folder)
            return found
        savepoint = self._found(folder) if options.again else self._found_or_gone(folder)
        if isinstance(savepoint, ImportRecord):
            return self._start_from_deleted(savepoint, options)
        if options.claim:
            check_no_job(folder, self._files.store, open_folder)
        if runs is not None:
            _check_fits(savepoint, runs, options, job=self._files.job, savepoint=folder.uri)
        self._heads.ensure()
        opened = self._open(folder, savepoint, options, agreed)
        if isinstance(opened, ImportEntry):
            try:
                with Spool() as body:
                    copied = ImportCopy(folder, savepoint, self._files, opened, on_progress).run(body)
                    started = self._finish(opened, copied, options, agreed)
            except (NoSavepointError, DocumentError, RefusedError):
                self._drop(opened)
                raise
        else:
            started = opened
        if options.claim:
            delete_claimed(self._heads, self._files, folder)
        return started

    def _without_reading(self, head: Head, folder: ObjectStore, options: ImportOptions) -> Started | None:
        """Answer without reading the savepoint, which may be gone; None where it has to be read."""
        claimed = record_to_delete(head, folder)
        if claimed is not None:
            return Started(claimed.checkpoint, created=False, origin=claimed.origin)
        latest = head.latest_completed()
        if options.only_if_new and latest is not None:
            record = next((each for each in head.imports if same_place(each.origin.uri, folder.uri)), None)
            return Started(latest.id, created=False, origin=record.origin if record else None)
        return None

    def _found_or_gone(self, folder: ObjectStore) -> Savepoint | ImportRecord:
        """Read the savepoint; if all its files were deleted since, give the record of the job's start from it."""
        try:
            return self._found(folder)
        except NoSavepointError:
            record = self._heads.observe(
                lambda head, _now_ms: _valid_start(head, lambda each: same_place(each.uri, folder.uri))
            )
            if record is None or next(iter(folder.list("")), None) is not None:
                raise
            return record

    def _start_from_deleted(self, record: ImportRecord, options: ImportOptions) -> Started:
        """Answer a caller that names the job's savepoint again after it was deleted."""

        def decide(head: Head, _now_ms: int) -> Decision[Started]:
            return Decision(
                *_started_before(
                    head, next((each for each in head.imports if each.token == record.token), record), options
                )
            )

        return self._heads.update(decide)[1]

    def _found(self, folder: ObjectStore) -> Savepoint:
        """Read the savepoint's metadata, and check by one listing that its files exist."""
        if is_in_job(folder.uri, self._files.store.uri, self._files.job):
            raise InvalidConfigError(
                "the savepoint lies in the job's own prefix, which the job cleans. Move it elsewhere",
                job=self._files.job,
                savepoint=folder.uri,
            )
        savepoint = integrity.load(folder)
        lacking = integrity.lacking(folder, savepoint)
        if lacking:
            raise NoSavepointError(
                "the savepoint is not whole: files are missing, or of another size, as if a copy of it had broken off. "
                "Copy it again; `cairn verify PATH` checks it",
                savepoint=folder.uri,
                lacking=len(lacking),
                first=lacking[0],
            )
        return savepoint

    def _open(
        self, folder: ObjectStore, savepoint: Savepoint, options: ImportOptions, agreed: StartPlan | None
    ) -> ImportEntry | Started:
        """Hand out an id for the copies, or find that there is nothing to do."""
        origin = _origin(folder, savepoint)

        def decide(head: Head, now_ms: int) -> Decision[ImportEntry | Started]:
            done = self._without_reading(head, folder, options)
            if done is not None:
                return Decision(done)
            record = _valid_start(head, lambda each: each.sha256 == origin.sha256)
            if record is not None and not options.again:
                return Decision(*_started_before(head, record, options))
            # Not by `_update_settled`: an answer above ends nothing, and does not depend on what is overdue.
            settled = end_overdue(self._files, head, now_ms)
            self._check_agreed(settled, origin, options, agreed)
            ongoing = settled.importing
            if ongoing is not None and ongoing.origin.sha256 == origin.sha256:
                return Decision(ongoing, changed(head, settled))
            entry = ImportEntry(origin, settled.next_id, self._runtime.new_token(), now_ms)
            return Decision(entry, replace(settled, next_id=settled.next_id + 1, importing=entry))

        return self._heads.update(decide)[1]

    def _finish(self, opened: ImportEntry, copied: Copied, options: ImportOptions, agreed: StartPlan | None) -> Started:
        """Make the copies the newest checkpoint."""
        gave_up = NOTHING

        def decide(head: Head, now_ms: int) -> Decision[Started]:
            nonlocal gave_up
            done = next((each for each in head.imports if each.token == opened.token), None)
            if done is not None:
                # Done by this call, whose answer was lost, or by another one that continued the same import.
                after = _allowing(head, done, options)
                return Decision(replace(_started(done, copied, gave_up), allowed=after is not None), after)
            if head.importing is None or head.importing.token != opened.token:
                raise RefusedError(
                    "this import was abandoned, or that of another savepoint took its place; its copies are not used. "
                    "Name the savepoint again if the job is to start from it",
                    code="resume_refused",
                    job=self._files.job,
                    savepoint=opened.origin.uri,
                )
            gave_up = self._check_agreed(head, opened.origin, options, agreed)
            checkpoint = _id_for(head, opened)
            record = ImportRecord(
                opened.origin, checkpoint, now_ms, opened.token, options.allow_non_restored_state, options.claim
            )
            entry = self._entry(opened, copied, checkpoint, now_ms)
            begun = imported(head, entry, record, gave_up.back_to, now_ms)
            return Decision(_started(record, copied, gave_up, created=True), begun)

        return self._update_settled(decide)[1]

    def _entry(self, opened: ImportEntry, copied: Copied, checkpoint: int, now_ms: int) -> CompletedEntry:
        epoch = layout.import_epoch(checkpoint)
        return CompletedEntry(
            checkpoint=checkpoint,
            epoch=epoch,
            attempt=1,
            token=opened.token,
            triggered_at_ms=opened.started_at_ms,
            completed_at_ms=max(now_ms, opened.started_at_ms),
            metadata=self._write(opened, copied, checkpoint, epoch),
            acks=copied.stages - len(copied.left_out),
            size_bytes=copied.size_bytes,
            tables=copied.tables,
            table_files={name: copied.table_files[name] for name in copied.tables},
            left_out=copied.left_out,
            read=copied.header.read,
            owing=copied.owing,
            window=window_text(copied.header.slice),
        )

    def _write(self, opened: ImportEntry, copied: Copied, checkpoint: int, epoch: str) -> DocumentRef:
        """Write the metadata under a name that belongs to this import and id; it counts once the head names it."""
        first, last = ends_of(copied, self._files.job, checkpoint, epoch)
        key = layout.metadata(checkpoint, opened.token)
        with Spool() as spool:
            spool.put(first)
            for piece in copied.body.pieces():
                spool.put(piece)
            spool.put(last)
            if not spool.create(self._files, key):
                raise NoSavepointError(
                    "other metadata is there already", job=self._files.job, key=self._files.full(key)
                )
            return spool.reference(key)

    def _check_agreed(
        self, head: Head, origin: SavepointOrigin, options: ImportOptions, agreed: StartPlan | None
    ) -> Superseded:
        found = given_up(head, self._back_to(head, origin))
        if agreed is not None and (found, origin) != (agreed.gives_up, agreed.origin):
            raise RefusedError(
                "the job or the savepoint has changed since you looked, and it would lose something else; look again",
                code="resume_refused",
                job=self._files.job,
                savepoint=origin.uri,
                agreed=agreed.gives_up.said,
                now=found.said,
            )
        if not options.give_up and found.anything:
            raise RefusedError(
                "the savepoint lacks some of what the job has done, which would be lost. Agree to that, or start a job "
                "of another name from the savepoint",
                code="resume_refused",
                job=self._files.job,
                savepoint=origin.uri,
                gives_up=found.said,
            )
        return found

    def _back_to(self, head: Head, origin: SavepointOrigin) -> int:
        """Give the newest checkpoint of this job that the savepoint holds; 0 for a savepoint of another job.

        Another job may have the same name in another storage; it has other epochs under the same ids.
        """
        checkpoint = origin.checkpoint
        if origin.job != self._files.job or checkpoint >= head.next_id:
            return 0
        known = head.completed_by_id(checkpoint) or head.ended_by_id(checkpoint)
        epoch = known.epoch if known is not None else None
        if epoch is None and head.import_of(checkpoint) is not None:
            # An imported checkpoint completed no epoch: no history or note knows it once it is no longer retained.
            epoch = layout.import_epoch(checkpoint)
        if epoch is None and completed_epochs.find(self._files, head, origin.epoch) == checkpoint:
            epoch = origin.epoch
        if epoch != origin.epoch:
            return 0
        rewind = head.rewind_of(checkpoint)
        return checkpoint if rewind is None else rewind.to

    def _drop(self, opened: ImportEntry) -> None:
        """Abandon an import that failed, so that the cleaner deletes its copies."""

        def decide(head: Head, _now_ms: int) -> Decision[None]:
            mine = head.importing is not None and head.importing.token == opened.token
            return Decision(None, replace(head, importing=None) if mine else None)

        self._heads.update(decide)


def _check_fits(found: Savepoint, runs: JobShape, options: ImportOptions, **where: str) -> None:
    """Make the checks of the next trigger (semantics R3, R4), but for the backlog of a lagging stage."""
    if not options.allow_non_restored_state and not runs.allow_non_restored_state:
        allowing = f"{ALLOWING}. For this start alone: allow_non_restored_state beside restore_from"
        check_claimed_by_hooks(found.hooks, runs.hooks, **where)
        check_claimed_by_stages(found.stages, runs.stages, allowing, **where)
        positions = found.source.slice.positions or {}
        placed = [name for name, position in positions.items() if position is not None]
        check_claimed_by_sources(placed, runs.sources, allowing, **where)
    restored_state.match(found.stages, runs.stages, **where)


def _id_for(head: Head, opened: ImportEntry) -> int:
    """Give the id of the copies, or a new one if another was handed out since: the newest checkpoint has the highest.

    A rewind since the copies began has voided all ids that were handed out by then.
    """
    free = head.next_id == opened.home + 1 and head.rewind_of(opened.home) is None
    return opened.home if free else head.next_id


def _origin(folder: ObjectStore, savepoint: Savepoint) -> SavepointOrigin:
    return SavepointOrigin(
        folder.uri, savepoint.end.sha256, savepoint.header.job, savepoint.source.checkpoint, savepoint.source.epoch
    )


def _valid_start(head: Head, same: Callable[[SavepointOrigin], bool]) -> ImportRecord | None:
    """Give the record of the job's start from a savepoint, unless the job has gone back behind it since."""
    found = (each for each in reversed(head.imports) if same(each.origin))
    return next((each for each in found if head.rewind_of(each.checkpoint) is None), None)


def _started_before(head: Head, record: ImportRecord, options: ImportOptions) -> tuple[Started, Head | None]:
    """Answer a caller that names the job's savepoint again."""
    after = _allowing(head, record, options)
    return Started(record.checkpoint, False, record.origin, allowed=after is not None), after


def _allowing(head: Head, record: ImportRecord, options: ImportOptions) -> Head | None:
    """Let the next restore leave state behind; None if it may already, the options do not ask, or it has been made."""
    latest = head.latest_completed()
    allows = options.allow_non_restored_state and not record.allow_non_restored_state
    if not allows or latest is None or latest.id != record.checkpoint:
        return None
    imports = (replace(each, allow_non_restored_state=True) if each is record else each for each in head.imports)
    return replace(head, imports=tuple(imports))


def _started(record: ImportRecord, copied: Copied, gave_up: Superseded, *, created: bool = False) -> Started:
    return Started(record.checkpoint, created, record.origin, copied.files, copied.size_bytes, gave_up)


# A savepoint that the job owns is deleted once the job has its copy (semantics R6: CLAIM).


def record_to_delete(head: Head, folder: ObjectStore) -> ImportRecord | None:
    """Give the record of the job's start from the savepoint in this folder, if the job has still to delete it."""
    return next((each for each in head.imports if each.claimed and same_place(each.origin.uri, folder.uri)), None)


def delete_claimed(heads: HeadStore, files: JobFiles, folder: ObjectStore) -> None:
    """Delete a savepoint that the job owns and has copied, continuing an earlier deletion; otherwise do nothing.

    Only for a caller that claims the savepoint: the record alone does not suffice. Deletes only files that the metadata
    names, because the folder may hold others. The metadata goes last, so that the next process can continue.
    """
    record, held = heads.observe(lambda head, _now_ms: (record_to_delete(head, folder), head.completed))
    if record is None:
        return
    try:
        check_no_job(folder, files.store)
        _check_copied(files, held, folder)
        failures = _delete_files(folder, record)
    except RefusedError as error:
        # Another job or savepoint is in the folder now: the job has its copy, and stays the savepoint's owner.
        log.warning("The savepoint is not deleted, although the job owns it: %s", error)
        return
    if failures:
        # The job still owns the savepoint, and the next start that names it continues the deletion (semantics W7).
        log.warning("The savepoint %s could not be deleted: %s", folder.uri, failures[0])
        return

    def decide(head: Head, _now_ms: int) -> Decision[None]:
        imports = tuple(
            replace(each, claimed=False) if same_place(each.origin.uri, folder.uri) else each for each in head.imports
        )
        # If this job has taken the savepoint itself, its own record of it goes, too.
        left = history.without_savepoint(head, folder.uri)
        return Decision(None, changed(head, replace(left, imports=imports)))

    heads.update(decide)


def _check_copied(files: JobFiles, held: tuple[CompletedEntry, ...], folder: ObjectStore) -> None:
    """Check that the job has a whole checkpoint: a record may claim a copy that was never made."""
    if not any(verification.verify(files, each).whole for each in reversed(held)):
        raise RefusedError("no retained checkpoint of the job is whole", code="savepoint_refused", savepoint=folder.uri)


def _delete_files(folder: ObjectStore, record: ImportRecord) -> list[DeleteFailure]:
    """Delete the savepoint that was claimed."""
    try:
        found = integrity.load(folder)
    except NoSavepointError:
        return []  # deleted before, down to its metadata
    if (found.end.sha256, found.header.job) != (record.origin.sha256, record.origin.job):
        raise RefusedError(
            "another savepoint than the one that the job was started from lies in the folder",
            code="savepoint_refused",
            savepoint=folder.uri,
        )
    named = [file.key for file in found.files]
    return list(folder.delete([*named, REQUEST])) or list(folder.delete([METADATA]))
