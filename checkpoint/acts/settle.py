"""Completes or expires a checkpoint: makes the next head, which the caller swaps in (semantics C1, C6, D2, F6).

Only the metadata is written before the swap. Its name belongs to this attempt and to the stages that it leaves out, so
a caller that loses the swap has done no harm.
"""

from __future__ import annotations

from contextlib import suppress

from ...storage.errors import DocumentError, GoneError
from ..documents.attempt import PendingDocument
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import CheckpointNotReadyError
from ..reasons import Reason
from ..rules import partial_completion, savepoint_entries, transitions
from ..rules.partial_completion import StageReports, Without
from ..rules.transitions import Ending
from ..store import acks, attempt_documents, completed_epochs
from ..store.job_files import JobFiles
from ..store.metadata_file import LastWritten
from .assemble import Assembler, FinalizeError


def complete(
    files: JobFiles,
    head: Head,
    entry: PendingEntry,
    now_ms: int,
    document: PendingDocument | None = None,
    known: LastWritten | None = None,
) -> Head:
    """Give the head in which the checkpoint has completed or, where it cannot, has been aborted.

    Args:
        files: the job's files.
        head: the version decided on.
        entry: the checkpoint.
        now_ms: the time, milliseconds since 1970 UTC.
        document: the checkpoint's document, if the caller has read it.
        known: records what was written, for a caller that cleans next.
    """
    late = transitions.why_overtaken(head, entry)
    if late is not None:
        return transitions.subsume(head, entry, late, now_ms, acks=entry.stages)
    document = document or attempt_documents.read(files, entry)
    without = _without(files, head, entry, document, now_ms)
    done = entry.stages - len(without.stages)
    try:
        assembler = Assembler(files, document, without.stages)
        made = assembler.write()
    except FinalizeError as error:
        ending = Ending(Reason.FINALIZE_CHECKPOINT_FAILURE, str(error), acks=done)
        if error.code == "broken_ack":
            # No later attempt may take this execution over: it would fail in the same way.
            ending = Ending(Reason.IO_EXCEPTION, error.message, acks=done, rejected=(str(error.fields["token"]),))
        return transitions.abort(head, entry, ending, now_ms)
    if known is not None:
        known.note(made.metadata, assembler.referred)
    return transitions.complete(head, entry, made, without, now_ms)


def _without(files: JobFiles, head: Head, entry: PendingEntry, document: PendingDocument, now_ms: int) -> Without:
    """Name the stages to leave out; read nothing where none may be, as the assembler finds missing acks itself."""
    if document.limits.leave_out is None:
        return Without()
    seen = look(files, entry, document)
    without = partial_completion.decide(head, entry, document, seen, now_ms)
    if without is None:
        raise CheckpointNotReadyError(
            "the checkpoint cannot complete yet: stages have not acknowledged and may not be left out. Wait until its "
            "progress says ready",
            job=files.job,
            checkpoint=entry.id,
            missing=", ".join(sorted(document.executions.keys() - seen.acknowledged)),
        )
    return without


def look(files: JobFiles, entry: PendingEntry, document: PendingDocument) -> StageReports:
    """Look up which stages have acknowledged or failed finally.

    Costs one listing for each checkpoint that is an execution's home, and two where regions may fail.
    """
    acknowledged = acks.marked(files, document.executions, "acks")
    given_up = acks.marked(files, document.executions, "failures") if entry.regional else frozenset()
    return StageReports(acknowledged, given_up)


def settle(files: JobFiles, head: Head, now_ms: int) -> Head:
    """End every pending checkpoint that is older than its timeout (semantics D2), or was overtaken (C2).

    Each decision about the job begins with this function, so it does not matter which process comes first. A checkpoint
    that all stages have acknowledged completes, however late. If regions may fail, silent regions count as failed at
    the timeout, and the checkpoint completes without them if it may (semantics F6).

    Completed epochs that leave the history are moved into the head's list of completed epochs.
    """
    settled = transitions.go_on_undrained(savepoint_entries.expire(head, now_ms), now_ms)
    for entry in head.pending:
        standing = entry in settled.pending and transitions.why_overtaken(settled, entry) is None
        if standing and now_ms >= entry.expires_at_ms:
            settled = _completed_or_expired(files, settled, entry, now_ms)
    settled = transitions.end_overtaken(settled, now_ms)
    settled = savepoint_entries.settle(settled, now_ms)
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
