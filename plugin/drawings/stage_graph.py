"""A job's stages as boxes and lines, with their regions and their progress in a checkpoint (semantics F1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.rules.regions import regions_of
from .stage_progress import StageProgress

BOX = (168, 44)
"""Width and height of a box; all lengths here are pixels."""

STEP = (216, 60)
"""Distance from one box to the next: to the right, and down."""

MARGIN = 4

MOST = 60
"""Maximum number of stages; a drawing of more would be unreadable."""

SHORT = 20
"""Characters that fit into a box."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A stage's progress, as its box shows it."""

    kind: str
    """Values of `StageProgress.kind`; empty: nothing is known."""
    text: str


@dataclass(frozen=True, slots=True)
class Box:
    """One stage, or all stages of a mapped task."""

    uid: str
    name: str
    """Shortened to fit into the box."""
    mark: Mark
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line from a stage to one that reads from it."""

    path: str
    """Path data of SVG."""
    pipelined: bool


@dataclass(frozen=True, slots=True)
class StageGraph:
    """The drawing."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    regions: tuple[tuple[str, ...], ...]
    """Regions of more than one stage, which run again together."""


_URGENCY = ("failed", "retry", "running", "queued", "")
"""If some stages of one box have not acknowledged, the first kind here that one of them has colours the box."""


def marks_of(progress: Mapping[str, StageProgress], drawn: Callable[[str], str | None]) -> dict[str, Mark]:
    """Return the progress of each box in a checkpoint.

    Args:
        progress: the progress of the checkpoint's stages, by uid.
        drawn: returns the uid of the box that shows a stage; None if no box does.
    """
    parts: dict[str, list[StageProgress]] = {}
    for stage, each in progress.items():
        uid = drawn(stage)
        if uid is not None:
            parts.setdefault(uid, []).append(each)
    return {uid: _mark(stages) for uid, stages in parts.items()}


def graph_of(stages: tuple[StageSpec, ...], marks: Mapping[str, Mark]) -> StageGraph | None:
    """Lay out a job's stages from left to right, each to the right of all stages that it reads from.

    Args:
        stages: the stages to draw; every upstream is one of them.
        marks: the marks by uid.

    Returns:
        The drawing; None for a single stage, or for too many.
    """
    if not 1 < len(stages) <= MOST:
        return None
    columns = _columns(stages)
    place: dict[str, tuple[int, int]] = {}
    upstream = {stage.uid: stage.upstream for stage in stages}
    for number, column in enumerate(columns):
        # Place a stage beside its inputs, so that few lines cross; the DAG's order decides between equals.
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
        if not ready:  # in a cycle: a job has none, but a stored text may
            ready = left
        for stage in ready:
            column[stage.uid] = max((column.get(up, 0) + 1 for up in stage.upstream), default=0)
        left = [stage for stage in left if stage.uid not in column]
    found: list[list[str]] = [[] for _ in range(max(column.values()) + 1)]
    for stage in stages:
        found[column[stage.uid]].append(stage.uid)
    return found


def _mark(stages: list[StageProgress]) -> Mark:
    if len(stages) == 1:
        return Mark(stages[0].kind, stages[0].text)
    kinds = {each.kind for each in stages}
    open_kind = next((kind for kind in _URGENCY if kind in kinds), None)
    if open_kind is None and kinds == {"kept"}:
        return Mark("kept", "kept")
    done = sum(each.acknowledged for each in stages)
    return Mark("completed" if open_kind is None else open_kind, f"{done} of {len(stages)}")


def _short(uid: str) -> str:
    return uid if len(uid) <= SHORT else f"{uid[: SHORT - 1]}…"


def _path(source: tuple[int, int], target: tuple[int, int]) -> str:
    x, y = source[0] + BOX[0], source[1] + BOX[1] // 2
    to_x, to_y = target[0], target[1] + BOX[1] // 2
    bend = (STEP[0] - BOX[0]) // 2
    return f"M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}"
