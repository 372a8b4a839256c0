"""Deletes dead files: of ended attempts, of subsumed checkpoints, of superseded drivers (semantics C3, D4, W7).

`find_live` finds the live files for one version of the head; all others are dead. These files are live:

- all files of a pending attempt's executions, and of executions that the next attempt may carry over;
- the checkpoints that these attempts restore;
- the metadata of each retained checkpoint, and of each source of a savepoint, with every file that it names;
- the copies of a savepoint that is being imported, and the files that a waiting notice needs;
- what a pass to a mirror copies, until its hold ends;
- the records of the newest failed checkpoints, for people (O3);
- files that the positions of sources name, in attempts and checkpoints.

A dead file never comes back to life: ids and tokens are never used again, an attempt whose executions cannot be carried
over stays that way (`Head.carryable`), and the input of a completed epoch is read again only if a retained checkpoint
that held it is damaged. So no lock is needed: completions, failovers and other cleaners may run at the same time. If a
cleaning crashes, the next one finishes the work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field

from ..storage.errors import DocumentError, ForbiddenError, GoneError
from ..storage.port import DeleteFailure, ObjectStat, PendingUpload
from ..storage.records import dataclass
from .acts.use_case import UseCase
from .answers import EpochCompleted, FilesProgress
from .documents import layout
from .documents.acknowledgement import TABLE_BYTES, CompactionDocument, StateHandle
from .documents.attempt import DocumentRef, PendingDocument
from .documents.entries import EndedEntry
from .documents.head import Head, check_no_mirror
from .errors import DamagedError
from .extensions.committables import kept_for
from .reasons import Status
from .store import completed_epochs, metadata_file
from .store.attempt_documents import AttemptDocuments
from .store.job_files import JobFiles
from .store.metadata_file import LastSeen, References, keys_of


@dataclass(slots=True)
class Live:
    """Live files: as keys, as executions, and as folders that are kept because their metadata is unreadable."""

    keys: set[str] = field(default_factory=set)
    tokens: set[tuple[int, str, str]] = field(default_factory=set)
    """Home, stage and token of executions all of whose files are kept."""
    epochs: set[str] = field(default_factory=set)
    """Epochs whose input may be read again; their slices are kept."""
    pending_metadata: set[str] = field(default_factory=set)
    """Keys of pending checkpoints' metadata; variants that leave out stages are kept too."""
    imports: set[int] = field(default_factory=set)
    """Checkpoints into whose folders a savepoint is being copied; all files in them are kept."""
    recorded: Mapping[int, EndedEntry] = field(default_factory=dict)
    """Failed checkpoints whose record is kept, for people (semantics O3)."""
    outdated: bool = False
    """Whether the document of a carryable attempt could not be read. Another cleaner may have deleted the document
    after the next attempt took over: read the head again, and discard this result if the head has changed."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Unreadable metadata, with the problem; its folder and all older ones are kept."""

    def holds(self, key: str) -> bool:
        """Tell whether a live object refers to the key, or may do so."""
        if key in self.keys or layout.whole_metadata(key) in self.pending_metadata:
            return True
        if layout.execution_of(key) in self.tokens or self._is_record(key):
            return True
        checkpoint = layout.checkpoint_of(key) or 0
        if checkpoint in self.imports:
            return True
        return any(checkpoint <= (layout.checkpoint_of(broken) or 0) for broken in self.unknown)

    def _is_record(self, key: str) -> bool:
        """Tell whether a key is part of a record; a rejected acknowledgement is deleted with its files."""
        ended, execution = self.recorded.get(layout.record_of(key) or 0), layout.execution_of(key)
        if ended is None or execution is None:
            return ended is not None
        return execution[2] not in ended.rejected or not key.startswith(layout.ack_folder(*execution[:2]))


def find_live(files: JobFiles, documents: AttemptDocuments, head: Head, known: LastSeen, now_ms: int) -> Live:
    """Find the live files: read the documents of attempts and the metadata of every retained checkpoint.

    Args:
        files: the job's files.
        documents: reads the documents of attempts.
        head: the version of the head.
        known: references of the metadata that this process wrote last, so that it is not read again.
        now_ms: the time, milliseconds since 1970 UTC: holds of passes to mirrors end by it.
    """
    live = Live(recorded=head.recorded())
    for entry in head.pending:
        live.keys.add(layout.pending(entry.id, entry.token))
        live.pending_metadata.add(layout.metadata(entry.id, entry.token))
        _keep_attempt(files, known, live, documents.of(entry), ())
    for epoch in head.incomplete():
        ended = head.carryable(epoch)
        document = documents.readable(ended)
        live.outdated |= ended is not None and document is None
        if ended is not None and document is not None:
            live.keys.add(layout.pending(ended.id, ended.token))
            _keep_attempt(files, known, live, document, ended.rejected)
        unfinished = head.unfinished(epoch)
        if unfinished is not None:
            # The next attempt needs its document even if none of its executions can be carried over.
            live.keys.add(layout.pending(unfinished.id, unfinished.token))
            live.keys |= _claims(documents.readable(unfinished))
    for completed in head.completed:
        live.epochs.update(completed.folded)
        _keep_completed(files, known, live, completed.metadata)
    live.keys.update(segment.document.key for segment in head.segments)
    if head.importing is not None:
        live.imports.add(head.importing.home)
    for savepoint in head.savepoints:
        if savepoint.status is Status.PENDING and savepoint.source is not None:
            _keep_completed(files, known, live, savepoint.source.metadata)
    for hold in (each for mirror in head.mirrors for each in mirror.holds if each.until_ms > now_ms):
        _keep_completed(files, known, live, hold.source.metadata)
        live.keys.update(hold.files)
        live.epochs.update(hold.epochs)
    # Last, because metadata whose key is live already counts as read.
    for notice in head.notices:
        live.keys |= kept_for(files, notice)
    return live


def _claims(document: PendingDocument | None) -> set[str]:
    """Return the handovers and declines of an attempt, which show the tasks that have run and must run again."""
    if document is None:
        return set()
    executions = document.executions.items()
    claimed = {layout.handover(each.home, uid, each.token) for uid, each in executions}
    return claimed | {layout.decline(each.home, uid, each.token) for uid, each in executions}


def _keep_attempt(
    files: JobFiles, known: LastSeen, live: Live, document: PendingDocument, rejected: Collection[str]
) -> None:
    live.tokens.update(
        (execution.home, uid, execution.token)
        for uid, execution in document.executions.items()
        if execution.token not in rejected
    )
    if document.hooks is not None and document.hooks.token not in rejected:
        live.keys.add(layout.hook_answers(document.hooks.home, document.hooks.token))
    live.epochs.update((document.epoch, *(replayed.epoch for replayed in document.replay)))
    live.keys.update(keys_of(document.slice))
    if document.restore is not None:
        _keep_completed(files, known, live, document.restore.metadata)


def _keep_completed(files: JobFiles, known: LastSeen, live: Live, ref: DocumentRef) -> None:
    if ref.key in live.keys:
        return
    live.keys.add(ref.key)
    referred = known.of(ref)
    try:
        if referred is None:
            referred = References()
            for _ in referred.through(metadata_file.read(files, ref)):
                pass
        for listed in referred.lists:
            _keep_table(files, live, listed)
    except (GoneError, DocumentError) as error:
        problem = f"the metadata is unreadable, so this checkpoint's folder and older ones were not cleaned: {error}"
        live.unknown[ref.key] = problem
    if referred is not None:
        live.keys |= referred.keys
        live.epochs |= referred.epochs


def _keep_table(files: JobFiles, live: Live, listed: StateHandle) -> None:
    """Keep the manifests and files of a growing table; checkpoints share manifests, and each is read once."""
    for manifest in metadata_file.read_list(files, listed).manifests:
        if manifest.document.key not in live.keys:
            live.keys.update(handle.path for handle in metadata_file.read_manifest(files, manifest))
            live.keys.add(manifest.document.key)


MAX_FOREIGN = 100
"""Maximum number of foreign objects that one report names."""

AT_ONCE = 1_000
"""Files that are deleted with one request."""

MAX_SLICES = 1_000
"""Maximum number of slices that one cleaning checks: a page of a listing."""


LOOK_EVERY = 10
"""Checkpoint ids after which a cleaning looks for uploads although no attempt has failed."""


@dataclass(frozen=True, slots=True)
class CleanReport:
    """Result of one cleaning."""

    deleted: int
    """Number of deleted objects."""
    uploads_aborted: int
    """Number of aborted multipart uploads of dead drivers."""
    failures: tuple[DeleteFailure, ...]
    """Objects that could not be deleted; the next cleaning tries again, and nothing fails (semantics W7)."""
    foreign: tuple[str, ...] = ()
    """Objects in the checkpoints' folders that Cairn did not write. They are not deleted; at most `MAX_FOREIGN`."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Objects that a cleaning would delete, and objects that it would keep."""

    dead: tuple[ObjectStat, ...]
    """Unreferenced objects with content."""
    uploads: tuple[PendingUpload, ...]
    """Multipart uploads of dead drivers."""
    foreign: tuple[str, ...]
    """As in `CleanReport`."""
    unknown: dict[str, str]
    """Unreadable metadata, by key, with the problem."""


class Cleaner(UseCase):
    """Cleans one job's folders."""

    def leftovers(self) -> Leftovers:
        """Find the objects that `clean` would delete, without deleting them.

        Raises:
            GoneError: the document of a pending attempt is gone.
            DocumentError: that document is broken.
            ForbiddenError: the store does not let uploads be listed.
        """
        head, live = self._look()
        compacted = Compactions(self._files, head, live, self._look_anew)
        foreign: list[str] = []
        # An object of size 0 may be an epoch's slice that `_below` yields without a check that it exists.
        dead = tuple(found for found in self._dead(head, live, compacted, foreign) if found.size_bytes)
        uploads = tuple(self._dead_uploads(head, live, compacted))
        return Leftovers(dead, uploads, tuple(foreign), {**live.unknown, **compacted.broken})

    def clean(
        self, on_progress: Callable[[FilesProgress], None] = lambda _: None, *, spares_looks: bool = False
    ) -> CleanReport:
        """Delete all dead files of the job's checkpoints and dead lists of epochs' input, and abort dead uploads.

        If the metadata of a retained checkpoint is gone or broken, its references are unknown: then its folder and all
        older ones stay as they are, and the report names it.

        Args:
            on_progress: called after each `AT_ONCE` files.
            spares_looks: clean by the head that this process knows, and look for uploads, which drivers leave that die,
                only after a failed attempt and at every tenth id: for a caller that cleans after each checkpoint.

        Raises:
            GoneError: the document of a pending attempt is gone; nothing was deleted.
            DocumentError: that document is broken; nothing was deleted.
            CheckpointError: this is a mirror that nobody has activated, whose passes clean it.
        """
        head, live = self._look(known=spares_looks)
        check_no_mirror(head, self._files.store.uri)
        compacted = Compactions(self._files, head, live, self._look_anew)
        foreign: list[str] = []
        dead = list(self._dead(head, live, compacted, foreign))
        size_bytes, bytes_done = sum(found.size_bytes for found in dead), 0
        failures: list[DeleteFailure] = []
        for start in range(0, max(1, len(dead)), AT_ONCE):
            part = dead[start : start + AT_ONCE]
            failures += self._files.delete(found.key for found in part)
            bytes_done += sum(found.size_bytes for found in part)
            if part:
                on_progress(FilesProgress(len(dead), start + len(part), size_bytes, bytes_done))
        aborted, unaborted = 0, list[DeleteFailure]()
        if not spares_looks or _may_have_left_uploads(head):
            aborted, unaborted = self._abort_uploads(head, live, compacted)
        unreadable = {**live.unknown, **compacted.broken}
        unknown = [DeleteFailure(self._files.full(key), reason) for key, reason in unreadable.items()]
        return CleanReport(len(dead) - len(failures), aborted, (*failures, *unaborted, *unknown), tuple(foreign))

    def judged(self) -> tuple[Head, Callable[[str], bool]]:
        """Give a version of the head, and a function that tells of a key whether it is dead by that, and so for ever.

        Raises:
            GoneError, DocumentError: as `clean`.
        """
        head, live = self._look()
        compacted = Compactions(self._files, head, live, self._look_anew)

        def dead(key: str) -> bool:
            checkpoint = layout.checkpoint_of(key)
            if checkpoint is None and layout.epoch_of_list(key) is None and layout.epoch_of_slice(key) is None:
                return False
            newer = checkpoint is not None and checkpoint >= head.next_id
            return not newer and not self._holds(head, live, key) and not compacted.holds(key)

        return head, dead

    def _look(self, *, own: bool = True, known: bool = False) -> tuple[Head, Live]:
        return self._heads.observe(
            lambda head, now_ms: (head, find_live(self._files, self._documents, head, self._job.known, now_ms)),
            doubt=lambda found: found[1].outdated or bool(found[1].unknown),
            # A file that no version of the head refers to stays dead.
            own=own,
            known=known,
        )

    def _look_anew(self) -> Live:
        return self._look(own=False)[1]

    def _dead(self, head: Head, live: Live, compacted: Compactions, foreign: list[str]) -> Iterator[ObjectStat]:
        done = head.completions().keys() - live.epochs
        for found in self._below(head, done, foreign):
            if not self._holds(head, live, found.key) and not compacted.holds(found.key):
                yield found

    def _below(self, head: Head, done: Collection[str], foreign: list[str]) -> Iterator[ObjectStat]:
        """Yield the objects in folders of ids that the head has handed out, the epochs' lists, and their slices.

        Folders of newer ids are skipped, because a trigger may be writing to them. Other keys are skipped and noted
        in `foreign`: another tool wrote them, and Cairn deletes only its own files. If there are more than
        `MAX_SLICES` slices (version 0.1 kept them all), the slices of the epochs in `done` are yielded without a
        look, with size 0.
        """
        slices = 0
        for found in self._files.listing("", start_after="chk-"):
            checkpoint = layout.checkpoint_of(found.key)
            if checkpoint is None and layout.epoch_of_list(found.key) is None:
                if found.key.startswith(layout.EPOCHS):
                    slices += 1
                    if slices > MAX_SLICES or layout.epoch_of_slice(found.key) is None:
                        yield from (ObjectStat(layout.epoch_slice(epoch), 0, None) for epoch in done)
                        return
                    yield found
                elif found.key > layout.EPOCHS:
                    return  # keys are sorted: no key after this belongs to the cleaner
                elif len(foreign) < MAX_FOREIGN:
                    foreign.append(self._files.full(found.key))
            elif checkpoint is None or checkpoint < head.next_id:
                yield found

    def _holds(self, head: Head, live: Live, key: str) -> bool:
        fixed = layout.epoch_of_slice(key)
        if fixed is not None:
            # The head suffices: slices of epochs that it has forgotten were deleted a hundred checkpoints ago.
            return fixed in live.epochs or bool(live.unknown) or fixed not in head.completions()
        epoch = layout.epoch_of_list(key)
        if epoch is None or key in live.keys:
            return live.holds(key)
        if epoch in live.epochs or live.unknown:
            return True
        # Any later trigger of the epoch reads this list, until the epoch has completed.
        try:
            return not isinstance(completed_epochs.where_is(self._files, head, epoch), EpochCompleted)
        except DamagedError:
            return True

    def _abort_uploads(self, head: Head, live: Live, compacted: Compactions) -> tuple[int, list[DeleteFailure]]:
        aborted = 0
        failures: list[DeleteFailure] = []
        try:
            for upload in self._dead_uploads(head, live, compacted):
                try:
                    self._files.store.abort_upload(upload)
                    aborted += 1
                except ForbiddenError as error:
                    failures.append(DeleteFailure(upload.key, str(error)))
        except ForbiddenError as error:
            failures.append(DeleteFailure(self._files.prefix, f"its pending uploads cannot be listed: {error}"))
        return aborted, failures

    def _dead_uploads(self, head: Head, live: Live, compacted: Compactions) -> Iterator[PendingUpload]:
        for upload in self._files.uploads():
            key = self._files.bare(upload.key)
            checkpoint = layout.checkpoint_of(key)
            handed_out = checkpoint is not None and checkpoint < head.next_id
            if handed_out and not live.holds(key) and not compacted.holds(key):
                yield upload


def _may_have_left_uploads(head: Head) -> bool:
    """Tell whether an attempt has failed since the checkpoint before the newest, or an id was the tenth."""
    if len(head.completed) < 2:
        return True
    before, newest = head.completed[-2].id, head.completed[-1].id
    tenth = before // LOOK_EVERY != newest // LOOK_EVERY
    return tenth or any(each.id > before and each.status is Status.FAILED for each in head.history)


# Live compactions: those that may still be adopted (semantics K7).
#
# An epoch may adopt a new base if its restored checkpoint names every file that the base replaces. So as soon as one of
# these files is dead, the compaction's record and files are dead, too, unless a checkpoint has adopted the base and
# names them. A compaction without a record is dead: the record is created before the first file, and is looked up after
# the file was listed. A dead compaction never comes back to life, because no other one replaces its files.
#
# A checkpoint newer than the cleaner's head may have adopted the base, and another cleaner may have deleted the record
# since. So if a record shows that its base is dead, a head that is read after the record decides.


class Compactions:
    """Finds the live compactions for one cleaning; reads each record once.

    Args:
        files: the job's files.
        head: the head of the cleaning.
        live: live files by that head.
        look: reads the head again, and gives the live files by that.
    """

    def __init__(self, files: JobFiles, head: Head, live: Live, look: Callable[[], Live]) -> None:
        self._files = files
        self._head = head
        self._live = live
        self._look = look
        self._stay: dict[str, bool] = {}
        self._later: dict[str, Live] = {}
        """Live files by a head that was read after a record whose base is dead, by the record's key."""
        self.broken: dict[str, str] = {}
        """Unreadable records, with the problem; they stay, with their files."""

    def holds(self, key: str) -> bool:
        """Tell whether a file belongs to a live compaction."""
        record = layout.compaction_of(key)
        if record is None:
            return False
        if record not in self._stay:
            self._stay[record] = True  # during the recursion: a damaged record may name its own files
            self._stay[record] = self._stays(record)
            if not self._stay[record]:
                self._later[record] = self._look()
        return self._stay[record] or self._later[record].holds(key)

    def _stays(self, record: str) -> bool:
        try:
            document, _ = self._files.read(CompactionDocument, record, max_bytes=TABLE_BYTES)
        except GoneError:
            return False
        except DocumentError as error:
            self.broken[record] = f"the record is unreadable, so the compaction's files were not deleted: {error}"
            return True
        return not document.given_up and all(self._lives(handle.path) for handle in document.replaces)

    def _lives(self, key: str) -> bool:
        # A file that a newer head refers to is in a newer folder, or this head refers to it too.
        newer = (layout.checkpoint_of(key) or 0) >= self._head.next_id
        return newer or self._live.holds(key) or self.holds(key)
