"""Committables: changes that stages have staged outside the store, for listeners to commit or drop (semantics C4, D4).

A notice holds no committables: those of a completed checkpoint are read from its metadata, those of an aborted one from
its stages' acknowledgements, which the cleaner keeps while the notice waits. Of an aborted checkpoint, a listener gets
only the committables that can never become part of another checkpoint, because it drops them.
"""

from __future__ import annotations

from ...storage.errors import DocumentError, GoneError
from ...storage.records import dataclass
from ..answers import EpochCompleted
from ..documents import layout
from ..documents.attempt import DocumentRef, Execution, PendingDocument
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
    """One staged change of a stage."""

    stage: str
    name: str
    value: Json


@dataclass(frozen=True, slots=True)
class CheckpointNotice:
    """The end of a checkpoint, for a listener."""

    checkpoint: int
    epoch: str
    attempt: int
    status: Status
    latest: int | None
    """The newest completed checkpoint when this one had ended; this one, if it completed."""
    reason: Reason | None
    """Why it was aborted; None if it completed."""
    detail: str
    """The reason in words, for users."""
    committables: tuple[Committable, ...]
    """Staged changes to commit or to drop, in the order of stages and names."""
    retained: tuple[int, ...] = ()
    """The completed checkpoints that are kept now, oldest first."""
    paused: bool = False
    """Whether a pause of the DAG ended it: its epoch goes on after the pause (semantics S1)."""
    waiting: frozenset[str] = frozenset()
    """Listeners that have still to hear this notice, and no earlier one: their changes may be committed along."""
    storage: str = ""
    """URI of the job's storage."""


def told_of(files: JobFiles, documents: AttemptDocuments, head: Head, notice: Notice) -> CheckpointNotice:
    """Give the notice that a listener gets."""
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
        retained=tuple(each.id for each in head.completed),
        paused=notice.paused,
        waiting=frozenset(notice.listeners)
        - {name for each in head.notices if each.checkpoint < notice.checkpoint for name in each.listeners},
        storage=str(files.store.uri),
    )


def kept_for(files: JobFiles, notice: Notice) -> set[str]:
    """Give the keys that the cleaner has to keep while a notice waits: one read for an aborted checkpoint."""
    if notice.status is Status.COMPLETED:
        return {notice.metadata.key} if notice.metadata else set()
    document = _document(files, notice)
    if document is None:
        return set()
    markers = {layout.ack(each.home, uid, each.token) for uid, each in document.executions.items()}
    return {layout.pending(notice.checkpoint, notice.token), *markers}


def _completed(files: JobFiles, notice: Notice) -> tuple[Committable, ...]:
    return staged_in(files, notice.metadata) if notice.metadata else ()


def staged_in(files: JobFiles, metadata: DocumentRef) -> tuple[Committable, ...]:
    """Give the staged changes of a completed checkpoint's stages.

    Raises:
        GoneError, DocumentError: the metadata cannot be read.
    """
    lines = metadata_file.read(files, metadata)
    return tuple(
        Committable(line.stage, name, value)
        for line in lines
        if isinstance(line, StageLine)
        for name, value in sorted(line.committables.items())
    )


def staged_so_far(files: JobFiles, document: PendingDocument) -> tuple[Committable, ...]:
    """Give the staged changes of the stages that have acknowledged in a pending checkpoint."""
    executions = document.executions.items()
    return tuple(each for uid, execution in executions for each in _of_marker(files, uid, execution))


def _aborted(files: JobFiles, documents: AttemptDocuments, head: Head, notice: Notice) -> tuple[Committable, ...]:
    document = _document(files, notice)
    if document is None or _may_have_been_committed(head, notice):
        return ()
    try:
        alive = _may_count(files, documents, head, notice.epoch)
    except (GoneError, DocumentError):
        return ()  # any execution may still count, so no committable is dropped
    found: list[Committable] = []
    for spec in document.stages:
        execution = document.executions[spec.uid]
        if execution not in alive:
            found.extend(_of_marker(files, spec.uid, execution))
    return tuple(found)


def _may_have_been_committed(head: Head, notice: Notice) -> bool:
    """Tell whether a later attempt of the epoch may have completed and then been rewound.

    The listener was or will be told to commit that attempt's checkpoint, which may hold this attempt's committables. If
    the history has forgotten this attempt, it may have forgotten that one too: then any rewind past this one counts.
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
        return []  # the stage has not acknowledged, or its acknowledgement cannot be read
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
        if entry is None or entry.epoch != epoch:  # another epoch that read this one's input has other executions
            raise GoneError("the checkpoint that completed the epoch is not retained any more", checkpoint=completed)
        return {line.execution for line in metadata_file.read(files, entry.metadata) if isinstance(line, StageLine)}
    current = head.pending_of_epoch(epoch) or head.carryable(epoch)
    return set(documents.of(current).executions.values()) if current is not None else set()
