"""A job's stages as boxes and lines, with their regions and how far each is in a checkpoint (semantics F1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.failures.regions import regions_of
from ...checkpoint.reasons import Status
from ...checkpoint.views.details import CheckpointDetails, StageRow

BOX = (168, 44)
"""Width and height of a box, in pixels as all here."""

STEP = (216, 60)
"""From one box to the next: to the right, and down."""

MARGIN = 4

MOST = 60
"""Stages that are drawn; of more, a picture says nothing."""

SHORT = 20
"""Characters that a box has room for."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a stage is."""

    kind: str
    """`completed`, `failed`, `pending` or `kept`, as a status is drawn; empty: nothing is known."""
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """One stage, or all stages of a mapped task."""

    uid: str
    name: str
    """Short enough for the box."""
    mark: Mark
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
    """From a stage to one that reads from it."""

    path: str
    """As SVG draws it."""
    pipelined: bool


@dataclass(frozen=True, slots=True)
class StageGraph:
    """The picture."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    regions: tuple[tuple[str, ...], ...]
    """Those of several stages, which run again together."""


_OPEN = {
    Status.PENDING: ("pending", "waited for"),
    Status.COMPLETED: ("kept", "left out"),
    Status.FAILED: ("", "had not acknowledged"),
}
"""What is said of a stage that has not acknowledged, by what became of the checkpoint."""


def marks_of(found: CheckpointDetails, drawn: Callable[[str], str | None]) -> dict[str, Mark]:
    """Say how far each box is in a checkpoint.

    Args:
        found: the checkpoint.
        drawn: gives the uid of the box that a stage is part of; None where it is in none.
    """
    parts: dict[str, list[StageRow]] = {}
    for stage in found.stages:
        uid = drawn(stage.stage)
        if uid is not None:
            parts.setdefault(uid, []).append(stage)
    return {uid: _mark(stages, found) for uid, stages in parts.items()}


def graph_of(stages: tuple[StageSpec, ...], marks: Mapping[str, Mark]) -> StageGraph | None:
    """Lay out a job's stages from left to right, each to the right of all that it reads from.

    Args:
        stages: what is drawn; every upstream is one of them.
        marks: by uid.

    Returns:
        None where there are too many to draw, or only one.
    """
    if not 1 < len(stages) <= MOST:
        return None
    columns = _columns(stages)
    place: dict[str, tuple[int, int]] = {}
    upstream = {stage.uid: stage.upstream for stage in stages}
    for number, column in enumerate(columns):
        # Beside what it reads from, so that few lines cross; the order of the DAG decides between equals.
        rows = {uid: [place[up][1] for up in upstream[uid] if up in place] for uid in column}
        column.sort(key=lambda uid: sum(rows[uid]) / len(rows[uid]) if rows[uid] else 0)
        place |= {uid: (number, row) for row, uid in enumerate(column)}
    at = {uid: (MARGIN + STEP[0] * x, MARGIN + STEP[1] * y) for uid, (x, y) in place.items()}
    boxes = tuple(Box(each.uid, _short(each.uid), marks.get(each.uid, Mark("", "")), *at[each.uid]) for each in stages)
    lines = tuple(Line(_path(at[up], at[each.uid]), up in each.pipelined) for each in stages for up in each.upstream)
    regions = tuple(tuple(sorted(region)) for region in regions_of(stages) if len(region) > 1)
    width = STEP[0] * (len(columns) - 1) + BOX[0] + 2 * MARGIN
    height = STEP[1] * (max(len(column) for column in columns) - 1) + BOX[1] + 2 * MARGIN
    return StageGraph(width, height, boxes, lines, regions)


def _columns(stages: tuple[StageSpec, ...]) -> list[list[str]]:
    column: dict[str, int] = {}
    left = list(stages)
    while left:
        ready = [stage for stage in left if all(up in column for up in stage.upstream)]
        if not ready:  # in a circle: no DAG of ours is, but a stored text may be
            ready = left
        for stage in ready:
            column[stage.uid] = max((column.get(up, 0) + 1 for up in stage.upstream), default=0)
        left = [stage for stage in left if stage.uid not in column]
    found: list[list[str]] = [[] for _ in range(max(column.values()) + 1)]
    for stage in stages:
        found[column[stage.uid]].append(stage.uid)
    return found


def _mark(stages: list[StageRow], found: CheckpointDetails) -> Mark:
    acknowledged = sum(stage.acknowledged for stage in stages)
    share = f"{acknowledged} of {len(stages)}"
    if any(stage.problem or stage.declined for stage in stages):
        return Mark("failed", "declined" if not any(stage.problem for stage in stages) else "broken")
    if any(stage.stage in found.failed_stages for stage in stages):
        return Mark("failed", "failed")
    if acknowledged < len(stages):
        kind, text = _OPEN[found.row.status]
        if any(stage.stage in found.row.restarted for stage in stages):
            text = "had begun"
        return Mark(kind, text if len(stages) == 1 else share)
    if all(stage.carried for stage in stages):
        return Mark("kept", f"kept from {stages[0].home}" if len(stages) == 1 else "kept")
    return Mark("completed", "acknowledged" if len(stages) == 1 else share)


def _short(uid: str) -> str:
    return uid if len(uid) <= SHORT else f"{uid[: SHORT - 1]}…"


def _path(source: tuple[int, int], target: tuple[int, int]) -> str:
    x, y = source[0] + BOX[0], source[1] + BOX[1] // 2
    to_x, to_y = target[0], target[1] + BOX[1] // 2
    bend = (STEP[0] - BOX[0]) // 2
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"
