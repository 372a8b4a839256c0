"""Completes or expires a checkpoint: makes the next head, which the caller swaps in (semantics C1, C6, D2, F6).

Only the metadata is written before the swap. Its name belongs to this attempt and to the stages that it leaves out, so
a caller that loses the swap has done no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from ...storage.errors import DocumentError, GoneError
from ..answers import Cancelled
from ..documents.acknowledgement import AckDocument, DeclineDocument
from ..documents.attempt import Execution, PendingDocument
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import CheckpointNotReadyError
from ..masking import one_line
from ..reasons import Reason
from ..rules import history, partial_completion, transitions
from ..rules.failures import producers
from ..rules.partial_completion import StageReports, Without
from ..rules.transitions import Ending
from ..store import acks, attempt_documents, completed_epochs
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


# Declines at a cancellation barrier (semantics B4).
#
# A decline is passed on to the stages that read from the declining one: the attempt is lost, and submitting them would
# be useless. So they decline too, with `CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER`, and claim nothing. This marker is
# judged like any decline: it counts as long as the head lists the execution. The next attempt runs both stages anew,
# because a stage is never carried over without its upstream (semantics F1).


BARRIER = Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
_NO_REASON = (Reason.CHECKPOINT_DECLINED, "declined")
FEW = 3
"""Upstreams that are looked up by name: stores take for a listing twelve times what they take for a look."""


def pass_on(files: JobFiles, document: PendingDocument, stage: str) -> Cancelled | None:
    """Decline for a stage if a direct or indirect upstream has declined; None where none has.

    A stage that runs at least once waits for no upstream, so no decline is passed on to it (B2).

    Costs a look at each of a few upstreams, or one listing for each checkpoint that is the home of one's execution;
    nothing for a stage without upstream.
    """
    if document.limits.at_least_once:
        return None
    above = {uid: document.executions[uid] for uid in producers(document.stages, stage)}
    if len(above) <= FEW:
        declined = frozenset(uid for uid in sorted(above) if acks.has_declined(files, uid, above[uid]))
    else:
        declined = acks.marked(files, above, "declines")
    if declined:
        # A decline after the acknowledgement does not count (D1); looked up only here, so the healthy path stays cheap.
        declined -= acks.marked(files, above, "acks")
    if not declined:
        return None
    upstream, _, why = root_cause(files, above, declined)
    own = document.executions[stage]
    acks.write_decline(
        files,
        DeclineDocument(
            job=document.job,
            checkpoint=own.home,
            epoch=document.epoch,
            stage=stage,
            token=own.token,
            reason=BARRIER,
            detail=one_line(f"{upstream}, which it reads from, has declined: {why}"),
        ),
    )
    return Cancelled(document.checkpoint, document.attempt, upstream, one_line(why))


def root_cause(
    files: JobFiles, executions: Mapping[str, Execution], declined: Collection[str]
) -> tuple[str, Reason, str]:
    """Give the first of `causes`; there is at least one.

    Raises:
        ValueError: `declined` is empty.
    """
    if not declined:
        raise ValueError("no stage has declined, so there is no cause to give")
    return barrier_causes(files, executions, declined)[0]


def barrier_causes(
    files: JobFiles, executions: Mapping[str, Execution], declined: Collection[str]
) -> list[tuple[str, Reason, str]]:
    """Give the declined stages by name, each with reason and detail; those that declined by themselves come first."""
    found = [(uid, *(acks.why_declined(files, uid, executions[uid]) or _NO_REASON)) for uid in sorted(declined)]
    return sorted(found, key=lambda each: each[1] is BARRIER)


def describe_cancelled(found: Iterable[tuple[str, Reason, str]]) -> tuple[str, ...]:
    """Write each cause as a line for people."""
    return tuple(f"{uid}: {why}" for uid, _, why in found)
