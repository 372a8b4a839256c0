"""The base of the acts on one job. Their decisions begin with the end of what is overdue (semantics D2, C2)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ...storage.errors import DocumentError, GoneError
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import CheckpointNotReadyError
from ..rules import history, transitions
from ..store import acks, attempt_documents, completed_epochs
from ..store.head_store import Decision, OpenJob, changed
from ..store.job_files import JobFiles
from .finalize import complete

R = TypeVar("R")


class UseCase:
    """Base of the acts on one job."""

    def __init__(self, job: OpenJob) -> None:
        self._job = job
        self._files = job.files
        self._heads = job.heads
        self._documents = job.documents
        self._runtime = job.runtime

    def _update_settled(
        self, decide: Callable[[Head, int], Decision[R]], *, known: bool = False, waits: bool = True
    ) -> tuple[Head, R]:
        """Apply one decision on the head after `end_overdue`, in one swap; see `HeadStore.update`.

        A decision that names no head leaves that head: the ends of what is overdue are stored nevertheless.
        """

        def whole(head: Head, now_ms: int) -> Decision[R]:
            settled = end_overdue(self._files, head, now_ms)
            decision = decide(settled, now_ms)
            return Decision(decision.result, changed(head, decision.head or settled))

        return self._heads.update(whole, known=known, waits=waits)


def end_overdue(files: JobFiles, head: Head, now_ms: int) -> Head:
    """End every pending checkpoint that is older than its timeout (semantics D2), or was overtaken (C2).

    It does not matter which process comes first. A checkpoint that all stages have acknowledged completes, however
    late. If regions may fail, silent regions count as failed at the timeout, and the checkpoint completes without them
    if it may (semantics F6).

    Completed epochs that leave the history are moved into the head's list of completed epochs.
    """
    settled = transitions.go_on_undrained(history.expire_savepoints(head, now_ms), now_ms)
    for entry in head.pending:
        standing = entry in settled.pending and transitions.why_overtaken(settled, entry) is None
        if standing and now_ms >= entry.expires_at_ms:
            settled = _completed_or_expired(files, settled, entry, now_ms)
    settled = transitions.end_overtaken(settled, now_ms)
    settled = history.settle_savepoints(settled, now_ms)
    if settled is not head:
        settled = completed_epochs.keep(head, settled)
    return settled


def _completed_or_expired(files: JobFiles, head: Head, entry: PendingEntry, now_ms: int) -> Head:
    try:
        document = attempt_documents.read(files, entry)
    except (GoneError, DocumentError):
        return transitions.expire_one(head, entry, now_ms)
    if attempt_documents.hooks_missing(files, document.hooks):
        # A hook's answer that comes later does not count, so no later attempt takes it over.
        late = (document.hooks.token,) if document.hooks is not None else ()
        return transitions.expire_one(head, entry, now_ms, rejected=late)
    done = acks.marked(files, document.executions, "acks")
    if document.limits.leave_out is not None or document.executions.keys() == done:
        with suppress(CheckpointNotReadyError):
            return complete(files, head, entry, now_ms, document)
    return transitions.expire_one(head, entry, now_ms, acks=len(done))
