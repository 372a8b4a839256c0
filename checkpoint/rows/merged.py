"""The rows of a state that has runs: of each key the newest (semantics K1).

The keys of all runs are in memory, which are a part of the state; its rows are not. A budget bounds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..documents.acknowledgement import StateHandle
from .budget import ReadBudget
from .values import same

DELETED = "_cairn_deleted"
"""As `spark/stored/runs.py` writes it; nothing of Spark's side is imported here."""

Rows = Callable[[StateHandle, Sequence[str]], Iterator[dict[str, Any]]]
"""Reads columns of a file, row by row."""


def merged(
    handles: Sequence[StateHandle],
    names: Sequence[str],
    key: Sequence[str],
    read: Rows,
    budget: ReadBudget | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a state: those of its base that no run has touched, then the newest of the runs.

    Args:
        handles: its files, in their order.
        names: its columns.
        key: its key columns.
        read: reads a file.
        budget: how many keys of runs may be read; None for all.

    Raises:
        TooMuchToReadError: the budget does not reach.
    """
    newest: dict[Any, int] = {}
    runs = [handle for handle in handles if handle.run]
    for handle in runs:
        for row in read(handle, key):
            if budget is not None:
                budget.spend_key()
            at = _key(row, key)
            newest[at] = max(handle.run, newest.get(at, 0))
    for handle in handles:
        for row in read(handle, names if not handle.run else [*names, DELETED]):
            if newest.get(_key(row, key), 0) == handle.run and not row.pop(DELETED, False):
                yield row


def _key(row: dict[str, Any], key: Sequence[str]) -> Any:
    return tuple(same(row[column]) for column in key)
