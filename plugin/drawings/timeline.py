"""The attempts of some runs as segments of one line for each run; pure.

Each line begins at its run's first attempt, so a run that took long, or failed over, stands out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ...checkpoint.views.checkpoint_list import CheckpointRow

WIDTH = 1_000
"""Width of the longest line."""

THINNEST = 3
"""Minimum width of a segment, so that it is visible."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One attempt."""

    id: int
    said: str
    """Its status in words."""
    start: int
    """Distance from the beginning of the line, in units of `WIDTH`; so is `width`."""
    width: int


@dataclass(frozen=True, slots=True)
class Line:
    """One run."""

    run_id: str
    segments: tuple[Segment, ...]
    """The segments in the order of their ids."""


def timeline(rows: Sequence[CheckpointRow], now_ms: int) -> tuple[Line, ...]:
    """Lay out the runs of some checkpoints, newest first.

    Args:
        rows: any checkpoints of one job.
        now_ms: the time, milliseconds since 1970 UTC, as the end of pending checkpoints.
    """
    ordered = sorted(rows, key=lambda row: (row.run_id, row.id))
    runs = [tuple(of_run) for _, of_run in groupby(ordered, key=lambda row: row.run_id)]
    runs = sorted(runs, key=lambda of_run: of_run[-1].id, reverse=True)
    longest = max((_end(of_run[-1], now_ms) - of_run[0].triggered_at_ms for of_run in runs), default=0)
    return tuple(_line(of_run, now_ms, max(1, longest)) for of_run in runs)


def _line(of_run: Sequence[CheckpointRow], now_ms: int, longest: int) -> Line:
    began = of_run[0].triggered_at_ms

    def part(at_ms: int) -> int:
        return round((WIDTH - THINNEST) * max(0, at_ms - began) / longest)

    return Line(
        of_run[0].run_id,
        tuple(
            Segment(
                row.id,
                row.said,
                part(row.triggered_at_ms),
                max(THINNEST, part(_end(row, now_ms)) - part(row.triggered_at_ms)),
            )
            for row in of_run
        ),
    )


def _end(row: CheckpointRow, now_ms: int) -> int:
    return now_ms if row.ended_at_ms is None else row.ended_at_ms
