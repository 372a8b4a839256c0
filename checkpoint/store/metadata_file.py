"""The metadata of a checkpoint as a file, written and read as a stream, and what it refers to (semantics C3, C5).

For a growing table the metadata names a list; this module also reads the list and its manifests (decision 0047).

A process that completes a checkpoint has just written its metadata, and cleans next. It need not read the metadata
again: metadata never changes, and its reference identifies its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from ...storage.checksums import checksum_of
from ...storage.records import dataclass
from ..documents import layout, metadata
from ..documents.acknowledgement import TABLE_BYTES, Manifest, ManifestDocument, StateHandle, TableDocument
from ..documents.attempt import DocumentRef, Slice
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
from .job_files import JobFiles, known, reference
from .jsonl import read as read_lines


def write(lines: Iterable[Line], put: Callable[[bytes], object]) -> None:
    """Pass metadata to `put` line by line, and add the trailer."""
    stages = handles = in_flight = hooks = 0
    for line in lines:
        hooks += isinstance(line, HookLine)
        stages += isinstance(line, StageLine)
        handles += isinstance(line, HandleLine)
        in_flight += isinstance(line, InFlightLine)
        put(encode_line(line))
    put(encode_line(Trailer(stages=stages, handles=handles, in_flight=in_flight, hooks=hooks)))


def encode(lines: Iterable[Line]) -> bytes:
    """Give metadata as bytes, if it is known to be small."""
    body = bytearray()
    write(lines, body.extend)
    return bytes(body)


def read(files: JobFiles, ref: DocumentRef) -> Iterator[Line]:
    """Stream the metadata at `ref`, checked on the way; the trailer is checked, but not yielded.

    Raises:
        DocumentError: it differs from `ref`, is truncated, has a broken line, or is of an unknown newer format. The
            content is certain only once the iteration has ended.
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


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Manifests and files of a growing table."""

    manifests: tuple[Manifest, ...]
    handles: tuple[StateHandle, ...]
    """The table's files, oldest first."""


def is_list(handle: StateHandle) -> bool:
    """Tell whether a file is the list of a table that grows."""
    return layout.is_table_list(handle.output, handle.path)


def read_list(files: JobFiles, handle: StateHandle) -> TableDocument:
    """Read the list of a table that grows.

    Raises:
        DocumentError: it is broken or altered.
    """
    blob = files.get(handle.path, max_bytes=TABLE_BYTES)
    if checksum_of(blob.data) != known(handle):
        raise DocumentError("the list of a table has been altered", key=files.full(handle.path))
    document = files.parse(TableDocument, handle.path, blob.data, max_bytes=TABLE_BYTES)
    if len({each.document.key for each in document.manifests}) < len(document.manifests):
        # Otherwise a few bytes could name a manifest's files a hundred thousand times.
        raise DocumentError("the list of a table names a manifest twice", key=files.full(handle.path))
    return document


def read_manifest(files: JobFiles, manifest: Manifest) -> tuple[StateHandle, ...]:
    """Read a manifest.

    Raises:
        DocumentError: it is broken or altered.
    """
    key = manifest.document.key
    blob = files.get(key, max_bytes=TABLE_BYTES)
    if reference(key, blob.data) != manifest.document:
        raise DocumentError("a manifest of a table has been altered", key=files.full(key))
    return files.parse(ManifestDocument, key, blob.data, max_bytes=TABLE_BYTES).files


def read_table(files: JobFiles, handle: StateHandle) -> TableFiles:
    """Read the list of a growing table, and all its manifests."""
    manifests = read_list(files, handle).manifests
    return TableFiles(manifests, tuple(each for it in manifests for each in read_manifest(files, it)))


def flattened(files: JobFiles, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines with the files of each growing table in place of its list and its newest files."""
    listed: set[str] = set()
    for line in lines:
        if isinstance(line, StageLine):
            listed = set()
        if not isinstance(line, HandleLine) or (line.handle.output not in listed and not is_list(line.handle)):
            yield line
        elif is_list(line.handle):
            # The list sorts before the files beside it.
            listed.add(line.handle.output)
            for manifest in read_list(files, line.handle).manifests:
                yield from (HandleLine(line.subtask, each) for each in read_manifest(files, manifest))


def led_to(files: JobFiles, handle: StateHandle) -> Iterator[str]:
    """Yield the keys of all manifests and files of a table's list; nothing for any other file."""
    if is_list(handle):
        found = read_table(files, handle)
        yield from (each.document.key for each in found.manifests)
        yield from (each.path for each in found.handles)


@dataclass(slots=True)
class References:
    """Keys and epochs that lines of metadata refer to."""

    keys: set[str] = field(default_factory=set)
    epochs: set[str] = field(default_factory=set)
    """Epochs that a stage has still to read."""
    lists: list[StateHandle] = field(default_factory=list)
    """Lists of growing tables; their manifests and files are referred to as well, but have still to be read."""

    def through(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Yield lines, and record their references."""
        for line in lines:
            if isinstance(line, HandleLine):
                self.keys.add(line.handle.path)
                if is_list(line.handle):
                    self.lists.append(line.handle)
            elif isinstance(line, StageLine):
                for unread in line.owes:
                    if unread.slice is not None:
                        self.epochs.add(unread.epoch)
                        # The lists of another job's epoch, which came with a savepoint, have other keys.
                        lists = metadata.referred([unread.slice.sources, unread.slice.positions])
                        self.keys.update(each.key for each in lists)
            elif isinstance(line, MetadataHeader):
                self.keys.update(keys_of(line.slice))
            yield line


class LastSeen:
    """References of the last two metadata that this process has written or read whole: a completion sees two."""

    def __init__(self) -> None:
        self._last: tuple[tuple[DocumentRef, References], ...] = ()

    def note(self, ref: DocumentRef, referred: References) -> None:
        """Remember the references of metadata."""
        self._last = (*self._last, (ref, referred))[-2:]

    def of(self, ref: DocumentRef) -> References | None:
        """Give the references of metadata, if it was among the last."""
        return dict(self._last).get(ref)


def keys_of(slice_: Slice) -> Iterator[str]:
    """Yield the files that the positions of the sources name."""
    return (listed.key for listed in metadata.referred(slice_.positions))
