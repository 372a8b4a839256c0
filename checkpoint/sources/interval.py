"""`DataInterval`: an epoch reads its run's data interval, and no moment is read twice (semantics T8)."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import ClassVar

from ...storage import older_pythons
from ...storage.names import check_name
from ...storage.records import dataclass
from ..documents.read_windows import ReadWindows
from ..documents.strict_json import Json
from ..errors import DocumentError
from ..source import Reading, Refusal, RunFacts
from ..validation import check_choice, refuses_unknown

_FIRST = datetime.min.replace(tzinfo=timezone.utc)
Window = tuple[datetime, datetime]


@refuses_unknown
@dataclass(frozen=True, slots=True)
class DataInterval:
    """Reads the data interval of the run. The position holds the windows read so far: half-open and merged.

    Raises:
        InvalidConfigError: an option has another value than those listed.
        InvalidKeyError: the name is outside the grammar (semantics W1).
    """

    gap: str = "extend"
    """Treatment of an interval that starts after the last moment read: `extend` reads from that moment, `keep` leaves
    the gap to a later run, `refuse` refuses the epoch."""
    overlap: str = "trim"
    """Treatment of an interval of which some was read before: `trim` reads the rest, `refuse` refuses the epoch."""
    name: str = "interval"
    positioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the options where the DAG is parsed."""
        check_name("source", self.name)
        check_choice("gap", self.gap, ("extend", "keep", "refuse"))
        check_choice("overlap", self.overlap, ("trim", "refuse"))

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """Give the unread part of the run's interval, with the gap before it if `gap` asks for it."""
        if run.data_interval_start is None or run.data_interval_end is None:
            return Refusal(
                f"the run {run.run_id} ({run.run_type}) has no data interval: trigger it with a logical date on a "
                "schedule that has intervals, or use another source"
            )
        covered = _windows(position)
        start, end = run.data_interval_start.astimezone(timezone.utc), run.data_interval_end.astimezone(timezone.utc)
        log = []
        last = covered[-1][1] if covered else None
        if start == end and self.gap != "extend":
            return Refusal(
                f"the run's data interval has no length: gap={self.gap!r} needs a schedule with intervals, such as "
                "CronDataIntervalTimetable"
            )
        if start == end and not covered:
            log.append("the run's data interval has no length and nothing was read before: the window has no start")
            start = _FIRST
        elif last is not None and start > last:
            if self.gap == "refuse":
                return Refusal(
                    f"nothing has read {last.isoformat()} to {start.isoformat()}: run a backfill for it first, or set "
                    "gap='extend'"
                )
            if self.gap == "extend":
                log.append(f"the window starts at {last.isoformat()}, where the last one ended")
                start = last
        left = _without((start, end), covered)
        if not left:
            return Refusal(f"completed checkpoints have read all of {_range((start, end))}", all_read=True)
        if left != [(start, end)]:
            pieces = ", ".join(_range(piece) for piece in left)
            if self.overlap == "refuse":
                return Refusal(f"some of the interval has been read; left are {pieces}. Set overlap='trim' to read it")
            if len(left) > 1:
                return Refusal(f"what is left of the interval is no one window: run a backfill for each of {pieces}")
            log.append(f"some of the interval has been read; this epoch reads {pieces}")
        first, end = left[0]
        window = (None if first == _FIRST else first.isoformat(), end.isoformat())
        return Reading({"start": window[0], "end": window[1]}, tuple(log), window)

    def advance(self, position: Json, part: Json, _shelf: object = None, /) -> Json | Refusal:
        """Add a window to those read; refuse one that overlaps them."""
        covered, window = _windows(position), _window(part)
        left = _without(window, covered)
        if not left:
            return Refusal(f"completed checkpoints have read all of {_range(window)}", all_read=True)
        if left != [window]:
            return Refusal(
                f"checkpoints that completed since this epoch was fixed have read some of {_range(window)}; left are "
                f"{', '.join(_range(each) for each in left)}. Run a backfill for what is left, and mark this run as "
                "done instead of clearing it"
            )
        merged: list[Window] = []
        for each in sorted([*covered, window]):
            if merged and each[0] <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], each[1]))
            else:
                merged.append(each)
        return [{"start": None if a == _FIRST else a.isoformat(), "end": b.isoformat()} for a, b in merged]

    def position_of(self, read: ReadWindows) -> Json:
        """Give the position of a job that has read data intervals without a source.

        Time before the remembered windows counts as read: this source refuses or trims it.

        Args:
            read: the windows that the job has read.
        """
        position: Json = None
        if read.exact_from is not None:
            position = [{"start": None, "end": read.exact_from}]
        for each in read.windows:
            part: Json = {"start": each.start, "end": each.end}
            moved = self.advance(position, part) if position is not None else [part]
            position = position if isinstance(moved, Refusal) else moved
        return position


def _without(window: Window, covered: list[Window]) -> list[Window]:
    left = [window]
    for begin, end in covered:
        pieces = ((max(a, x), min(b, y)) for a, b in left for x, y in ((_FIRST, begin), (end, window[1])))
        left = sorted({piece for piece in pieces if piece[0] < piece[1]})
    return [piece for piece in left if piece[0] < piece[1]]


def _windows(position: Json) -> list[Window]:
    if position is None:
        return []
    if not isinstance(position, list):
        raise DocumentError("this is no position of a DataInterval: give it a new name", found=str(position)[:80])
    return sorted(_window(each) for each in position)


def _window(part: Json) -> Window:
    try:
        start, end = part["start"], older_pythons.moment_of(part["end"])
        window = _FIRST if start is None else older_pythons.moment_of(start), end
        if None not in (each.tzinfo for each in window):
            return window
    except (KeyError, TypeError, ValueError):
        pass
    raise DocumentError("this is no window of a DataInterval: give the source a new name", found=str(part)[:80])


def _text(moment: datetime) -> str:
    return "the beginning" if moment == _FIRST else moment.isoformat()


def _range(window: Window) -> str:
    return f"{_text(window[0])} to {_text(window[1])}"
