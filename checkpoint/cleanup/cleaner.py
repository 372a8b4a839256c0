"""Deletes what nothing refers to: files of dead attempts, of subsumed checkpoints, of drivers that lost (C3, D4, W7).

What is alive is decided by `live.py` from one version of the head. Nothing outside it can come back to life later: ids
and tokens are never used again, what is not carryable never becomes so (`Head.carryable`), and an epoch that has
completed is read again only where a retained checkpoint that held it is damaged. So no lock is needed:
completions, failovers and other cleaners may go on meanwhile, and a cleaning that dies half-way is finished by the
next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from ...storage.errors import ForbiddenError
from ...storage.port import DeleteFailure, ObjectStat, PendingUpload
from ..answers import EpochCompleted, FilesProgress
from ..documents import layout
from ..documents.head import Head
from ..errors import CompletedEpochsLostError
from ..open_job import UseCase
from ..store import completed_epochs
from .compacted import Compactions
from .live import Live, find_live

MAX_FOREIGN = 100
"""Foreign keys that one report names."""

AT_ONCE = 1_000
"""Files that are deleted with one request."""

MAX_SLICES = 1_000
"""Epochs' slices that a cleaning looks at: as many as one listing shows."""


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What one cleaning did."""

    deleted: int
    """Objects deleted."""
    uploads_aborted: int
    """Multipart uploads of dead drivers that were aborted."""
    failures: tuple[DeleteFailure, ...]
    """What could not be deleted; it is tried again by the next cleaning, and fails nothing (semantics W7)."""
    foreign: tuple[str, ...] = ()
    """Keys among the checkpoints' folders that no part of Cairn has written, so they stay; `MAX_FOREIGN` at most."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What a cleaning would delete, and what it would leave alone."""

    dead: tuple[ObjectStat, ...]
    """Objects with content that nothing refers to."""
    uploads: tuple[PendingUpload, ...]
    """Multipart uploads of dead drivers."""
    foreign: tuple[str, ...]
    """As in `CleanReport`."""
    unknown: dict[str, str]
    """Metadata that cannot be read, with what is wrong."""


class Cleaner(UseCase):
    """Cleans one job's folders."""

    def leftovers(self) -> Leftovers:
        """Find what `clean` would delete, and delete nothing.

        Raises:
            GoneError: the document of a pending attempt is gone.
            DocumentError: it is broken.
            ForbiddenError: the store does not let uploads be listed.
        """
        head, live = self._look()
        compacted = Compactions(self._files, head, live, self._look_anew)
        foreign: list[str] = []
        # One without content may be an epoch's list that was named unseen.
        dead = tuple(found for found in self._dead(head, live, compacted, foreign) if found.size_bytes)
        uploads = tuple(self._dead_uploads(head, live, compacted))
        return Leftovers(dead, uploads, tuple(foreign), {**live.unknown, **compacted.broken})

    def clean(self, on_progress: Callable[[FilesProgress], None] = lambda _: None) -> CleanReport:
        """Delete every file of the job's checkpoints, and long list of an epoch's input, that nothing alive refers to.

        Dead uploads are aborted.

        Where the metadata of a retained checkpoint is gone or broken, what it refers to is not known: then its folder
        and all older ones stay as they are, and the report says so.

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
            # What is dead by any head stays dead.
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
        """Yield what lies in the folders of ids that the head has handed out, the epochs' lists, and their slices.

        In the folders of other ids a trigger may be writing. What is none of these is passed over, and noted in
        `foreign`: another tool has written it, and Cairn deletes only what it has written itself. Where so many
        slices are left that looking at them costs requests (version 0.1 kept them all), those of the epochs in `done`
        are named unseen, with size 0.
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
                    return  # all that a cleaner may delete comes before it, in the order of keys
                elif len(foreign) < MAX_FOREIGN:
                    foreign.append(self._files.full(found.key))
            elif checkpoint is None or checkpoint < head.next_id:
                yield found

    def _holds(self, head: Head, live: Live, key: str) -> bool:
        fixed = layout.epoch_of_slice(key)
        if fixed is not None:
            # The head alone says so: what it has forgotten by now was taken a hundred checkpoints ago.
            return fixed in live.epochs or bool(live.unknown) or fixed not in head.completions()
        epoch = layout.epoch_of_list(key)
        if epoch is None or key in live.keys:
            return live.holds(key)
        if epoch in live.epochs or live.unknown:
            return True
        # A later trigger of the epoch, however late, reads the same; only once it has completed none does.
        try:
            return not isinstance(completed_epochs.where_is(self._files, head, epoch), EpochCompleted)
        except CompletedEpochsLostError:
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
