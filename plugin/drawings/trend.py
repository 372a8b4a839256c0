"""One figure of the completed checkpoints as a row of bars; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...checkpoint.reasons import Status
from ...checkpoint.views.checkpoint_list import CheckpointRow

WIDTH, HEIGHT = 1_000, 80
"""Size of the whole drawing."""

MOST = 50
"""Maximum number of checkpoints, the newest: more bars would be too thin on a phone."""

LOWEST = 1
"""Minimum height of a bar, so that it is visible."""


@dataclass(frozen=True, slots=True)
class Bar:
    """The bar of one checkpoint."""

    checkpoint: int
    value: int
    """Value in the figure's own unit."""
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure of some checkpoints, as bars."""

    bars: tuple[Bar, ...]
    """The bars, oldest first."""

    @property
    def highest(self) -> int:
        """The largest value."""
        return max((bar.value for bar in self.bars), default=0)


def durations(rows: Sequence[CheckpointRow]) -> Trend:
    """Draw the durations of the completed checkpoints among the rows, in milliseconds.

    Args:
        rows: rows of one job, newest first; checkpoints that a rewind has undone are left out.
    """
    return _trend([(row.id, row.duration_ms or 0) for row in _drawn(rows)])


def sparkline(values: Sequence[int]) -> Trend:
    """Draw values without checkpoint ids, oldest first."""
    return _trend(list(enumerate(values)))


def new_bytes(rows: Sequence[CheckpointRow]) -> Trend:
    """Draw the bytes that the completed checkpoints among the rows wrote; rows as for `durations`."""
    return _trend([(row.id, row.new_bytes or 0) for row in _drawn(rows)])


def _drawn(rows: Sequence[CheckpointRow]) -> list[CheckpointRow]:
    done = [row for row in rows if row.status is Status.COMPLETED and row.rewound_to is None]
    # For a checkpoint of which only its entry is left, the written bytes are unknown.
    known = [row for row in done if row.new_bytes is not None]
    return known[:MOST][::-1]


def _trend(values: list[tuple[int, int]]) -> Trend:
    highest = max((value for _, value in values), default=0) or 1
    step = WIDTH / max(len(values), 1)

    def bar(place: int, checkpoint: int, value: int) -> Bar:
        height = max(LOWEST, HEIGHT * value / highest)
        return Bar(checkpoint, value, *(round(each, 1) for each in (place * step, HEIGHT - height, step * 0.8, height)))

    return Trend(tuple(bar(place, *each) for place, each in enumerate(values)))
