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

TICKS = 6
"""Maximum number of the axis' marks after the first."""

_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(n * _SECOND for n in (1, 2, 5, 10, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 30)),
    *(n * _HOUR for n in (1, 2, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 30, 365)),
)


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
class Tick:
    """A mark of the axis."""

    at: int
    """As `Segment.start`."""
    after_ms: int


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
    runs = sorted(_by_run(rows), key=lambda of_run: of_run[-1].id, reverse=True)
    longest = _longest(runs, now_ms)
    return tuple(_line(of_run, now_ms, longest) for of_run in runs)


def axis(rows: Sequence[CheckpointRow], now_ms: int) -> tuple[Tick, ...]:
    """Return the marks of the axis of a timeline, at round times; arguments as for `timeline`."""
    longest = _longest(_by_run(rows), now_ms)
    step = next((each for each in _STEPS_MS if longest / each < TICKS), _STEPS_MS[-1])
    return tuple(Tick(_place(after, longest), after) for after in range(0, longest + 1, step))[: TICKS + 1]


def _by_run(rows: Sequence[CheckpointRow]) -> list[tuple[CheckpointRow, ...]]:
    ordered = sorted(rows, key=lambda row: (row.run_id, row.id))
    return [tuple(of_run) for _, of_run in groupby(ordered, key=lambda row: row.run_id)]


def _longest(runs: Sequence[Sequence[CheckpointRow]], now_ms: int) -> int:
    return max(1, *(_end(of_run[-1], now_ms) - of_run[0].triggered_at_ms for of_run in runs), 1)


def _place(after_ms: int, longest: int) -> int:
    return round((WIDTH - THINNEST) * max(0, after_ms) / longest)


def _line(of_run: Sequence[CheckpointRow], now_ms: int, longest: int) -> Line:
    began = of_run[0].triggered_at_ms

    def part(at_ms: int) -> int:
        return _place(at_ms - began, longest)

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
