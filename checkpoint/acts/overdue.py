"""Ends the checkpoints whose time is over, and those that another run has overtaken (semantics D2, C2)."""

from __future__ import annotations

from contextlib import suppress

from ...storage.errors import DocumentError, GoneError
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import CheckpointNotReadyError
from ..rules import history, transitions
from ..store import acks, attempt_documents, completed_epochs
from ..store.job_files import JobFiles
from .finalize import complete


def end_overdue(files: JobFiles, head: Head, now_ms: int) -> Head:
    """End every pending checkpoint that is older than its timeout (semantics D2), or was overtaken (C2).

    Each decision about the job begins with this function, so it does not matter which process comes first. A checkpoint
    that all stages have acknowledged completes, however late. If regions may fail, silent regions count as failed at
    the timeout, and the checkpoint completes without them if it may (semantics F6).

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
