"""Which small files of a table that grows become one (decision 0047).

Files of one partition and about one size are alike. An epoch merges those among the files whose lines it writes anew,
so it looks at no other manifest. What was merged is larger, so each row is written again only a few times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate

from ...checkpoint.documents.acknowledgement import StateHandle

SMALL = 8 * 1024 * 1024
"""Bytes below which a file is small; larger ones are never merged."""

FAN_IN = 8
"""Files that are alike and kept apart; that many become one. It is also how much the largest of them is larger."""

BUDGET = 128 * 1024 * 1024
"""Bytes that one epoch writes anew at most, and so the most that a merged file has."""


def alike(handles: Sequence[StateHandle]) -> tuple[list[StateHandle], list[StateHandle]]:
    """Give the files that are to become one file for each partition, and those that stay; each in the given order."""
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
