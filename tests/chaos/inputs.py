"""What a run of a chaos pipeline reads, and what the state must be that some runs lead to.

Both are functions of the names of the job and of its runs alone, so that an auditor computes them from nothing else.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

KEYS = "abcdefgh"
ROWS = 5


def rows(job: str, epoch: str) -> list[tuple[str, int]]:
    """Give the input of one run: keys, each with an amount."""
    digest = hashlib.sha256(f"{job}/{epoch}".encode()).digest()
    return [(KEYS[digest[2 * at] % len(KEYS)], 1 + digest[2 * at + 1]) for at in range(ROWS)]


def totals(job: str, epochs: Iterable[str]) -> dict[str, int]:
    """Give the sum of each key over runs, each as often as it is named."""
    return added({}, [row for epoch in epochs for row in rows(job, epoch)])


def added(before: dict[str, int], read: Iterable[Sequence[object]]) -> dict[str, int]:
    """Give the sums after some more rows."""
    sums = Counter(before)
    for key, amount in read:
        assert isinstance(key, str)
        assert isinstance(amount, int)
        sums[key] += amount
    return dict(sorted(sums.items()))
