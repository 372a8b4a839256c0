"""Acknowledges and declines: one create-once marker for each execution, judged by the head afterwards (A, D1).

The order is: state files, further parts, the marker, the judgement. A marker's name belongs to one execution, so the
first driver that creates it has acknowledged; whether that counts depends on whether the head still expects the
execution (semantics W4). A crash before the marker leaves unreferenced files for the cleaner; a crash after it leaves a
valid acknowledgement.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from ...storage.errors import CairnError, DocumentError, GoneError
from ...storage.port import Written
from ...storage.records import dataclass
from ..documents import layout
from ..documents.acknowledgement import AckDocument, AckPart, DeclineDocument, StateHandle, SubtaskAck
from ..documents.attempt import DocumentRef, Execution, PendingDocument
from ..documents.codec import MAX_MARKER_BYTES
from ..documents.entries import PendingEntry
from ..documents.head import Head
from ..errors import InvalidStateError
from ..reasons import DECLINES, AckAnswer, Reason, Status
from ..rules import history
from . import attempt_documents
from .job_files import CREATE_TRIES, JobFiles, encode, reference


@dataclass(frozen=True, slots=True)
class Mark:
    """One marker seen in a listing."""

    stage: str
    token: str


def write_ack(files: JobFiles, ack: AckDocument) -> bool:
    """Write an execution's acknowledgement; True if this one counts, False if another driver was first.

    Raises:
        InvalidStateError: the acknowledgement is of another job, or contradicts itself; nothing was written.
        OutcomeUnknownError: the acknowledgement may or may not have landed; delete nothing.
    """
    check_job(files, ack)
    check_whole(ack)
    key = layout.ack(ack.checkpoint, ack.stage, ack.token)
    marker = split(files, ack)
    for _ in range(CREATE_TRIES):
        if isinstance(files.create(key, marker), Written):
            return True
        try:
            return files.read(AckDocument, key)[0].run == ack.run
        except GoneError:
            continue  # a cleaner deleted it in between; the head decides whether a new one counts
    raise InvalidStateError(
        "the marker of this acknowledgement vanishes each time it is written; look for what deletes it",
        key=files.full(key),
    )


def write_decline(files: JobFiles, decline: DeclineDocument) -> None:
    """Write an execution's decline; only the first one counts (semantics D1).

    Raises:
        InvalidStateError: the decline is of another job, or a stage may not give its reason.
    """
    check_job(files, decline)
    if decline.reason not in DECLINES:
        raise InvalidStateError(
            "a stage cannot decline for this reason",
            reason=decline.reason,
            expected=", ".join(sorted(DECLINES)),
        )
    files.create(layout.decline(decline.checkpoint, decline.stage, decline.token), decline)


def check_job(files: JobFiles, document: AckDocument | DeclineDocument) -> None:
    """Refuse a document of another job, before anything is written (semantics A3, D1).

    Raises:
        InvalidStateError: the document belongs to another job.
    """
    if document.job != files.job:
        raise InvalidStateError(
            "this is an acknowledgement or decline of another job; it is refused and changes nothing",
            expected=files.job,
            found=document.job,
            checkpoint=document.checkpoint,
        )


def check_whole(ack: AckDocument) -> None:
    """Check that an acknowledgement holds each subtask and output once, and only files of its outputs (semantics A1).

    Raises:
        InvalidStateError: the check fails.
    """
    ids = [output.id for output in ack.outputs]
    problem = None
    if len(set(ids)) != len(ids):
        problem = "it names an output twice"
    elif not ack.parts and [subtask.index for subtask in ack.subtasks] != list(range(ack.parallelism)):
        problem = f"it must hold the subtasks 0 to {ack.parallelism - 1} in order, each once"
    elif {handle.output for subtask in ack.subtasks for handle in subtask.handles} - set(ids):
        problem = "it holds a file of an output that it does not name"
    if problem is not None:
        raise InvalidStateError(
            f"the acknowledgement does not fit together: {problem}",
            stage=ack.stage,
            parallelism=ack.parallelism,
            subtasks=len(ack.subtasks),
        )


def judge(head: Head, pending: PendingDocument | None, document: AckDocument) -> AckAnswer:
    """Answer an acknowledgement, from the head alone (semantics A2, A3, W4).

    Args:
        head: read after the marker was written.
        pending: the document of the pending attempt of the ack's epoch, None if there is none.
        document: the acknowledgement.
    """
    if document.checkpoint >= head.next_id:
        return AckAnswer.UNKNOWN
    if pending is None:
        return AckAnswer.DISCARDED
    execution = pending.execution(document.stage)
    if execution is None:
        return AckAnswer.UNKNOWN
    return AckAnswer.SUCCESS if execution == document.execution else AckAnswer.DISCARDED


def read_ack(files: JobFiles, stage: str, execution: Execution, epoch: str | None = None) -> AckDocument:
    """Read the marker of an execution, without its further parts; it has to be of `epoch`, if that is given.

    Raises:
        DocumentError: the marker is broken, of another job, or names another stage, execution or epoch.
    """
    key = layout.ack(execution.home, stage, execution.token)
    ack, _ = files.read(AckDocument, key)
    found = (ack.stage, ack.token, ack.checkpoint, ack.attempt, ack.epoch)
    expected = (stage, execution.token, execution.home, execution.attempt, epoch or ack.epoch)
    if found != expected:
        raise DocumentError(
            "the acknowledgement is of another execution", key=files.full(key), expected=expected, found=found
        )
    return ack


def subtasks_of(files: JobFiles, ack: AckDocument) -> Iterator[SubtaskAck]:
    """Stream an acknowledgement's subtasks from the marker or from its parts, in order.

    A subtask whose files did not fit into one part comes several times in a row, each time with some of them.

    Raises:
        DocumentError: a part is altered or foreign, or the subtasks are not exactly 0 to `parallelism` - 1.
    """
    key = files.full(layout.ack(ack.checkpoint, ack.stage, ack.token))
    last = -1
    for subtask in joined(files, ack):
        if subtask.index not in (last, last + 1) or subtask.index < 0:
            raise DocumentError(
                "the acknowledgement does not hold its subtasks in order",
                key=key,
                expected=last + 1,
                found=subtask.index,
            )
        last = subtask.index
        yield subtask
    if last + 1 != ack.parallelism:
        raise DocumentError(
            "the acknowledgement does not hold all its subtasks", key=key, expected=ack.parallelism, found=last + 1
        )


def marks(files: JobFiles, homes: Iterable[int], kind: str) -> set[Mark]:
    """List the markers of a kind by name, without reading them: one listing for each home."""
    found = set()
    for home in sorted(set(homes)):
        prefix = f"{layout.folder(home)}{kind}/"
        for entry in files.listing(prefix):
            stage, _, name = entry.key.removeprefix(prefix).partition("/")
            found.add(Mark(stage, name.removesuffix(".json")))
    return found


def marked(files: JobFiles, executions: Mapping[str, Execution], kind: str) -> frozenset[str]:
    """Give the stages whose executions have a marker of a kind (`acks`, `declines`, …): one listing for each home."""
    found = marks(files, {execution.home for execution in executions.values()}, kind)
    return frozenset(uid for uid, execution in executions.items() if Mark(uid, execution.token) in found)


def has_acknowledged(files: JobFiles, stage: str, execution: Execution) -> bool:
    """Tell whether the execution's marker exists."""
    return files.has(layout.ack(execution.home, stage, execution.token))


def has_declined(files: JobFiles, stage: str, execution: Execution) -> bool:
    """Tell whether the execution's decline exists."""
    return files.has(layout.decline(execution.home, stage, execution.token))


def read_decline(files: JobFiles, stage: str, execution: Execution) -> DeclineDocument | None:
    """Read an execution's decline, None if there is none."""
    try:
        return files.read(DeclineDocument, layout.decline(execution.home, stage, execution.token))[0]
    except GoneError:
        return None


def why_declined(files: JobFiles, stage: str, execution: Execution) -> tuple[Reason, str] | None:
    """Give the reason and the root cause of an execution's decline, None if there is none.

    A decline that cannot be read counts all the same: nothing may wait for its execution.
    """
    try:
        found = read_decline(files, stage, execution)
    except DocumentError as error:
        return Reason.CHECKPOINT_DECLINED, f"its decline cannot be read: {error}"
    return (found.reason, found.detail) if found else None


def causes(
    files: JobFiles, executions: Mapping[str, Execution], declined: Collection[str]
) -> list[tuple[str, Reason, str]]:
    """Give the declined stages by name, each with reason and detail; those that declined by themselves come first."""
    unread = (Reason.CHECKPOINT_DECLINED, "declined")
    found = [(uid, *(why_declined(files, uid, executions[uid]) or unread)) for uid in sorted(declined)]
    return sorted(found, key=lambda each: each[1] is Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)


def describe(found: Iterable[tuple[str, Reason, str]]) -> tuple[str, ...]:
    """Write each cause as a line for people."""
    return tuple(f"{uid}: {why}" for uid, _, why in found)


MARKER_BYTES = MAX_MARKER_BYTES
"""Size above which the subtasks of an acknowledgement go into parts."""

PART_BYTES = MAX_MARKER_BYTES * 3 // 4
"""Target size of a part: below the cap, with room for the JSON around the subtasks."""

_AROUND_HANDLE = 110
"""Bytes of JSON around a file's path, checksums and output: field names, quotes, the size in digits."""

_AROUND_SUBTASK = 48


def split(files: JobFiles, ack: AckDocument) -> AckDocument:
    """Make the marker of an acknowledgement; if it would be too large, write the subtasks as parts first."""
    if len(encode(ack)) <= MARKER_BYTES:
        return ack
    return replace(ack, subtasks=(), parts=tuple(_write_parts(files, ack)))


def joined(files: JobFiles, ack: AckDocument) -> Iterator[SubtaskAck]:
    """Stream an acknowledgement's subtasks, from its marker and its parts.

    Raises:
        DocumentError: a part is altered, broken, or of another execution.
    """
    yield from ack.subtasks
    for part in ack.parts:
        blob = files.get(part.key, max_bytes=MAX_MARKER_BYTES)
        if reference(part.key, blob.data) != part:
            raise DocumentError("a part of an acknowledgement has been altered", key=files.full(part.key))
        document = files.parse(AckPart, part.key, blob.data)
        if (document.token, document.run) != (ack.token, ack.run):
            raise DocumentError("a part belongs to another acknowledgement", key=files.full(part.key))
        yield from document.subtasks


def _write_parts(files: JobFiles, ack: AckDocument) -> Iterator[DocumentRef]:
    for number, subtasks in enumerate(_chunks(ack.subtasks)):
        data = encode(AckPart(job=ack.job, token=ack.token, run=ack.run, subtasks=tuple(subtasks)))
        key = layout.ack_part(ack.checkpoint, ack.stage, ack.token, ack.run, number)
        # The name holds the driver's own id, so an existing object is this driver's, sent twice.
        files.create_bytes(key, data)
        yield reference(key, data)


def _chunks(subtasks: Iterable[SubtaskAck]) -> Iterator[list[SubtaskAck]]:
    chunk: list[SubtaskAck] = []
    size = 0
    for subtask in subtasks:
        for piece, bytes_of_it in _pieces(subtask):
            if chunk and size + bytes_of_it > PART_BYTES:
                yield chunk
                chunk, size = [], 0
            chunk.append(piece)
            size += bytes_of_it
    if chunk:
        yield chunk


def _pieces(subtask: SubtaskAck) -> Iterator[tuple[SubtaskAck, int]]:
    """Cut a subtask whose files are too large for one part."""
    handles: list[StateHandle] = []
    size = _AROUND_SUBTASK
    for handle in subtask.handles:
        bytes_of_it = _AROUND_HANDLE + sum(_json_bytes(text) for text in _texts(handle))
        if handles and size + bytes_of_it > PART_BYTES:
            yield SubtaskAck(subtask.index, tuple(handles)), size
            handles, size = [], _AROUND_SUBTASK
        handles.append(handle)
        size += bytes_of_it
    yield SubtaskAck(subtask.index, tuple(handles)), size


def _texts(handle: StateHandle) -> tuple[str, ...]:
    return handle.path, handle.checksum, handle.output, handle.content or ""


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())


# Counts the stages that had acknowledged in an attempt that ends without completing (semantics O1, D2, S1, C2).
#
# Decisions often end an attempt without looking at its markers: at its timeout, when the DAG is paused, when another
# attempt completes. So the process that swaps counts the markers, if the decision has not.


log = logging.getLogger("airflow_cairn")


def counted(files: JobFiles, old: Head, new: Head) -> Head:
    """Add to `new` the number of stages that had acknowledged in each attempt that fails in it.

    Costs a listing for each checkpoint that is the home of such an attempt's executions. The number is only shown to
    users: if the markers cannot be listed, the end is recorded without it.
    """
    for entry in old.pending:
        ended = new.ended_by_id(entry.id)
        if ended is not None and ended.status is Status.FAILED and ended.acks == 0:
            found = _acknowledged(files, entry)
            new = history.with_ended(new, replace(ended, acks=found)) if found else new
    return new


def _acknowledged(files: JobFiles, entry: PendingEntry) -> int:
    try:
        document = attempt_documents.read(files, entry)
        return len(marked(files, document.executions, "acks"))
    except CairnError as error:
        log.warning(
            "The stages that had acknowledged in checkpoint %d of job %s cannot be counted: %s",
            entry.id,
            files.job,
            error,
        )
        return 0
