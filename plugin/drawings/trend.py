"""A figure of the completed checkpoints as a row of bars, to be drawn; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...checkpoint.reasons import Status
from ...checkpoint.views.checkpoint_list import CheckpointRow

WIDTH, HEIGHT = 1_000, 80
"""Of the whole drawing."""

MOST = 50
"""Checkpoints that are drawn, the newest: more bars would be thinner than what is seen on a telephone."""

LOWEST = 1
"""Of a bar, so that it is seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One checkpoint."""

    checkpoint: int
    value: int
    """In the figure's own unit."""
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure of some checkpoints."""

    bars: tuple[Bar, ...]
    """Oldest first."""

    @property
    def highest(self) -> int:
        """The largest value."""
        return max((bar.value for bar in self.bars), default=0)


def durations(rows: Sequence[CheckpointRow]) -> Trend:
    """Draw how long the completed checkpoints among some took, in milliseconds.

    Args:
        rows: of one job, newest first; those that a rewind has undone are left out.
    """
    return _trend([(row.id, row.duration_ms or 0) for row in _drawn(rows)])


def sparkline(values: Sequence[int]) -> Trend:
    """Draw some values without the checkpoints that they are of, oldest first."""
    return _trend(list(enumerate(values)))


def new_bytes(rows: Sequence[CheckpointRow]) -> Trend:
    """Draw how much the completed checkpoints among some wrote, in bytes; rows as for `durations`."""
    return _trend([(row.id, row.new_bytes or 0) for row in _drawn(rows)])


def _drawn(rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    done = [row for row in rows if row.status is Status.COMPLETED and row.rewound_to is None]
    # Of what only its entry is left, the history no longer knows how much it wrote.
    known = [row for row in done if row.new_bytes is not None]
    return known[:MOST][::-1]


def _trend(values: list[tuple[int, int]]) -> Trend:
    highest = max((value for _, value in values), default=0) or 1
    step = WIDTH / max(len(values), 1)

    def bar(place: int, checkpoint: int, value: int) -> Bar:
        height = max(LOWEST, HEIGHT * value / highest)
        return Bar(checkpoint, value, *(round(each, 1) for each in (place * step, HEIGHT - height, step * 0.8, height)))

    return Trend(tuple(bar(place, *each) for place, each in enumerate(values)))
