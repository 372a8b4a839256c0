"""An acknowledgement that is too large for one marker stands in further parts, named by the marker (semantics A6)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..storage.errors import DocumentError
from . import layout
from .documents import MAX_MARKER_BYTES
from .job_files import JobFiles, encode, reference
from .model import AckDocument, AckPart, DocumentRef, StateHandle, SubtaskAck

MARKER_BYTES = MAX_MARKER_BYTES
"""Size above which the subtasks of an acknowledgement go into parts."""

PART_BYTES = MAX_MARKER_BYTES * 3 // 4
"""Size that a part aims at: below the cap with room for what surrounds the subtasks."""

_AROUND_HANDLE = 110
"""Bytes of JSON around a file's path, checksums and output: field names, quotes, the size in digits."""

_AROUND_SUBTASK = 48


def split(files: JobFiles, ack: AckDocument) -> AckDocument:
    """Give the marker of an acknowledgement; where the whole is too large for it, its parts are written first.

    Raises:
        InvalidStateError: what it holds is no JSON.
    """
    if len(encode(ack)) <= MARKER_BYTES:
        return ack
    return replace(ack, subtasks=(), parts=tuple(_write_parts(files, ack)))


def joined(files: JobFiles, ack: AckDocument) -> Iterator[SubtaskAck]:
    """Stream what an acknowledgement holds, from its marker and its parts.

    Raises:
        GoneError: a part is missing.
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
        # The name holds the driver's own id, so what stands there already is this driver's, sent twice.
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
    """Cut a subtask where its files alone would be too large for one part."""
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
