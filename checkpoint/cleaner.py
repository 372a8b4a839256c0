"""Deletes what nothing refers to: files of dead attempts, of subsumed checkpoints, of drivers that lost (C3, D4, W7).

What may never be deleted, for the head that was read: everything of a pending attempt's executions, and of an ended
attempt's that a next one may still carry over; every file that a retained checkpoint's metadata names, and the metadata;
and every folder whose id the head had not handed out yet, because a trigger may just be writing there. Nothing outside
this set can come back to life later: ids and tokens are never used again, and what is not carryable never becomes so
(`Head.carryable`). So no lock is needed: completions, failovers and other cleaners may go on meanwhile, and a cleaning
that dies half-way is finished by the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..storage.errors import GoneError
from ..storage.port import DeleteFailure
from . import layout, metadata
from .attempts import Attempts
from .head import Head
from .head_store import HeadStore
from .job_files import JobFiles
from .metadata import HandleLine
from .model import DocumentRef, Execution, PendingDocument


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What one cleaning did."""

    deleted: int
    uploads_aborted: int
    failures: tuple[DeleteFailure, ...]
    """What could not be deleted; it is tried again by the next cleaning, and fails nothing (semantics W7)."""


@dataclass(slots=True)
class _Live:
    keys: set[str] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)

    def holds(self, key: str) -> bool:
        """Whether something alive refers to the key; a live prefix ends within the key's first five segments."""
        if key in self.keys:
            return True
        segments = key.split("/")
        # Markers and handovers lie at depth 3 and begin with the token; an execution's files lie below depth 4.
        marker = "/".join(segments[:3]) + "/" + segments[3][:16] if len(segments) == 4 else None
        folder = "/".join(segments[:4]) + "/"
        return folder in self.prefixes or marker in self.prefixes


class Cleaner:
    """Cleans one job's folders.

    Args:
        files: the job's files.
        heads: the job's head.
        attempts: reads the documents of attempts.
    """

    def __init__(self, files: JobFiles, heads: HeadStore, attempts: Attempts) -> None:
        self._files = files
        self._heads = heads
        self._attempts = attempts

    def clean(self) -> CleanReport:
        """Delete every file below the job's checkpoints that nothing alive refers to, and abort dead uploads.

        Raises:
            DocumentError: the metadata of a retained checkpoint is broken.
            GoneError: it is missing. In both cases nothing was deleted, because what it refers to is not known; once
                another checkpoint has completed in its place, cleaning goes on.
        """
        head, live = self._current()
        failures: list[DeleteFailure] = []
        deleted = 0

        def garbage() -> Iterator[str]:
            nonlocal deleted
            for found in self._files.listing("", start_after="chk-"):
                checkpoint = layout.checkpoint_of(found.key)
                if checkpoint is None or checkpoint >= head.next_id:
                    return
                if not live.holds(found.key):
                    deleted += 1
                    yield found.key

        failures.extend(self._files.delete(garbage()))
        return CleanReport(deleted - len(failures), self._abort_uploads(head, live), tuple(failures))

    def _current(self) -> tuple[Head, _Live]:
        head = self._heads.load()
        while True:
            try:
                return head, self._live(head)
            except GoneError:
                # Another cleaner may have followed a newer head than the one read here.
                newer = self._heads.load()
                if newer.revision == head.revision:
                    raise
                head = newer

    def _abort_uploads(self, head: Head, live: _Live) -> int:
        aborted = 0
        for upload in self._files.uploads():
            key = self._files.bare(upload.key)
            checkpoint = layout.checkpoint_of(key)
            if checkpoint is not None and checkpoint < head.next_id and not live.holds(key):
                self._files.store.abort_upload(upload)
                aborted += 1
        return aborted

    def _live(self, head: Head) -> _Live:
        live = _Live()
        for entry in head.pending:
            document = self._attempts.document_of(entry)
            live.keys.add(layout.pending(entry.id, entry.token))
            live.keys.add(layout.metadata(entry.id, entry.token))
            self._keep_attempt(live, document, frozenset())
        for epoch in {ended.epoch for ended in head.history}:
            ended = head.carryable(epoch)
            if ended is None:
                continue
            try:
                document = self._attempts.document_of(ended)
            except GoneError:
                # Cleaned by hand; then there is nothing to carry.
                continue
            live.keys.add(layout.pending(ended.id, ended.token))
            self._keep_attempt(live, document, frozenset(ended.rejected))
        for completed in head.completed:
            self._keep_completed(live, completed.metadata)
        return live

    def _keep_attempt(self, live: _Live, document: PendingDocument, rejected: frozenset[str]) -> None:
        for uid, execution in document.executions.items():
            if execution.token not in rejected:
                live.prefixes.update(_prefixes(uid, execution))
        if document.restore is not None:
            self._keep_completed(live, document.restore.metadata)

    def _keep_completed(self, live: _Live, ref: DocumentRef) -> None:
        if ref.key in live.keys:
            return
        live.keys.add(ref.key)
        live.keys.update(line.handle.path for line in metadata.read(self._files, ref) if isinstance(line, HandleLine))


def _prefixes(uid: str, execution: Execution) -> Iterator[str]:
    home = layout.folder(execution.home)
    for kind in ("acks", "declines", "handover"):
        yield f"{home}{kind}/{uid}/{execution.token}"
    yield layout.execution_folder(execution.home, uid, execution.attempt, execution.token)
