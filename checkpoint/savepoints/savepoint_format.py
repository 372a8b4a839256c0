"""A savepoint as a folder: `_metadata`, and below it the files that it names (semantics P1, C5).

The folder is laid out as a job's own is, with what one checkpoint needs and nothing else: keys are those of the job
(`chk-<id>/state/…`, `chk-<id>/positions/…`, `epoch-lists/…`), relative to the folder. So it can be moved as a whole,
to another bucket or to files and back. What differs is how a file is known: by the SHA-256 of its content, because a
store's own tag does not survive a move.

`_metadata` is JSON lines: a header (`cairn.savepoint`), then the checkpoint's own lines as `metadata.py` has them, then
an end that counts them and holds the SHA-256 of all before it. It is created once, after everything that it names:
without it there is no savepoint. A store handed to this module is rooted at the folder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

from ...storage.errors import GoneError
from ...storage.port import ObjectStore
from ..documents import codec, list_reference, metadata
from ..documents.attempt import Slice
from ..documents.fields import CheckpointId, Count, Job, RequestId
from ..documents.layout import cut_part
from ..documents.metadata import HandleLine, Line, MetadataHeader, StageLine
from ..documents.strict_json import from_json, to_json
from ..errors import DocumentError, NoSavepointError
from ..store.job_files import READ_BYTES
from ..store.jsonl import MAX_LINE_BYTES

KIND = "cairn.savepoint"
END = "cairn.savepoint-end"
METADATA = "_metadata"
"""The key of the metadata in the folder; what is written last."""

ALGORITHM = "sha256:"
"""What a file's checksum begins with in a savepoint; 64 hexadecimal digits follow."""

_CHECKSUM = re.compile(r"\Asha256:[0-9a-f]{64}\Z")
SHA256_GRAMMAR = r"\A[0-9a-f]{64}\Z"
"""What a SHA-256 looks like in a savepoint."""
_SHA256 = re.compile(SHA256_GRAMMAR)


@dataclass(frozen=True, slots=True)
class SavepointHeader:
    """The first line: what was asked for, of which job."""

    job: Job
    """The job that it was taken of."""
    savepoint: CheckpointId
    """Its own id, out of the job's sequence (semantics T5)."""
    request: RequestId
    taken_at_ms: Count
    """When it was asked for, milliseconds since 1970 UTC."""


def check_sha256(value: str) -> None:
    """Check a SHA-256 that a document names.

    Raises:
        ValueError: it is none in hexadecimal.
    """
    if _SHA256.match(value) is None:
        raise ValueError("expected 64 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class SavepointEnd:
    """The last line: what came before it."""

    files: Count
    """Files that the lines name, lists of the sources included."""
    size_bytes: Count
    """Of these files."""
    sha256: Annotated[str, check_sha256]
    """Of all bytes before this line."""


SavepointLine = SavepointHeader | Line
"""Between header and end are the lines of the checkpoint's metadata, the header of that included."""


@dataclass(frozen=True, slots=True)
class SavepointFile:
    """A file of a savepoint."""

    key: str
    """Relative to the savepoint's folder."""
    size_bytes: int
    sha256: str
    """Of its content, in hexadecimal."""


def folder_name(job: str, request: str, *, storage: str) -> str:
    """Give the name of a savepoint's folder below its target: the same request of a job gives the same folder.

    Args:
        job: the job's name.
        request: the request's id; with something behind it for one that follows one that has failed.
        storage: URI of the storage that the job lies in; another may have a job of this name.
    """
    token = hashlib.sha256(f"{storage}/{job}/{request}".encode()).hexdigest()[:12]
    return f"savepoint-{cut_part(job)}-{token}"


def travelling(line: Line) -> Line:
    """Give a checkpoint's line as its savepoint has it.

    Everything travels but two things. What was staged outside is committed by the job that staged it, and by no other.
    What the checkpoint's own epoch has read has been read; only the sources' positions after it are of use.
    """
    if isinstance(line, StageLine):
        return replace(line, committables={})
    if isinstance(line, MetadataHeader):
        return replace(line, slice=replace(line.slice, sources=None))
    return line


def files_of(line: SavepointLine) -> Iterator[SavepointFile]:
    """Yield the files that a line of a savepoint names.

    Raises:
        DocumentError: it names one by what is no checksum of a savepoint, or a list of a source that is no list.
    """
    if isinstance(line, HandleLine):
        handle = line.handle
        yield SavepointFile(handle.path, handle.size_bytes, sha256_of(handle.checksum, key=handle.path))
        return
    for listed in side_lists_of(line):
        if _SHA256.match(listed.sha256) is None:
            raise DocumentError("the checksum of a list is no SHA-256", key=listed.key, found=listed.sha256[:80])
        yield SavepointFile(listed.key, listed.size_bytes, listed.sha256)


def side_lists_of(line: SavepointLine) -> Iterator[list_reference.SideList]:
    """Yield the lists of the sources that a line names: with the positions, and in a stage's backlog.

    Raises:
        DocumentError: a reference is broken, or names what is no place of a list.
    """
    slices: list[Slice] = []
    if isinstance(line, MetadataHeader):
        slices = [line.slice]
    elif isinstance(line, StageLine):
        slices = [unread.slice for unread in line.owes if unread.slice is not None]
    for slice_ in slices:
        yield from list_reference.referred([slice_.sources, slice_.positions])


def sha256_of(checksum: str, *, key: str) -> str:
    """Give the SHA-256 that a file's checksum in a savepoint holds.

    Raises:
        DocumentError: it is of another kind.
    """
    if _CHECKSUM.match(checksum) is None:
        raise DocumentError(
            "the file of a savepoint is known by another checksum than SHA-256", key=key, found=checksum[:80]
        )
    return checksum.removeprefix(ALGORITHM)


def write(header: SavepointHeader, lines: Iterable[Line], put: Callable[[bytes], object]) -> SavepointEnd:
    """Hand a savepoint's whole metadata to `put`, a line at a time; gives its end.

    Args:
        header: the first line.
        lines: the checkpoint's, its header first; each file by its SHA-256.
        put: takes the bytes of one line.

    Raises:
        DocumentError: a file is not named by its SHA-256.
    """
    digest = hashlib.sha256()
    files: dict[str, int] = {}

    def add(line: bytes) -> None:
        digest.update(line)
        put(line)

    add(codec.encode({"kind": KIND, "format": codec.FORMAT, **to_json(header)}))
    for line in lines:
        files.update((file.key, file.size_bytes) for file in files_of(line))
        add(metadata.encode_line(line))
    end = SavepointEnd(len(files), sum(files.values()), digest.hexdigest())
    put(codec.encode({"kind": END, **to_json(end)}))
    return end


def decode_line(raw: bytes, *, number: int, key: str) -> SavepointLine | SavepointEnd:
    """Parse one line; what it may be depends on its number, 0-based.

    Raises:
        DocumentError: it is not a line of ours, or of an unknown newer format.
    """
    document = codec.parse(raw, key=key)
    kind = document.get("kind") if isinstance(document, dict) else None
    if number == 0:
        if kind != KIND:
            raise DocumentError("this is no savepoint's metadata", key=key, expected=KIND, found=str(kind)[:80])
        codec.check_format(document, key=key)
        return from_json(SavepointHeader, document, key=key)
    if kind == END:
        return from_json(SavepointEnd, document, key=key)
    return metadata.line_of(document, key=key, first=number == 1)


def read(folder: ObjectStore) -> Iterator[SavepointLine | SavepointEnd]:
    """Stream a savepoint's metadata, checked as it goes: the header first, the end last.

    Raises:
        NoSavepointError: there is no metadata: this is no savepoint, or a copy of it broke off.
        DocumentError: it is truncated or altered, a line of it is broken or names a path outside of the folder, or it
            is of an unknown newer format. The content is certain only once the iteration has ended.
    """
    where = f"{folder.uri}/{METADATA}"
    digest = hashlib.sha256()
    files: dict[str, int] = {}
    end: SavepointEnd | None = None
    for number, raw in enumerate(_raw_lines(folder, where)):
        if end is not None:
            raise DocumentError("the savepoint's metadata has lines after its end", key=where)
        found = decode_line(raw, number=number, key=where)
        if isinstance(found, SavepointEnd):
            end = found
            if end != SavepointEnd(len(files), sum(files.values()), digest.hexdigest()):
                raise DocumentError("the savepoint's metadata has been altered", key=where)
        else:
            files.update((file.key, file.size_bytes) for file in files_of(found))
            digest.update(raw + b"\n")
        yield found
    if end is None:
        raise DocumentError("the savepoint's metadata is truncated; copy the savepoint again", key=where)


def _raw_lines(folder: ObjectStore, where: str) -> Iterator[bytes]:
    rest, offset = b"", 0
    while True:
        try:
            chunk = folder.read_range(METADATA, offset, READ_BYTES)
        except GoneError as error:
            raise NoSavepointError(
                "there is no savepoint: its _metadata is missing, which is written (and to be copied) last. Give the "
                "savepoint's own folder, or copy it again",
                savepoint=folder.uri,
            ) from error
        offset += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise DocumentError("the savepoint's metadata has a line that is too long", key=where)
        yield from whole
        if len(chunk) < READ_BYTES:
            break
    if rest:
        raise DocumentError("the savepoint's metadata is truncated; copy the savepoint again", key=where)
