"""Which files of a folder that Spark has written hold data."""

from __future__ import annotations

import re

_DATA_FILE = re.compile(r"\Apart-([0-9]+)[-.][^/]*\.parquet\Z")


def part_of(name: str) -> int | None:
    """Give the partition that a file holds; None if it holds no data.

    Args:
        name: of the file, without its folder.
    """
    match = _DATA_FILE.match(name)
    return int(match[1]) if match else None
