"""Which checkpoints of a job's history a page shows; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...checkpoint.reasons import Status
from ...checkpoint.views.checkpoint_list import CheckpointRow

ROWS = 50
"""Rows of a page."""


@dataclass(frozen=True, slots=True)
class HistoryFilter:
    """What a reader wants to see."""

    status: Status | None = None
    """None: all. What a pause has ended is in no other list."""
    run: str = ""
    """A part of the run's id; empty: all."""
    page: int = 1
    """From 1 on; one beyond the last shows the last."""
    whole: bool = False
    """Whether `run` is the whole id."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some checkpoints, newest first."""

    rows: tuple[CheckpointRow, ...]
    number: int
    pages: int
    matching: int
    """Checkpoints that the filter lets through."""
    known: int
    """Checkpoints that the job remembers."""


def page_of(rows: Sequence[CheckpointRow], wanted: HistoryFilter) -> HistoryPage:
    """Choose rows.

    Args:
        rows: all that the job remembers, newest first.
        wanted: which of them.
    """
    matching = [row for row in rows if wanted.status in (None, row.said) and _is_of(row.run_id, wanted)]
    pages = max(1, -(-len(matching) // ROWS))
    number = min(wanted.page, pages)
    shown = tuple(matching[(number - 1) * ROWS : number * ROWS])
    return HistoryPage(shown, number, pages, len(matching), len(rows))


def _is_of(run_id: str, wanted: HistoryFilter) -> bool:
    return run_id == wanted.run if wanted.whole else wanted.run.lower() in run_id.lower()
