"""Rows that a run of a chaos pipeline reads, and the state to which some runs lead.

Both are functions of the names of the job and of its runs alone, so that an auditor computes them from nothing else.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

KEYS = "abcdefgh"
ROWS = 5
TURNS, LIVES = 5, 2
"""Number of keys that a state that grows has in turn, and of runs for which each of them stays."""


def rows(job: str, epoch: str) -> list[tuple[str, int]]:
    """Give the input of one run: keys, each with an amount."""
    digest = hashlib.sha256(f"{job}/{epoch}".encode()).digest()
    return [(KEYS[digest[2 * at] % len(KEYS)], 1 + digest[2 * at + 1]) for at in range(ROWS)]


def totals(job: str, epochs: Iterable[str]) -> dict[str, int]:
    """Give the sum of each key over runs, each as often as it is named."""
    return added({}, [row for epoch in epochs for row in rows(job, epoch)])


def added(before: Mapping[str, int], read: Iterable[Sequence[object]]) -> dict[str, int]:
    """Give the sums after some more rows."""
    sums = Counter(before)
    for key, amount in read:
        assert isinstance(key, str)
        assert isinstance(amount, int)
        sums[key] += amount
    return dict(sorted(sums.items()))


def changed_keys(before: Sequence[str], new: Sequence[str]) -> dict[str, str | None]:
    """Give what runs change in the state that grows: one key is set, another one ends, and one names the newest run.

    Args:
        before: the runs so far, in order.
        new: those that follow.
    """
    rows: dict[str, str | None] = {}
    for at, run in enumerate(new, len(before)):
        rows |= {"last": run, f"key {at % TURNS}": run, f"key {(at - LIVES) % TURNS}": None}
    return rows


def kept_keys(runs: Sequence[str]) -> dict[str, str]:
    """Give what the state that grows holds after these runs."""
    alive = range(max(0, len(runs) - LIVES), len(runs))
    return {**{f"key {at % TURNS}": runs[at] for at in alive}, **({"last": runs[-1]} if runs else {})}
