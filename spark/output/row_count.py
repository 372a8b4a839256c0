"""Data files in a folder that Spark has written, and the number of rows in each footer (semantics A1).

A footer is one struct in Thrift's compact protocol: its version, its schema, and then the number of rows. The reader
parses the footer only up to that number, without a library: a driver may have none for Parquet. Unknown content makes
the number unknown, never an error. A footer whose reading would cost a request is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...storage.port import ObjectStat

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
        """Add the next bytes of the file."""
        kept = piece if len(piece) >= _MOST_BYTES else self._end + piece
        self._end = kept[-_MOST_BYTES:]

    def rows(self) -> int | None:
        """Return the number of rows, once the whole file has passed; None if it is unknown."""
        length = _footer_bytes(self._end[-END_BYTES:])
        if length is None or length + END_BYTES > len(self._end):
            return None
        return rows_in(self._end[-END_BYTES - length :])


def rows_of(read_range: Callable[[str, int, int], bytes], key: str, size_bytes: int) -> int | None:
    """Read the number of rows from a file's footer; None if it is unknown.

    Args:
        read_range: reads a file's bytes: key, offset, length.
        key: the file.
        size_bytes: the file's size.
    """
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
                raise ValueError("no number of 64 bits")

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

    Args:
        read_range: reads a file's bytes: key, offset, length.
        found: the output's data files, each with its partition.
        schema: the output's schema as JSON; a footer holds it once in this form, and once in Parquet's own.
    """
    largest = _ROUND_SCHEMA_BYTES + 4 * len(schema)
    first = [each for part, each in found if part == 0]
    if len(first) != 1 or first[0].size_bytes > largest:
        return []
    (each,) = first
    end = read_range(each.key, max(0, each.size_bytes - END_BYTES), END_BYTES)
    footer_bytes = int.from_bytes(end[:4], "little")
    return [each.key] if end[4:] == MAGIC and footer_bytes + _AROUND_BYTES == each.size_bytes else []
