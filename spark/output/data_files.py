"""The data files in a folder that Spark has written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ...storage.port import ObjectStat
from .row_count import END_BYTES, MAGIC

_DATA_FILE = re.compile(r"\Apart-([0-9]+)[-.][^/]*\.parquet\Z")


def part_of(name: str) -> int | None:
    """Return the partition of a data file; None for any other file.

    Args:
        name: the file's name, without its folder.
    """
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
