"""The metadata of a checkpoint as a file: written and read as a stream (semantics C5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..documents.attempt import DocumentRef
from ..documents.metadata import (
    HandleLine,
    HookLine,
    InFlightLine,
    Line,
    MetadataHeader,
    StageLine,
    Trailer,
    decode_line,
    encode_line,
)
from ..errors import DocumentError
from .job_files import JobFiles
from .jsonl import read as read_lines


def write(lines: Iterable[Line], put: Callable[[bytes], object]) -> None:
    """Hand whole metadata to `put`, a line at a time; the trailer is added."""
    stages = handles = in_flight = hooks = 0
    for line in lines:
        hooks += isinstance(line, HookLine)
        stages += isinstance(line, StageLine)
        handles += isinstance(line, HandleLine)
        in_flight += isinstance(line, InFlightLine)
        put(encode_line(line))
    put(encode_line(Trailer(stages=stages, handles=handles, in_flight=in_flight, hooks=hooks)))


def encode(lines: Iterable[Line]) -> bytes:
    """Give whole metadata as bytes, for what is known to be small."""
    body = bytearray()
    write(lines, body.extend)
    return bytes(body)


def read(files: JobFiles, ref: DocumentRef) -> Iterator[Line]:
    """Stream the metadata that `ref` names, checked as it goes; the trailer is checked and not yielded.

    Raises:
        GoneError: there is no such object.
        DocumentError: it differs from what `ref` says, is truncated, or a line of it is broken, or it is of an unknown
            newer format. The content is certain only once the iteration has ended.
    """
    where = files.full(ref.key)
    seen: dict[type, int] = {MetadataHeader: 0, HookLine: 0, StageLine: 0, InFlightLine: 0, HandleLine: 0}
    trailer: Trailer | None = None
    for raw in read_lines(files, ref, "the metadata"):
        if trailer is not None:
            raise DocumentError("the metadata has lines after its end", key=where)
        line = decode_line(raw, key=where, first=not seen[MetadataHeader])
        if isinstance(line, Trailer):
            trailer = line
            continue
        if isinstance(line, MetadataHeader) and line.job != files.job:
            raise DocumentError("the metadata belongs to another job", key=where, expected=files.job, found=line.job)
        if isinstance(line, HandleLine) and not seen[StageLine]:
            raise DocumentError("the metadata has a file that belongs to no stage", key=where)
        seen[type(line)] += 1
        yield line
    if trailer != Trailer(seen[StageLine], seen[HandleLine], seen[InFlightLine], seen[HookLine]):
        raise DocumentError("the metadata is truncated", key=where, size_bytes=ref.size_bytes)
