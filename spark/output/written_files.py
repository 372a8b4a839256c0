"""Data files in a folder that Spark has written: the number of rows in each footer, and files that lie here first.

A footer is one struct in Thrift's compact protocol: its version, its schema, and then the number of rows. The reader
parses the footer only up to that number, without a library: a driver may have none for Parquet. Unknown content makes
the number unknown, never an error. A footer whose reading would cost a request is not read.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ...checkpoint.documents.acknowledgement import Output, StateHandle
from ...checkpoint.documents.attempt import DocumentRef
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.local.files import chunks, tag_of
from ...storage.port import ObjectStat
from ..stored.local_state import Draft, LocalState, name_in_copy
from ..stored.outputs import File

MAGIC = b"PAR1"
END_BYTES = 8
"""The end of a Parquet file: its footer's length, and the magic."""
_MOST_BYTES = 1 << 20
"""Bytes of a footer that are read, or kept of a file that passes by. A schema of some thousand columns fits."""
_MOST_LEVELS = 16
"""Deepest nesting of structs and lists; a footer has four levels."""
_ROWS = 3
"""The footer's field with the number of rows."""

_BOOLS, _BYTE, _INTS, _I64, _DOUBLE, _BINARY, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 6, 7, 8, (9, 10), 12


class Tail:
    """Keeps the end of a file that is read for another reason."""

    def __init__(self) -> None:
        self._end = b""

    def add(self, piece: bytes) -> None:
        kept = piece if len(piece) >= _MOST_BYTES else self._end + piece
        self._end = kept[-_MOST_BYTES:]

    def rows(self) -> int | None:
        """Return the number of rows, once the whole file has passed; None if it is unknown."""
        length = _footer_bytes(self._end[-END_BYTES:])
        if length is None or length + END_BYTES > len(self._end):
            return None
        return rows_in(self._end[-END_BYTES - length :])


def rows_of(read_range: Callable[[str, int, int], bytes], key: str, size_bytes: int) -> int | None:
    """Read the number of rows from a file's footer; None if it is unknown."""
    length = _footer_bytes(read_range(key, max(0, size_bytes - END_BYTES), END_BYTES))
    if length is None or length + END_BYTES > size_bytes:
        return None
    return rows_in(read_range(key, size_bytes - END_BYTES - length, min(length, _MOST_BYTES)))


def rows_in(footer: bytes) -> int | None:
    """Read the number of rows from a footer, or from its beginning; None if the number is not in it."""
    try:
        rows = _Compact(footer).integer(_ROWS)
    except (IndexError, ValueError):
        return None
    return rows if rows is not None and rows >= 0 else None


def _footer_bytes(end: bytes) -> int | None:
    return int.from_bytes(end[:4], "little") if len(end) == END_BYTES and end[4:] == MAGIC else None


class _Compact:
    """Reads a struct in the compact protocol from its beginning."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def integer(self, wanted: int) -> int | None:
        """Read a 64-bit field, skipping those before it; None if the struct lacks it."""
        field = 0
        while kind := self._field():
            delta, of_kind = kind
            field = field + delta if delta else self._signed()
            if field == wanted:
                return self._signed() if of_kind == _I64 else None
            self._pass(of_kind, 0)
        return None

    def _field(self) -> tuple[int, int] | None:
        """Read a field's header: the distance from the last field's number, and the type; None at the struct's end."""
        head = self._byte()
        return (head >> 4, head & 15) if head & 15 else None

    def _pass(self, kind: int, level: int) -> None:
        if level > _MOST_LEVELS:
            raise ValueError("too deep")
        if kind in _BOOLS:
            return  # the type of a boolean is its value
        if kind in _INTS:
            self._number()
        elif kind == _BYTE:
            self._at += 1
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BINARY:
            length = self._number()
            self._at += length
        elif kind in _LISTS:
            head = self._byte()
            count, inner = head >> 4, head & 15
            count = self._number() if count == 15 else count
            if count > len(self._data):
                raise ValueError("longer than the footer")
            for _ in range(count):
                if inner in _BOOLS:
                    self._at += 1  # in a list each boolean takes a byte
                else:
                    self._pass(inner, level + 1)
        elif kind == _STRUCT:
            while field := self._field():
                delta, inner = field
                if not delta:
                    self._number()
                self._pass(inner, level + 1)
        else:
            raise ValueError(f"no type: {kind}")

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._number()
        return (value >> 1) ^ -(value & 1)


_DATA_FILE = re.compile(r"\Apart-([0-9]+)[-.][^/]*\.parquet\Z")


def part_of(name: str) -> int | None:
    """Return the partition of a data file; None for any other file."""
    match = _DATA_FILE.match(name)
    return int(match[1]) if match else None


# Parquet files without rows: Spark writes one if its first partition has no rows (semantics A4). A state without rows
# is an output without files: the acknowledgement has its schema, and readers get an empty DataFrame of that schema. A
# published table keeps its file, from which plain readers learn the columns.


_AROUND_BYTES = len(MAGIC) + END_BYTES
"""Bytes of a file beside its row groups and its footer."""
_ROUND_SCHEMA_BYTES = 4096


def without_rows(
    read_range: Callable[[str, int, int], bytes], found: Sequence[tuple[int, ObjectStat]], schema: str
) -> list[str]:
    """Name the files of an output without rows: nothing lies between their beginning and their footer.

    Reads at most eight bytes. Spark opens no file for an empty partition except the first one, and a file larger than a
    footer of this schema is not looked at.

    The schema is JSON; a footer holds it once in this form, and once in Parquet's own.
    """
    largest = _ROUND_SCHEMA_BYTES + 4 * len(schema)
    first = [each for part, each in found if part == 0]
    if len(first) != 1 or first[0].size_bytes > largest:
        return []
    (each,) = first
    end = read_range(each.key, max(0, each.size_bytes - END_BYTES), END_BYTES)
    footer_bytes = int.from_bytes(end[:4], "little")
    return [each.key] if end[4:] == MAGIC and footer_bytes + _AROUND_BYTES == each.size_bytes else []


# Spark writes a state beside its server, and these files are then uploaded, so that the next epoch finds a copy here
# (semantics V3), with the store's bytes and the SHA-256 that the acknowledgement names. If there is no room here, Spark
# writes to the store, as it does without a local folder. Raw files are copied, not linked, since the application may
# write into them later.


log = logging.getLogger("airflow_cairn")

_AT_ONCE = 8
"""Files uploaded at once."""
_ONE_REQUEST_BYTES = 5 << 30
"""The largest file that S3 takes in one request."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXTS = tuple(os.strerror(number) for number in _FULL)

T = TypeVar("T")

Describe = Callable[[str, str, str], StateHandle]
"""Describes an uploaded file, by `Output.id`, its key and its SHA-256."""


def write(
    files: JobFiles,
    local: LocalState,
    output: Output,
    name: str,
    write_to: Callable[[str], None],
    described: Describe,
) -> list[File] | None:
    """Write a state here, and upload it.

    The copies' `name` is `Output.id`, or for a delta `delta_of` it. `write_to` makes Spark write the DataFrame to a
    URL.

    Returns:
        The files; None if there was no room, and nothing was uploaded: write to the store.
    """
    draft = local.draft(name)
    if draft is None:
        return None
    with draft:
        try:
            write_to(draft.url)
        except Exception as error:
            if not any(text in str(error) for text in _FULL_TEXTS):
                raise
            draft.give_up(f"the disk of {draft.data} is full")
            return None
        found = _data_of(draft, output)
        if _is_too_large(draft, local, [each.size_bytes for _, each in found]):
            return None

        def upload(each: tuple[int, ObjectStat]) -> StateHandle:
            _, file = each
            handle = described(output.id, *_upload(files, output.folder + file.key, draft.data / file.key))
            if handle.rows is None:
                handle = replace(handle, rows=rows_of(_reader_in(draft.data), file.key, file.size_bytes))
            return handle

        handles = _kept(draft, upload, found)
        return [File(part, handle) for (part, _), handle in zip(found, handles, strict=True)]


def write_files(
    files: JobFiles,
    local: LocalState,
    output: Output,
    sizes: Mapping[str, int],
    copy: Callable[[Mapping[str, Path]], None],
    described: Describe,
) -> list[StateHandle] | None:
    """Copy raw files here and upload the copies.

    `sizes` are the bytes of each file, by its path below the output's folder; `copy` copies each file to the given
    path, or raises.

    Returns:
        The files, in the order of `sizes`; None if there was no room, and nothing was uploaded: write to the store.
    """
    draft = local.draft(output.id)
    if draft is None:
        return None
    with draft:
        if _is_too_large(draft, local, sizes.values()):
            return None
        copies = {name: draft.data / name_in_copy(output.id, output.folder + name) for name in sizes}
        try:
            draft.data.mkdir()
            copy(copies)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            draft.give_up(f"the disk of {draft.data} is full")
            return None

        def upload(each: tuple[str, Path]) -> StateHandle:
            name, path = each
            return described(output.id, *_upload(files, output.folder + name, path))

        return _kept(draft, upload, copies.items())


def keep(local: LocalState, handle: StateHandle, name: str, data: bytes) -> None:
    """Keep a copy of a small file of the store, on which nothing depends."""
    draft = local.draft(handle.output)
    if draft is None:
        return
    with draft:
        try:
            draft.data.mkdir()
            (draft.data / name).write_bytes(data)
        except OSError as error:
            log.warning("No local copy of %s was kept: %s", handle.output, error)
            return
        draft.keep([handle])


def _kept(draft: Draft, upload: Callable[[T], StateHandle], files: Iterable[T]) -> list[StateHandle]:
    """Upload the files of a draft, several at once, and keep the draft as their copy."""
    with ThreadPoolExecutor(_AT_ONCE, "cairn-upload") as pool:
        handles = list(pool.map(upload, files))
    draft.keep(handles)
    return handles


def _is_too_large(draft: Draft, local: LocalState, sizes: Iterable[int]) -> bool:
    """Abandon a draft that is larger than the limit for all copies, or has a file too large for one request to S3."""
    each = [*sizes]
    if sum(each) <= local.limit_bytes and max(each, default=0) <= _ONE_REQUEST_BYTES:
        return False
    draft.give_up(f"it has {sum(each)} bytes, and local_state_mb allows {local.limit_bytes}")
    return True


def _data_of(draft: Draft, output: Output) -> list[tuple[int, ObjectStat]]:
    """Return the data files, and delete the others."""
    data: list[tuple[int, ObjectStat]] = []
    for path in sorted(draft.data.iterdir()):
        part = part_of(path.name)
        if part is None:
            path.unlink()  # _SUCCESS, and the checksums of Hadoop's local file system
        else:
            data.append((part, ObjectStat(path.name, path.stat().st_size, None)))

    empty = without_rows(_reader_in(draft.data), data, output.schema or "")
    for name in empty:
        (draft.data / name).unlink()
    return [each for each in data if each[1].key not in empty]


def _reader_in(folder: Path) -> Callable[[str, int, int], bytes]:
    def read_range(name: str, start: int, length: int) -> bytes:
        with (folder / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    return read_range


def _upload(files: JobFiles, key: str, path: Path) -> tuple[str, str]:
    """Upload one file; return its key and its SHA-256."""
    with path.open("rb") as source:
        sha256 = tag_of(chunks(source.fileno()))
        ref = DocumentRef(key, os.fstat(source.fileno()).st_size, sha256.partition(":")[2])
        if not files.create_from(ref, source):
            raise InvalidStateError("a file with this driver's own name is there already", key=files.full(key))
    return key, sha256
