"""Acknowledging and declining: one create-once marker an execution, judged by the head afterwards (semantics A, D1).

Order: state files, further parts, the marker, then the judgement. The marker's name belongs to one execution alone, so
whoever creates it first has acknowledged; what it means is decided by whether the head still expects that execution
(semantics W4). A crash before the marker leaves files that nothing refers to, for the cleaner; a crash after it leaves a
valid acknowledgement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..storage.errors import DocumentError, GoneError
from ..storage.port import Written
from . import layout
from .documents import MAX_MARKER_BYTES
from .head import Head
from .job_files import JobFiles, encode, reference
from .model import AckDocument, AckPart, DeclineDocument, DocumentRef, Execution, PendingDocument, SubtaskAck
from .reasons import AckAnswer

PART_BYTES = MAX_MARKER_BYTES * 3 // 4
"""Size that a part aims at: below the cap with room for what surrounds the subtasks."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One marker seen in a listing."""

    stage: str
    token: str


def write_ack(files: JobFiles, ack: AckDocument) -> bool:
    """Write an execution's acknowledgement; True if it is the one that stands, False if another driver's does.

    Raises:
        DocumentError: what stands there cannot be read.
    """
    key = layout.ack(ack.checkpoint, ack.stage, ack.token)
    marker = ack
    if len(encode(ack)) > MAX_MARKER_BYTES:
        marker = replace(ack, subtasks=(), parts=tuple(_write_parts(files, ack)))
    if isinstance(files.create(key, marker), Written):
        return True
    return files.read(AckDocument, key)[0].run == ack.run


def _write_parts(files: JobFiles, ack: AckDocument) -> Iterator[DocumentRef]:
    for number, subtasks in enumerate(_chunks(ack.subtasks)):
        data = encode(AckPart(job=ack.job, token=ack.token, run=ack.run, subtasks=tuple(subtasks)))
        key = layout.ack_part(ack.checkpoint, ack.stage, ack.token, ack.run, number)
        # The name holds the driver's own id, so what stands there already is this driver's, sent twice.
        files.create_bytes(key, data)
        yield reference(key, data)


def _chunks(subtasks: Iterable[SubtaskAck]) -> Iterator[list[SubtaskAck]]:
    chunk: list[SubtaskAck] = []
    size = 0
    for subtask in subtasks:
        chunk.append(subtask)
        # Counted, not encoded: a handle is its path, its checksum and about a hundred bytes of JSON around them.
        size += 60 + sum(len(h.path) + len(h.checksum) + len(h.output) + 100 for h in subtask.handles)
        if size > PART_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def write_decline(files: JobFiles, decline: DeclineDocument) -> None:
    """Write an execution's decline; only the first of an execution stays (semantics D1)."""
    files.create(layout.decline(decline.checkpoint, decline.stage, decline.token), decline)


def judge(head: Head, pending: PendingDocument | None, document: AckDocument) -> AckAnswer:
    """Say what an acknowledgement means, from the head alone (semantics A2, A3, W4).

    Args:
        head: read after the marker was written.
        pending: the document of the pending attempt of the ack's epoch, None if there is none.
        document: the acknowledgement.
    """
    if document.checkpoint >= head.next_id:
        return AckAnswer.UNKNOWN
    if pending is None:
        return AckAnswer.DISCARDED
    execution = pending.executions.get(document.stage)
    if execution is None:
        return AckAnswer.UNKNOWN
    return AckAnswer.SUCCESS if execution.token == document.token else AckAnswer.DISCARDED


def read_ack(files: JobFiles, stage: str, execution: Execution) -> AckDocument:
    """Read the marker of an execution, without its further parts.

    Raises:
        GoneError: it has not acknowledged.
        DocumentError: the marker is broken, of another job, or names another stage or execution.
    """
    key = layout.ack(execution.home, stage, execution.token)
    ack, _ = files.read(AckDocument, key)
    found = (ack.stage, ack.token, ack.checkpoint)
    expected = (stage, execution.token, execution.home)
    if found != expected:
        raise DocumentError("the acknowledgement is of another execution", key=key, expected=expected, found=found)
    return ack


def subtasks_of(files: JobFiles, ack: AckDocument) -> Iterator[SubtaskAck]:
    """Stream an acknowledgement's subtasks from the marker or from its parts, in order, each index once.

    Raises:
        GoneError: a part is missing.
        DocumentError: a part is altered or foreign, or the subtasks are not exactly 0 to `parallelism` - 1.
    """
    expected = 0
    for subtask in _all_subtasks(files, ack):
        if subtask.index != expected:
            raise DocumentError(
                "the acknowledgement does not hold its subtasks in order, each once",
                key=layout.ack(ack.checkpoint, ack.stage, ack.token),
                expected=expected,
                found=subtask.index,
            )
        expected += 1
        yield subtask
    if expected != ack.parallelism:
        raise DocumentError(
            "the acknowledgement does not hold all its subtasks",
            key=layout.ack(ack.checkpoint, ack.stage, ack.token),
            expected=ack.parallelism,
            found=expected,
        )


def _all_subtasks(files: JobFiles, ack: AckDocument) -> Iterator[SubtaskAck]:
    yield from ack.subtasks
    for part in ack.parts:
        blob = files.store.get(files.full(part.key), max_bytes=MAX_MARKER_BYTES)
        if reference(part.key, blob.data) != part:
            raise DocumentError("a part of an acknowledgement has been altered", key=files.full(part.key))
        yield from files.parse(AckPart, part.key, blob.data).subtasks


def marks(files: JobFiles, homes: Iterable[int], kind: str) -> set[Mark]:
    """List which executions have acknowledged or declined, by names alone: one listing a home.

    Args:
        files: the job's files.
        homes: checkpoints in whose folders to look.
        kind: `acks` or `declines`.
    """
    found = set()
    for home in sorted(set(homes)):
        prefix = f"{layout.folder(home)}{kind}/"
        for entry in files.listing(prefix):
            stage, _, name = entry.key.removeprefix(prefix).partition("/")
            found.add(Mark(stage, name.removesuffix(".json")))
    return found


def has_acknowledged(files: JobFiles, stage: str, execution: Execution) -> bool:
    """Tell whether the execution's marker stands."""
    try:
        files.stat(layout.ack(execution.home, stage, execution.token))
    except GoneError:
        return False
    return True


def read_decline(files: JobFiles, stage: str, execution: Execution) -> DeclineDocument | None:
    """Read an execution's decline, None if there is none.

    Raises:
        DocumentError: it is broken or of another job.
    """
    try:
        return files.read(DeclineDocument, layout.decline(execution.home, stage, execution.token))[0]
    except GoneError:
        return None
