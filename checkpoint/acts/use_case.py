"""The base of the acts on one job: each decision first ends what is overdue (semantics D2, C2).

So any act may complete a checkpoint: `finalized` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TypeVar

from ...storage.errors import DocumentError, GoneError
from ..documents.acknowledgement import AckDocument
from ..documents.attempt import PendingDocument
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import CheckpointNotReadyError
from ..reasons import Reason
from ..rules import history, partial_completion, transitions
from ..rules.partial_completion import StageReports, Without
from ..rules.transitions import Ending
from ..store import acks, attempt_documents, completed_epochs
from ..store.head_store import Decision, OpenJob, changed
from ..store.job_files import JobFiles
from ..store.metadata_file import LastSeen
from .assemble import Assembler, FinalizeError

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
            return finalized(files, head, entry, now_ms, document)
    return transitions.expire_one(head, entry, now_ms, acks=len(done))


def finalized(
    files: JobFiles,
    head: Head,
    entry: PendingEntry,
    now_ms: int,
    document: PendingDocument | None = None,
    known: LastSeen | None = None,
    found: Mapping[str, AckDocument] = MappingProxyType({}),
) -> Head:
    """Give the head in which the checkpoint has completed or, where it cannot, has been aborted (semantics C1, C6, F6).

    Only the metadata is written before the swap, which is the caller's. Its name belongs to this attempt and to the
    stages that it leaves out, so a caller that loses the swap has done no harm.

    Args:
        files: the job's files.
        head: the version decided on.
        entry: the checkpoint.
        now_ms: the time, milliseconds since 1970 UTC.
        document: the checkpoint's document, if the caller has read it.
        known: records what was read and written, for a caller that cleans next.
        found: acknowledgements that the caller has read, by stage.
    """
    late = transitions.why_overtaken(head, entry)
    if late is not None:
        return transitions.subsume(head, entry, late, now_ms, acks=entry.stages)
    document = document or attempt_documents.read(files, entry)
    without = _without(files, head, entry, document, now_ms)
    done = entry.stages - len(without.stages)
    try:
        assembler = Assembler(files, document, without.stages, found)
        made = assembler.write()
    except FinalizeError as error:
        ending = Ending(Reason.FINALIZE_CHECKPOINT_FAILURE, str(error), acks=done)
        if error.code == "broken_ack":
            # No later attempt may take this execution over: it would fail in the same way.
            ending = Ending(Reason.IO_EXCEPTION, error.message, acks=done, rejected=(str(error.fields["token"]),))
        return transitions.abort(head, entry, ending, now_ms)
    if known is not None:
        if assembler.restored is not None:
            known.note(*assembler.restored)
        known.note(made.metadata, assembler.referred)
    return transitions.complete(head, entry, made, without, now_ms)


def _without(files: JobFiles, head: Head, entry: PendingEntry, document: PendingDocument, now_ms: int) -> Without:
    """Name the stages to leave out; read nothing where none may be, as the assembler finds missing acks itself."""
    if document.limits.leave_out is None:
        return Without()
    seen = reports_of(files, entry, document)
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


def reports_of(files: JobFiles, entry: PendingEntry, document: PendingDocument) -> StageReports:
    """Look up which stages have acknowledged or failed finally.

    Costs one listing for each checkpoint that is an execution's home, and two where regions may fail.
    """
    acknowledged = acks.marked(files, document.executions, "acks")
    given_up = acks.marked(files, document.executions, "failures") if entry.regional else frozenset()
    return StageReports(acknowledged, given_up)
