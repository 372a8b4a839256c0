"""Makes the head in which a checkpoint has completed, which the caller swaps in (semantics C1, C6, F6).

Only the metadata is written before the swap. Its name belongs to this attempt and to the stages that it leaves out, so
a caller that loses the swap has done no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..documents.acknowledgement import AckDocument
from ..documents.attempt import PendingDocument
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import CheckpointNotReadyError
from ..reasons import Reason
from ..rules import partial_completion, transitions
from ..rules.partial_completion import StageReports, Without
from ..rules.transitions import Ending
from ..store import acks, attempt_documents
from ..store.job_files import JobFiles
from ..store.metadata_file import LastSeen
from .assemble import Assembler, FinalizeError


def complete(
    files: JobFiles,
    head: Head,
    entry: PendingEntry,
    now_ms: int,
    document: PendingDocument | None = None,
    known: LastSeen | None = None,
    found: Mapping[str, AckDocument] = MappingProxyType({}),
) -> Head:
    """Give the head in which the checkpoint has completed or, where it cannot, has been aborted.

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
