"""Changes the head: read, decide, write if unchanged (semantics W2, T6, D3).

A decision is computed on the version read and lands only if that version still stands, so nothing slips in between.
A lost answer is settled by the head's own log of write ids: ours in it means that it landed, however many swaps came
after. Where the log has moved past it, the decision is simply made again: every decision recognises its own outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..storage.errors import GoneError, OutcomeUnknownError
from ..storage.port import Lost
from . import documents, layout
from .decisions import forgotten
from .errors import HeadLostError, TooMuchContentionError
from .head import WRITE_LOG, Head, check_invariants
from .job_files import JobFiles, encode
from .model import EpochCompletedDocument
from .runtime import Runtime

R = TypeVar("R")

MAX_TRIES = 64
"""Versions of the head that one change may lose against before it gives up."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """What to answer and, where something is to change, the head that says so."""

    result: R
    head: Head | None = None


@dataclass(frozen=True, slots=True)
class _Version:
    head: Head
    etag: str | None
    """None: there is no head yet."""


class HeadStore:
    """The head of one job.

    Args:
        files: the job's part of the store.
        runtime: clock and ids.
    """

    def __init__(self, files: JobFiles, runtime: Runtime) -> None:
        self._files = files
        self._runtime = runtime

    def load(self) -> Head:
        """Read the head; a job that never ran has an empty one.

        Raises:
            DocumentError: it is broken, foreign or of an unknown format.
            HeadLostError: it is missing although the job has checkpoints.
        """
        return self._load().head

    def ensure(self) -> None:
        """Make the first head where the job has none; before that nothing else of the job is written."""
        self.update(lambda head, now_ms: Decision(None, head if head.revision == 0 else None))

    def update(self, decide: Callable[[Head, int], Decision[R]]) -> tuple[Head, R]:
        """Apply one decision, once.

        Args:
            decide: takes the head and the time in milliseconds; may read the store; may be called several times, each
                time on a newer head, and must recognise what it has already achieved.

        Returns:
            The head that the decision left (or found, where it changes nothing), and the decision's result.

        Raises:
            InvariantError: the decision would break the head; nothing was written.
            TooMuchContentionError: others kept winning; nothing landed.
        """
        for _ in range(MAX_TRIES):
            version = self._load()
            decision = decide(version.head, self._runtime.now_ms())
            if decision.head is None:
                return version.head, decision.result
            check_invariants(version.head, decision.head)
            self._note_forgotten(version.head, decision.head)
            written = self._swap(version, decision.head)
            if written is not None:
                return written, decision.result
        raise TooMuchContentionError(
            "the head kept changing; nothing was written, try again", job=self._files.job, tries=MAX_TRIES
        )

    def _note_forgotten(self, old: Head, new: Head) -> None:
        """Note durably which epochs completed before the bounded history forgets them; harmless if the swap is lost."""
        for ended in forgotten(old, new):
            # Lost means that it is noted already: an epoch completes once. The note takes the slice's place.
            note = EpochCompletedDocument(self._files.job, ended.epoch, ended.id)
            self._files.create(layout.epoch_completed(ended.epoch), note)
            self._files.delete([layout.epoch_slice(ended.epoch)])

    def _swap(self, version: _Version, wanted: Head) -> Head | None:
        """Write `wanted` over `version`; None if somebody else's version came next."""
        write_id = self._runtime.new_token()
        head = replace(wanted, revision=version.head.revision + 1, writes=(*version.head.writes, write_id)[-WRITE_LOG:])
        data = encode(head)
        key = self._files.full(layout.HEAD)
        for _ in range(MAX_TRIES):
            try:
                if version.etag is None:
                    answer = self._files.store.create(key, data)
                else:
                    answer = self._files.store.replace(key, data, expected_etag=version.etag)
            except OutcomeUnknownError:
                now = self._load()
                if write_id in now.head.writes:
                    return head
                if now.etag != version.etag:
                    return None
                # Nobody's version came next: ours may still be under way. Sending it again with the same write id is
                # safe, because at most one of the two finds the old version.
                continue
            if not isinstance(answer, Lost):
                return head
            # "Lost" may mean that a client below us sent it twice and the first one won (semantics W2).
            return head if write_id in self._load().head.writes else None
        raise OutcomeUnknownError(
            "the answers of a swap of the head were lost again and again; whether it landed is not known",
            job=self._files.job,
            store=self._files.store.describe(),
        )

    def _load(self) -> _Version:
        try:
            return self._read()
        except GoneError:
            if not self._has_checkpoints():
                return _Version(Head(job=self._files.job), None)
        # The head is made before any checkpoint folder. Where there are folders, either it was made between our two
        # looks, or somebody removed it.
        try:
            return self._read()
        except GoneError as error:
            raise HeadLostError(
                "head.json is missing although checkpoints exist; put it back from a backup or a bucket version, "
                "or use another job name: going on would use ids again",
                job=self._files.job,
                store=self._files.store.describe(),
            ) from error

    def _read(self) -> _Version:
        head, blob = self._files.read(Head, layout.HEAD, max_bytes=documents.MAX_HEAD_BYTES)
        return _Version(head, blob.etag)

    def _has_checkpoints(self) -> bool:
        first = next(iter(self._files.listing("", start_after="chk-")), None)
        return first is not None and layout.checkpoint_of(first.key) is not None
