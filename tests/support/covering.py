"""Of many cases those that show something new, for `make test`; `make soak` runs all of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case")
Shows = Callable[[Case], Iterable[Hashable]]
"""Gives what has to be seen at least once, such as each pair of a write and a fault."""


gives_all = True
"""Whether cases that show nothing new are given too; without `--soak` they would only be collected, and left out."""


def told_apart(cases: Iterable[Case], shows: Shows[Case]) -> Iterator[tuple[Case, bool]]:
    """Yield each case, and whether it is one of the few that together show all.

    Args:
        cases: with texts that differ; by these they are mixed, so that the few are of all kinds.
        shows: of one case.
    """
    mixed = sorted(cases, key=_mixed)
    few = _few([frozenset(shows(case)) for case in mixed])
    yield from ((case, at in few) for at, case in enumerate(mixed))


def _few(shown: Sequence[frozenset[Hashable]]) -> set[int]:
    """Choose again and again the case that shows the most that no chosen one shows; of equal ones the first."""
    few, seen = set[int](), set[Hashable]()
    left = [(-len(each), at) for at, each in enumerate(shown)]
    heapify(left)
    while left:
        old, at = heappop(left)
        new = -len(shown[at] - seen)
        if new and new > old:
            heappush(left, (new, at))  # it showed more when it was put here
        elif new:
            few.add(at)
            seen |= shown[at]
    return few


def _mixed(case: object) -> int:
    text = str(case)
    assert " at 0x" not in text, f"another text, and so another choice, in each process of the tests: {text}"
    return zlib.crc32(text.encode())


def covering(cases: Iterable[Case], shows: Shows[Case]) -> list[ParameterSet]:
    """Give every case as a parameter, a tuple as several; one that shows nothing new is marked `soak`."""
    return as_parameters(told_apart(cases, shows))


def as_parameters(cases: Iterable[tuple[Case, bool]]) -> list[ParameterSet]:
    """Give as parameters the cases that show something new; the others, marked `soak`, where they are run."""
    return [_as_parameter(case, new) for case, new in cases if new or gives_all]


def one_of(values: Sequence[Case], test: str) -> list[ParameterSet]:
    """Give of values that a test is run with one to `make test`: to each test another, by its name."""
    return as_parameters((each, each == values[_mixed(test) % len(values)]) for each in values)


def _as_parameter(case: object, new: bool) -> ParameterSet:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=() if new else pytest.mark.soak)
