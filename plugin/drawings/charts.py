"""Charts of the page as numbers: figures as bars, attempts as segments of a line, stages as a graph; pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from ...checkpoint.documents.attempt import StageSpec
from ...checkpoint.reasons import Status
from ...checkpoint.rules.failures import regions_of
from ...checkpoint.views.checkpoint_list import CheckpointRow
from ...storage.records import dataclass
from .stage_progress import StageProgress

WIDTH, HEIGHT = 1_000, 80

MOST_BARS = 50
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
        return max((bar.value for bar in self.bars), default=0)


def durations(rows: Sequence[CheckpointRow]) -> Trend:
    """Draw the durations of the completed checkpoints among the rows, in milliseconds.

    The rows are of one job, newest first; checkpoints that a rewind has undone are left out.
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
    return known[:MOST_BARS][::-1]


def _trend(values: list[tuple[int, int]]) -> Trend:
    highest = max((value for _, value in values), default=0) or 1
    step = WIDTH / max(len(values), 1)

    def bar(place: int, checkpoint: int, value: int) -> Bar:
        height = max(LOWEST, HEIGHT * value / highest)
        return Bar(checkpoint, value, *(round(each, 1) for each in (place * step, HEIGHT - height, step * 0.8, height)))

    return Trend(tuple(bar(place, *each) for place, each in enumerate(values)))


LINE_WIDTH = 1_000

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
    """Status in words."""
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
class RunLine:
    """One run."""

    run_id: str
    segments: tuple[Segment, ...]


def timeline(rows: Sequence[CheckpointRow], now_ms: int) -> tuple[RunLine, ...]:
    """Lay out the runs of some checkpoints, newest first; pending checkpoints end now."""
    runs = sorted(_by_run(rows), key=lambda of_run: of_run[-1].id, reverse=True)
    longest = _longest(runs, now_ms)
    return tuple(_run_line(of_run, now_ms, longest) for of_run in runs)


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
    return round((LINE_WIDTH - THINNEST) * max(0, after_ms) / longest)


def _run_line(of_run: Sequence[CheckpointRow], now_ms: int, longest: int) -> RunLine:
    began = of_run[0].triggered_at_ms

    def part(at_ms: int) -> int:
        return _place(at_ms - began, longest)

    return RunLine(
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
    """Return the progress of each box; `drawn` returns the uid of the box that shows a stage, None if none does."""
    parts: dict[str, list[StageProgress]] = {}
    for stage, each in progress.items():
        uid = drawn(stage)
        if uid is not None:
            parts.setdefault(uid, []).append(each)
    return {uid: _mark(stages) for uid, stages in parts.items()}


def graph_of(stages: tuple[StageSpec, ...], marks: Mapping[str, Mark]) -> StageGraph | None:
    """Lay out a job's stages, each to the right of all that it reads from; None for a single stage, or for too many."""
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
