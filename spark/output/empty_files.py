"""Parquet files without rows: Spark writes one where its first partition has none (semantics A4).

A state without rows is an output without files: its schema is in the acknowledgement, and who reads it gets an
empty DataFrame of that schema. A published table keeps its file: its plain readers learn the columns from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...storage.port import ObjectStat
from .row_count import END_BYTES, MAGIC

_AROUND_BYTES = len(MAGIC) + END_BYTES
"""A file's bytes beside its row groups and its footer."""
_ROUND_SCHEMA_BYTES = 4096


def without_rows(
    read_range: Callable[[str, int, int], bytes], found: Sequence[tuple[int, ObjectStat]], schema: str
) -> list[str]:
    """Name the files of an output that hold no rows: nothing lies between their beginning and their footer.

    A read of eight bytes at most. Spark opens no file for an empty partition but the first one, and what is larger than
    a footer of this schema can be is not looked at.

    Args:
        read_range: reads a file by its key, from an offset so many bytes.
        found: the output's data files, each with its partition.
        schema: the output's, as JSON; a footer holds it once as it is, and once as Parquet's own.
    """
    largest = _ROUND_SCHEMA_BYTES + 4 * len(schema)
    first = [each for part, each in found if part == 0]
    if len(first) != 1 or first[0].size_bytes > largest:
        return []
    (each,) = first
    end = read_range(each.key, max(0, each.size_bytes - END_BYTES), END_BYTES)
    footer_bytes = int.from_bytes(end[:4], "little")
    return [each.key] if end[4:] == MAGIC and footer_bytes + _AROUND_BYTES == each.size_bytes else []
