"""The merging of small files of a table that grows (decision 0047).

Files of one partition and of about one size are alike. An epoch merges alike files only among those whose lines it
rewrites, so it reads no other manifest. Merged files are larger, so each row is rewritten only a few times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from ...checkpoint.documents.acknowledgement import StateHandle

SMALL = 8 * 1024 * 1024
"""Files below this many bytes are small; larger files are never merged."""

FAN_IN = 8
"""Number of alike files that are merged; also the largest ratio of sizes among alike files."""

BUDGET = 128 * 1024 * 1024
"""Most bytes that one epoch rewrites, and so the largest merged file."""


def alike(handles: Sequence[StateHandle]) -> tuple[list[StateHandle], list[StateHandle]]:
    """Select the files to merge for each partition, and those to keep; both in the given order."""
    found = defaultdict[tuple[str, int], list[StateHandle]](list)
    for each in handles:
        if each.size_bytes < SMALL:
            found[each.partition, each.size_bytes.bit_length() // (FAN_IN.bit_length() - 1)].append(each)
    chosen: set[str] = set()
    left = BUDGET
    for group in found.values():
        totals = accumulate(each.size_bytes for each in group)
        fitting = [each for each, total in zip(group, totals, strict=True) if total <= left]
        if len(group) >= FAN_IN and len(fitting) > 1:
            chosen.update(each.path for each in fitting)
            left -= sum(each.size_bytes for each in fitting)
    small, others = ([each for each in handles if (each.path in chosen) == wanted] for wanted in (True, False))
    return small, others
