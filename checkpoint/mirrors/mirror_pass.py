"""One pass to a mirror: copies what the newest checkpoint names, and then lets the mirror's head name it (M1 to M4).

The order of writes is: one swap of the job's head holds the checkpoint, so that the cleaner spares it; the mirror's
head, if there is none yet; the files, each under its own key, the metadata last; one swap of the mirror's head; the
files that it names no longer are deleted; one swap of the job's head ends the hold, and says how far the mirror is.

A crash leaves the mirror as it was, beside files that nothing names: the next pass sees by `unswept` that a pass has
not ended, lists the mirror once, copies only what is missing, and deletes the rest. Two passes may run at once. Both
create the same bytes under the same names. Their swaps are ordered by the revision of the job's head that they copy.
Each deletes only what is dead by that version, and so by every later one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain

from ...storage.checksums import SHA256, algorithm_of
from ...storage.errors import CairnError, DocumentError, GoneError
from ...storage.names import same_place
from ...storage.port import DeleteFailure, ObjectStore
from ...storage.records import dataclass
from ..acts.use_case import UseCase
from ..answers import FilesProgress
from ..cleaner import Cleaner
from ..documents import layout, metadata
from ..documents.acknowledgement import StateHandle
from ..documents.attempt import DocumentRef
from ..documents.entries import CompletedEntry
from ..documents.head import Head
from ..documents.metadata import HandleLine, Line, MetadataHeader, SideList, StageLine
from ..documents.mirrors import HOLD_MS, MirrorEntry, MirrorOf
from ..errors import DamagedError, InvalidStateError, RefusedError, RetryLaterError
from ..rules import mirrors
from ..savepoints.copy_out import OCCUPIED, FileCopy, Move, handle_of, in_order
from ..store import job_files, metadata_file
from ..store.head_store import Decision, HeadStore, changed
from ..store.job_files import JobFiles
from ..validation import check_apart

AT_ONCE = 8
"""Files that are copied at once."""

TRIES = 8
"""Times that a pass begins again because another checkpoint completed before the pass had looked at its own."""


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The end of a pass."""

    checkpoint: int
    """The newest checkpoint that the mirror holds."""
    epoch: str
    files: int = 0
    """Files that this pass has copied."""
    size_bytes: int = 0
    deleted: int = 0
    failures: tuple[DeleteFailure, ...] = ()
    """Objects that could not be deleted; the next pass tries again (semantics W7)."""


@dataclass(frozen=True, slots=True)
class _Pass:
    """A pass that has begun."""

    token: str
    id: str
    """The mirror's id."""
    head: Head
    """The version of the job's head that is copied."""
    dead: Callable[[str], bool]
    """Tells whether a key is dead by that version."""
    sweeps: bool
    """Whether the mirror has to be listed, because another pass has not ended."""

    @property
    def latest(self) -> CompletedEntry:
        latest = self.head.latest_completed()
        assert latest is not None  # a pass begins with it
        return latest

    @property
    def epochs(self) -> tuple[str, ...]:
        """Epochs whose input is copied."""
        return tuple(dict.fromkeys(self.latest.folded))


class Mirroring(UseCase):
    """Mirrors one job."""

    def run(
        self,
        target: ObjectStore,
        on_progress: Callable[[FilesProgress], None] = lambda _: None,
        parallel: int | None = None,
    ) -> Mirrored:
        """Bring a mirror up to the job's newest checkpoint; do nothing where it is there already.

        Args:
            target: the root of the mirror's storage.
            on_progress: called after each file; how many there are is not known.
            parallel: files that are copied at once; None: `AT_ONCE`.

        Raises:
            RefusedError: the target lies in the job's storage, or holds another job; or the mirror was activated, and
                the job's head records that.
            NoCheckpointError: the job has completed no checkpoint.
            CheckpointError: the job is a mirror itself, or has moved elsewhere.
            DamagedError: a file of the checkpoint is gone or altered; the mirror is as it was.
            InvalidStateError: a file of version 0.1 would not be recognised in the mirror.
        """
        check_apart(target.uri, self._files.store.uri)
        there = JobFiles(target, self._files.job)
        heads = HeadStore(there, self._runtime, checked)
        begun: _Pass | None = None
        try:
            mirror = heads.load()
            found = self._up_to_date(mirror, target)
            if found is not None:
                return found
            begun = self._begin(mirror, target)
            return self._run(begun, there, heads, on_progress, parallel or AT_ONCE)
        except (_ActivatedError, CairnError) as error:
            if begun is not None:
                with suppress(CairnError):  # the hold ends by itself, too
                    self._release(begun, None, clean=False)
            if not isinstance(error, _ActivatedError):
                raise
            tell_moved(self._heads, error.id, target.uri)
            raise active(self._files, target) from None

    def _up_to_date(self, mirror: Head, target: ObjectStore) -> Mirrored | None:
        ours = self._heads.load()
        latest, entry = ours.latest_completed(), self._known(ours, mirror, target)
        if latest is None or entry is None or entry.unswept or entry.checkpoint != latest.id:
            return None
        same = mirror.latest_completed() == latest and mirror.rewinds == ours.rewinds
        kept = all(ours.completed_by_id(each.id) == each for each in mirror.completed)
        return Mirrored(latest.id, latest.epoch) if same and kept else None

    def _known(self, ours: Head, mirror: Head, target: ObjectStore) -> MirrorEntry | None:
        """Give the job's entry of a mirror; None where it is new.

        Raises:
            RefusedError: the target is not a mirror of this job.
            _ActivatedError: the mirror was activated.
        """
        entry = next((each for each in ours.mirrors if same_place(each.uri, target.uri)), None)
        of = mirror.mirror_of
        if mirror.revision == 0:
            return entry
        fits = of is not None and entry is not None and entry.id == of.id
        if of is None or not fits or not same_place(of.uri, self._files.store.uri):
            raise _refused(
                f"{target.uri}/{self._files.job} is not a mirror of this job in this storage. Name another folder, or, "
                "if nothing in it is needed, delete it",
                self._files.job,
                target,
            )
        if of.activated_at_ms:
            raise _ActivatedError(of.id)
        return entry

    def _begin(self, mirror: Head, target: ObjectStore) -> _Pass:
        """Hold the job's newest checkpoint, and find out which keys are dead."""
        token, fresh = self._runtime.new_token(), self._runtime.new_token()
        sweeps = False

        def decide(head: Head, now_ms: int) -> Decision[str]:
            nonlocal sweeps
            known = self._known(head, mirror, target)
            holds = known.holds if known is not None else ()
            if not any(each.token == token for each in holds) or any(each.until_ms <= now_ms for each in holds):
                sweeps = known is not None and known.unswept
            id_ = known.id if known is not None else fresh
            return Decision(id_, mirrors.held(head, self._files.store.uri, target.uri, id_, token, now_ms))

        for _ in range(TRIES):
            id_ = self._heads.update(decide)[1]
            head, dead = Cleaner(self._job).judged()
            if mirrors.is_held(head, id_, token):
                return _Pass(token, id_, head, dead, sweeps)
        raise RetryLaterError(
            "checkpoints kept completing before the pass had looked at one; nothing was copied, try again",
            code="too_much_contention",
            job=self._files.job,
        )

    def _check_mine(self, mirror: Head, begun: _Pass, target: ObjectStore) -> MirrorOf:
        of = mirror.mirror_of
        if of is None or of.id != begun.id:
            raise _refused("another job has taken the mirror's folder. Name another folder", self._files.job, target)
        if of.activated_at_ms:
            raise _ActivatedError(begun.id)
        return of

    def _claimed(self, begun: _Pass, heads: HeadStore, of: MirrorOf, target: ObjectStore) -> Head:
        """Give the mirror's head; if there is none, create it, before any other object."""

        def decide(head: Head, _now_ms: int) -> Decision[None]:
            if head.revision:
                self._check_mine(head, begun, target)
                return Decision(None)
            return Decision(None, Head(self._files.job, mirror_of=of))

        return heads.update(decide)[0]

    def _run(
        self,
        begun: _Pass,
        there: JobFiles,
        heads: HeadStore,
        on_progress: Callable[[FilesProgress], None],
        parallel: int,
    ) -> Mirrored:
        of = MirrorOf(begun.id, self._files.store.uri)
        before = self._claimed(begun, heads, of, there.store)
        named, files, size_bytes = self._copy_all(begun, there, before, on_progress, parallel)
        of = replace(
            of,
            revision=begun.head.revision,
            at_ms=self._runtime.now_ms(),
            again=mirrors.begun(begun.head),
        )

        def decide(mirror: Head, _now_ms: int) -> Decision[Head | None]:
            if self._check_mine(mirror, begun, there.store).revision >= of.revision:
                return Decision(None)
            return Decision(mirror, mirrors.mirrored(mirror, begun.head, of))

        after, replaced = heads.update(decide)
        if replaced is None:
            return self._overtaken(begun, after, there.store)
        gone, failures, unnamed = self._drop(begun, there, replaced, after, named)
        self._release(begun, begun.head, clean=not failures and not unnamed)
        return Mirrored(begun.latest.id, begun.latest.epoch, files, size_bytes, gone, failures)

    def _copy_all(
        self,
        begun: _Pass,
        there: JobFiles,
        mirror: Head,
        on_progress: Callable[[FilesProgress], None],
        parallel: int,
    ) -> tuple[set[str], int, int]:
        """Copy what the mirror lacks; gives the keys that are there now, the number of files, and their bytes."""
        present = {found.key for found in there.listing("")} if begun.sweeps else set()
        copying = FileCopy(self._files, there, partial(self._altered, begun, there))
        named = self._named(there, mirror)
        lacking = self._contents(begun, there, frozenset(named), first=not mirror.completed)
        files = size_bytes = 0
        renew_at = self._runtime.now_ms() + HOLD_MS // 2

        def copied(handles: Iterable[StateHandle]) -> Iterator[StateHandle]:
            moves: Iterator[Move[StateHandle] | StateHandle]
            moves = (partial(self._copy, copying, each, present) for each in handles)
            return in_order(moves, parallel)

        # A slice is copied after the lists that it names: an activated mirror takes each slice it finds (semantics T8).
        for handle in chain(copied(lacking), copied(self._described(*map(layout.epoch_slice, begun.epochs)))):
            named.add(handle.path)
            files, size_bytes = files + 1, size_bytes + handle.size_bytes
            on_progress(FilesProgress(0, files, 0, size_bytes))
            if self._runtime.now_ms() >= renew_at:
                self._heads.update(lambda head, now_ms: self._renewed(head, begun, now_ms))
                renew_at = self._runtime.now_ms() + HOLD_MS // 2
        # The metadata comes last, as in a savepoint: where it exists, all files that it names exist.
        self._copy(copying, handle_of(begun.latest.metadata), present)
        return named, files + 1, size_bytes + begun.latest.metadata.size_bytes

    def _overtaken(self, begun: _Pass, mirror: Head, target: ObjectStore) -> Mirrored:
        """End a pass that another has overtaken; files that only this one copied stay for the next pass (`unswept`)."""
        of, latest = mirror.mirror_of, mirror.latest_completed()
        assert of is not None
        if latest is None or self._heads.load().revision < of.revision:
            raise _refused(
                "the mirror holds a newer version of the job than the storage: the job's head.json was put back from a "
                "backup. Activate the mirror, or mirror the job to a new folder",
                self._files.job,
                target,
            )
        self._release(begun, None, clean=False)
        return Mirrored(latest.id, latest.epoch)

    def _release(self, begun: _Pass, made: Head | None, *, clean: bool) -> None:
        def decide(head: Head, _now_ms: int) -> Decision[None]:
            after = mirrors.released(head, begun.id, begun.token, made, clean=clean)
            return Decision(None, changed(head, after))

        self._heads.update(decide)

    @staticmethod
    def _renewed(head: Head, begun: _Pass, now_ms: int) -> Decision[None]:
        return Decision(None, changed(head, mirrors.renewed(head, begun.id, begun.token, now_ms)))

    def _named(self, there: JobFiles, mirror: Head) -> set[str]:
        """Give the keys that the newest checkpoint in the mirror names; their objects exist."""
        latest = mirror.latest_completed()
        keys = _beside(mirror)
        if latest is not None:
            with suppress(GoneError, DocumentError):  # a damaged mirror is copied anew
                keys.update([handle.path for handle in _handles(there, latest.metadata, ())])
        return keys

    def _contents(self, begun: _Pass, there: JobFiles, named: Collection[str], *, first: bool) -> Iterator[StateHandle]:
        """Yield the files of a checkpoint that the mirror lacks, each once; its metadata is left out."""
        seen = {begun.latest.metadata.key, *named}
        for handle in self._all_of(begun, there, named, first=first):
            if handle.path not in seen:
                seen.add(handle.path)
                yield handle

    def _all_of(self, begun: _Pass, there: JobFiles, named: Collection[str], *, first: bool) -> Iterator[StateHandle]:
        yield from (handle_of(segment.document) for segment in begun.head.segments)
        yield from (handle_of(each) for each in mirrors.owed(begun.head))
        try:
            yield from _handles(self._files, begun.latest.metadata, named)
        except (GoneError, DocumentError) as error:
            raise self._altered(begun, there, begun.latest.metadata.key, error.message) from error
        # A checkpoint that turns out damaged in the mirror is made again from the input of its epochs (semantics T8).
        for epoch in begun.epochs:
            yield from self._described(*_lists(self._files, epoch))
        if first and begun.head.notes_below != 1:
            # Version 0.1 noted each completed epoch by itself (semantics T9).
            yield from self._described(*(found.key for found in self._files.listing(f"{layout.EPOCHS}completed/")))

    def _described(self, *keys: str) -> Iterator[StateHandle]:
        for key in keys:
            with suppress(GoneError):
                size_bytes, sha256 = self._files.checksum(key, SHA256)
                yield StateHandle(metadata.LIST_KIND, key, size_bytes, sha256, sha256)

    def _copy(self, copying: FileCopy, handle: StateHandle, present: Collection[str]) -> StateHandle:
        known = job_files.known(handle)
        if handle.path not in present or job_files.altered(copying.target, handle) is not None:
            copying.copy(handle, algorithm_of(known) if known else SHA256)
        if known is None and copying.target.stat(handle.path).etag != handle.checksum:
            raise InvalidStateError(
                "only the tag of a file is known, as version 0.1 wrote it, and its copy in the mirror has another. "
                "Take a savepoint, start the job from it, and mirror that",
                job=self._files.job,
                key=handle.path,
            )
        return handle

    def _altered(self, begun: _Pass, there: JobFiles, key: str, problem: str) -> DamagedError:
        job, option = self._files.job, self._files.storage_option
        where = (
            f"in the mirror {there.full(key)} is another object than in the job. Delete it there and mirror again"
            if problem == OCCUPIED
            else f"a file of the checkpoint cannot be copied: {problem}. `cairn verify {job} {option}` says what is "
            "damaged; the next pass copies the newest checkpoint then"
        )
        if begun.head.moved is not None:
            where += (
                ". The job has stopped here, to move. Without `--from` `cairn activate` goes on there from what the "
                f"mirror holds; `cairn mirror {job} --to {there.store.uri} --give-up {option}` goes on here"
            )
        return DamagedError(
            where,
            code="mirror_damaged",
            job=self._files.job,
            checkpoint=begun.latest.id,
            key=key,
            mirror=there.store.uri,
        )

    def _drop(
        self, begun: _Pass, there: JobFiles, before: Head, after: Head, named: set[str]
    ) -> tuple[int, tuple[DeleteFailure, ...], bool]:
        """Delete files that the mirror's head names no longer, and with a sweep those that no head has named.

        Returns:
            Number of deleted files, failures, and whether files stay because the job still needs them.
        """
        if begun.sweeps:
            keys = [found.key for found in there.listing("")]
            for upload in there.uploads():
                if begun.dead(there.bare(upload.key)):
                    there.store.abort_upload(upload)
        else:
            left = [each for each in before.completed if each not in after.completed]
            keys = [*(_beside(before) - _beside(after))]
            try:
                for entry in left:
                    keys += [entry.metadata.key, *(each.path for each in _handles(there, entry.metadata, ()))]
                    for epoch in entry.folded:
                        keys += (layout.epoch_slice(epoch), *_lists(there, epoch))
            except (GoneError, DocumentError) as error:
                return 0, (DeleteFailure(there.full(left[0].metadata.key), error.message),), True
        dead = [key for key in dict.fromkeys(keys) if begun.dead(key)]
        failures = tuple(there.delete(dead)) if dead else ()
        spared = {key for key in keys if layout.checkpoint_of(key) is not None} - {*dead, *named}
        return len(dead) - len(failures), failures, bool(spared) and self._holds_unnamed(there, after, spared)

    def _holds_unnamed(self, there: JobFiles, mirror: Head, spared: set[str]) -> bool:
        """Tell whether the mirror holds a file that its head does not name."""
        for entry in mirror.completed:
            spared -= {entry.metadata.key, *(handle.path for handle in _handles(there, entry.metadata, ()))}
        return bool(spared - _beside(mirror))


class _ActivatedError(Exception):
    """The mirror was activated, so no pass writes to it."""

    def __init__(self, id_: str) -> None:
        super().__init__(id_)
        self.id = id_


def active(files: JobFiles, target: ObjectStore) -> RefusedError:
    """Give the error of a pass to a mirror that was activated, or of an attempt to give it up."""
    return RefusedError(
        f"the mirror in {target.uri} was activated: the job goes on there, and has stopped here. Let its DAG run "
        "with that storage. What has completed here since is not in the mirror",
        code="mirror_activated",
        job=files.job,
        storage=files.store.uri,
    )


def tell_moved(heads: HeadStore, mirror: str, uri: str) -> None:
    """Note in a job's head that it goes on in its mirror; nothing that is pending completes any more."""

    def decide(head: Head, now_ms: int) -> Decision[None]:
        return Decision(None, changed(head, mirrors.moved_to(head, mirror, uri, now_ms)))

    heads.update(decide)


def _beside(mirror: Head) -> set[str]:
    """Give the keys that a mirror's head names beside its checkpoints."""
    return {each.key for each in (*(segment.document for segment in mirror.segments), *mirrors.owed(mirror))}


def _handles(files: JobFiles, ref: DocumentRef, named: Collection[str]) -> Iterator[StateHandle]:
    """Yield all that a checkpoint's metadata names: files, tables' manifests and files, side lists.

    Manifests in `named` are passed over, with their files.
    """
    for line in metadata_file.read(files, ref):
        if isinstance(line, HandleLine):
            if metadata_file.is_list(line.handle):
                for manifest in metadata_file.read_list(files, line.handle).manifests:
                    if manifest.document.key not in named:
                        yield from metadata_file.read_manifest(files, manifest)
                        yield handle_of(manifest.document)
            yield line.handle
        else:
            yield from (handle_of(each, each.etag) for each in _side_lists(line))


def _side_lists(line: Line) -> Iterator[SideList]:
    if isinstance(line, MetadataHeader):
        yield from metadata.referred(line.slice.positions)
    elif isinstance(line, StageLine):
        for unread in line.owes:
            if unread.slice is not None:
                yield from metadata.referred([unread.slice.sources, unread.slice.positions])


def _lists(files: JobFiles, epoch: str) -> Iterator[str]:
    return (found.key for found in files.listing(f"{layout.EPOCH_LISTS}{epoch}/"))


def _refused(text: str, job: str, target: ObjectStore) -> RefusedError:
    return RefusedError(text, code="mirror_refused", job=job, mirror=target.uri)


def checked(old: Head, new: Head, _now_ms: int) -> Head:
    """Check that a pass may make this change of a mirror's head."""
    ids = [each.id for each in new.completed]
    assert new.job == old.job
    assert old.next_id <= new.next_id > max(ids, default=0)
    assert not new.pending
    assert new.is_mirror
    assert old.revision == 0 or old.is_mirror
    return new
