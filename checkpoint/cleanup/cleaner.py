"""Deletes unreferenced files: of dead attempts, of subsumed checkpoints, of drivers that lost (semantics C3, D4, W7).

`live.py` finds the live files for one version of the head. A dead file never comes back to life: ids and tokens are
never used again, an attempt that is not carryable never becomes so (`Head.carryable`), and the input of a completed
epoch is read again only if a retained checkpoint that held it is damaged. So no lock is needed: completions, failovers
and other cleaners may run at the same time, and the next cleaning finishes one that dies half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from ...storage.errors import DocumentError, ForbiddenError, GoneError
from ...storage.port import DeleteFailure, ObjectStat, PendingUpload
from ..answers import EpochCompleted, FilesProgress
from ..documents import layout
from ..documents.acknowledgement import TABLE_BYTES, CompactionDocument
from ..documents.head import Head
from ..errors import DamagedError
from ..store import completed_epochs
from ..store.head_store import UseCase
from ..store.job_files import JobFiles
from .live import Live, find_live

MAX_FOREIGN = 100
"""Foreign keys that one report names."""

AT_ONCE = 1_000
"""Files that are deleted with one request."""

MAX_SLICES = 1_000
"""Epochs' slices that a cleaning looks at: as many as one page of a listing."""


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
    """Keys among the checkpoints' folders that Cairn has not written, so they stay; at most `MAX_FOREIGN`."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Objects that a cleaning would delete, and those that it would leave alone."""

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
            DocumentError: it is broken.
            ForbiddenError: the store does not let uploads be listed.
        """
        head, live = self._look()
        compacted = Compactions(self._files, head, live, self._look_anew)
        foreign: list[str] = []
        # An object of size 0 may be an epoch's slice that `_below` has named without looking.
        dead = tuple(found for found in self._dead(head, live, compacted, foreign) if found.size_bytes)
        uploads = tuple(self._dead_uploads(head, live, compacted))
        return Leftovers(dead, uploads, tuple(foreign), {**live.unknown, **compacted.broken})

    def clean(self, on_progress: Callable[[FilesProgress], None] = lambda _: None) -> CleanReport:
        """Delete all dead files of the job's checkpoints and dead lists of epochs' input, and abort dead uploads.

        If the metadata of a retained checkpoint is gone or broken, its references are unknown: then its folder and all
        older ones stay as they are, and the report names it.

        Args:
            on_progress: called after each `AT_ONCE` files.

        Raises:
            GoneError: the document of a pending attempt is gone; nothing was deleted.
            DocumentError: it is broken; nothing was deleted.
        """
        head, live = self._look()
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
        aborted, unaborted = self._abort_uploads(head, live, compacted)
        unreadable = {**live.unknown, **compacted.broken}
        unknown = [DeleteFailure(self._files.full(key), reason) for key, reason in unreadable.items()]
        return CleanReport(len(dead) - len(failures), aborted, (*failures, *unaborted, *unknown), tuple(foreign))

    def _look(self, *, own: bool = True) -> tuple[Head, Live]:
        return self._heads.observe(
            lambda head, now_ms: (head, find_live(self._files, self._documents, head, self._known)),
            doubt=lambda found: found[1].outdated or bool(found[1].unknown),
            # A file that is dead by any head stays dead.
            own=own,
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

        In the folders of other ids a trigger may be writing. Other keys are skipped and noted in `foreign`: another
        tool has written them, and Cairn deletes only its own files. If there are more than `MAX_SLICES` slices (version
        0.1 kept them all), the slices of the epochs in `done` are yielded without a look, with size 0.
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
                    return  # in the order of keys, all files of a cleaner come before
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
            self.broken[record] = f"which files it replaces is not known, so its files were not deleted: {error}"
            return True
        return not document.given_up and all(self._lives(handle.path) for handle in document.replaces)

    def _lives(self, key: str) -> bool:
        # A file that a newer head names is in a newer folder, or live by our head.
        newer = (layout.checkpoint_of(key) or 0) >= self._head.next_id
        return newer or self._live.holds(key) or self.holds(key)
