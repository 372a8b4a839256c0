"""What stages have staged outside and want committed when their checkpoint completes, for listeners (semantics C4, D4).

It travels in the acknowledgement and goes on in the metadata, so a notice does not hold it: a completed checkpoint's is
read from its metadata, an aborted one's from the markers, which the cleaner leaves while a notice waits. Of an aborted
checkpoint only what can never become part of another one is given, because it is given to be dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...storage.errors import DocumentError, GoneError
from ..answers import EpochCompleted
from ..documents import layout
from ..documents.attempt import Execution, PendingDocument
from ..documents.entries import Notice
from ..documents.head import Head
from ..documents.metadata import StageLine
from ..documents.strict_json import Json
from ..reasons import Reason, Status
from ..store import acks, completed_epochs, metadata_file
from ..store.attempt_documents import AttemptDocuments
from ..store.job_files import JobFiles


@dataclass(frozen=True, slots=True)
class Committable:
    """One thing that a stage has staged."""

    stage: str
    name: str
    value: Json


@dataclass(frozen=True, slots=True)
class CheckpointNotice:
    """How a checkpoint ended, for a listener."""

    checkpoint: int
    epoch: str
    attempt: int
    status: Status
    latest: int | None
    """The newest completed checkpoint when this one had ended; itself, if it completed."""
    reason: Reason | None
    """Why it was aborted; None if it completed."""
    detail: str
    """The same, for users to read."""
    committables: tuple[Committable, ...]
    """What its stages had staged, in the order of stages and names: to be committed, or to be dropped."""


def told_of(files: JobFiles, documents: AttemptDocuments, head: Head, notice: Notice) -> CheckpointNotice:
    """Give the notice that a listener gets.

    Raises:
        GoneError: the metadata of a completed checkpoint is gone.
        DocumentError: it is broken.
    """
    found = _completed(files, notice) if notice.status is Status.COMPLETED else _aborted(files, documents, head, notice)
    return CheckpointNotice(
        checkpoint=notice.checkpoint,
        epoch=notice.epoch,
        attempt=notice.attempt,
        status=notice.status,
        latest=notice.latest,
        reason=notice.reason,
        detail=notice.detail,
        committables=found,
    )


def kept_for(files: JobFiles, notice: Notice) -> set[str]:
    """Give the keys that the cleaner has to leave while a notice waits: one read for an aborted checkpoint."""
    if notice.status is Status.COMPLETED:
        return {notice.metadata.key} if notice.metadata else set()
    document = _document(files, notice)
    if document is None:
        return set()
    markers = {layout.ack(each.home, uid, each.token) for uid, each in document.executions.items()}
    return {layout.pending(notice.checkpoint, notice.token), *markers}


def _completed(files: JobFiles, notice: Notice) -> tuple[Committable, ...]:
    if notice.metadata is None:
        return ()
    lines = metadata_file.read(files, notice.metadata)
    return tuple(
        Committable(line.stage, name, value)
        for line in lines
        if isinstance(line, StageLine)
        for name, value in sorted(line.committables.items())
    )


def _aborted(files: JobFiles, documents: AttemptDocuments, head: Head, notice: Notice) -> tuple[Committable, ...]:
    document = _document(files, notice)
    if document is None or _may_have_been_committed(head, notice):
        return ()
    try:
        alive = _may_count(files, documents, head, notice.epoch)
    except (GoneError, DocumentError):
        return ()  # what may still count is not known, so nothing is given to be dropped
    found: list[Committable] = []
    for spec in document.stages:
        execution = document.executions[spec.uid]
        if execution not in alive:
            found.extend(_of_marker(files, spec.uid, execution))
    return tuple(found)


def _may_have_been_committed(head: Head, notice: Notice) -> bool:
    """Tell whether the epoch completed after an aborted attempt and was rewound, whatever became of it since.

    The listener was notified to commit what that checkpoint held, or will be, and it may hold what this attempt had.
    Where the history reaches back to this attempt no more, it may have forgotten that checkpoint, too.
    """
    if head.ended_by_id(notice.checkpoint) is None and any(each.through > notice.checkpoint for each in head.rewinds):
        return True
    return any(
        each.status is Status.COMPLETED and each.id > notice.checkpoint and head.rewind_of(each.id) is not None
        for each in head.ended_of_epoch(notice.epoch)
    )


def _of_marker(files: JobFiles, stage: str, execution: Execution) -> list[Committable]:
    try:
        ack = acks.read_ack(files, stage, execution)
    except (GoneError, DocumentError):
        return []  # it has not acknowledged, or so that it cannot be said what it staged
    return [Committable(stage, name, value) for name, value in sorted(ack.committables.items())]


def _document(files: JobFiles, notice: Notice) -> PendingDocument | None:
    try:
        return files.read(PendingDocument, layout.pending(notice.checkpoint, notice.token))[0]
    except (GoneError, DocumentError):
        return None


def _may_count(files: JobFiles, documents: AttemptDocuments, head: Head, epoch: str) -> set[Execution]:
    """Give the epoch's executions that are part of a completed checkpoint, or may become so."""
    place = completed_epochs.where_is(files, head, epoch)
    if isinstance(place, EpochCompleted):
        completed = place.checkpoint
        entry = head.completed_by_id(completed)
        if entry is None or entry.epoch != epoch:  # one that only read the epoch's input again holds other executions
            raise GoneError("the checkpoint that completed the epoch is not retained any more", checkpoint=completed)
        return {line.execution for line in metadata_file.read(files, entry.metadata) if isinstance(line, StageLine)}
    current = head.pending_of_epoch(epoch) or head.carryable(epoch)
    return set(documents.of(current).executions.values()) if current is not None else set()
