"""`DataInterval`, `AssetEvents` and `Offsets`: sources whose input is a small value (semantics T8)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any, ClassVar

from ...storage import older_pythons
from ...storage.names import check_name, shorten
from ...storage.records import dataclass
from ..documents import codec
from ..documents.read_windows import ReadWindows
from ..documents.strict_json import Json, plain_json
from ..errors import DocumentError, InvalidConfigError, InvalidStateError
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
                return Refusal(f"what is left of the interval is not one window: run a backfill for each of {pieces}")
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
        raise DocumentError("this is not a position of a DataInterval: give it a new name", found=str(position)[:80])
    return sorted(_window(each) for each in position)


def _window(part: Json) -> Window:
    try:
        start, end = part["start"], older_pythons.moment_of(part["end"])
        window = _FIRST if start is None else older_pythons.moment_of(start), end
        if None not in (each.tzinfo for each in window):
            return window
    except (KeyError, TypeError, ValueError):
        pass
    raise DocumentError("this is not a window of a DataInterval: give the source a new name", found=str(part)[:80])


def _text(moment: datetime) -> str:
    return "the beginning" if moment == _FIRST else moment.isoformat()


def _range(window: Window) -> str:
    return f"{_text(window[0])} to {_text(window[1])}"


MAX_VALUE_BYTES = 256 * 1024
"""Largest JSON of an `Offsets` callable's answer, for the input and for the position each."""

MAX_EVENT_IDS = 1000
"""Number of event ids that the position holds; older ones are forgotten."""


@refuses_unknown
@dataclass(frozen=True, slots=True)
class AssetEvents:
    """Reads the asset events that triggered the run; an event that a completed checkpoint has read is left out.

    The position holds the ids of the newest `MAX_EVENT_IDS` events.

    Raises:
        InvalidKeyError: the name is outside the grammar (semantics W1).
    """

    name: str = "events"
    positioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_name("source", self.name)

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """Give the run's unread events, oldest first."""
        if not run.events:
            return Refusal(
                f"no asset event triggered the run {run.run_id} ({run.run_type}): let an asset trigger the DAG, or use "
                "another source for its other runs"
            )
        known = set(_ids(position))
        events = sorted({event.id: event for event in run.events if event.id not in known}.values(), key=_order)
        if not events:
            return Refusal("completed checkpoints have read every event that triggered the run", all_read=True)
        skipped = len(run.events) - len(events)
        return Reading([asdict(event) for event in events], (f"{skipped} events were read before",) if skipped else ())

    def advance(self, position: Json, part: Json, _shelf: object = None, /) -> Json | Refusal:
        """Add the events' ids to those read; refuse an event that was read.

        Raises:
            DocumentError: `part` or `position` was not written by AssetEvents.
        """
        events = part if isinstance(part, list) else [None]
        known, new = _ids(position), _ids([isinstance(each, dict) and each.get("id") for each in events])
        twice = sorted(set(known) & set(new))
        left = sorted(set(new) - set(known))
        if twice and not left:
            return Refusal("completed checkpoints have read every event that triggered the run", all_read=True)
        if twice:
            return Refusal(
                f"checkpoints that completed since this epoch was fixed have read {len(twice)} of its events, the "
                f"first is {twice[0]}; {len(left)} are left, the first is {left[0]}. No other run reads these: to read "
                "all of them again, go back by `cairn rewind` to a checkpoint before; otherwise mark this run as done"
            )
        return [*known, *new][-max(MAX_EVENT_IDS, len(new)) :]


def _order(event: Any) -> tuple[str, str]:
    return event.at, event.id


def _ids(position: Json) -> list[str]:
    if position is None:
        return []
    if not isinstance(position, list) or not all(isinstance(each, str) for each in position):
        raise DocumentError("this is not a position of AssetEvents: give it a new name", found=str(position)[:80])
    return [str(each) for each in position]


@refuses_unknown
@dataclass(frozen=True, slots=True)
class Offsets:
    """Asks an author's function for the epoch's input.

    Args:
        ask: takes the position (None at first) and the run's facts, and returns the input and the position after it,
            both JSON of at most `MAX_VALUE_BYTES`.
        name: the source's name.

    Raises:
        InvalidConfigError: `ask` cannot be called.
        InvalidKeyError: the name is outside the grammar (semantics W1).
    """

    ask: Callable[[Json, RunFacts], tuple[Json, Json]]
    name: str = "offsets"
    positioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_name("source", self.name)
        if not callable(self.ask):
            raise InvalidConfigError("Offsets needs a function of (position, run)", ask=shorten(self.ask))

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """Ask the function.

        Raises:
            InvalidStateError: the answer is not a pair of JSON values, or too large.
        """
        what = f"the function {getattr(self.ask, '__qualname__', shorten(self.ask))} of the source {self.name!r}"
        answer = self.ask(deepcopy(position), run)  # the function may change it in place
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise InvalidStateError(f"{what} must return (what to read, new position)", found=shorten(answer))
        found = {}
        for name, kind, value in zip(("read", "to"), ("what to read", "the new position"), answer, strict=True):
            found[name] = plain_json(f"{kind}, which {what} gave,", value)
            size = codec.size_of(found[name])
            if size > MAX_VALUE_BYTES:
                raise InvalidStateError(f"{what} gave too much as {kind}", size_bytes=size, limit_bytes=MAX_VALUE_BYTES)
        return Reading({"from": position, **found})

    def advance(self, position: Json, part: Json, _shelf: object = None, /) -> Json | Refusal:
        """Move to the end of `part`; refuse a part that does not start at the position, as read.

        Raises:
            DocumentError: `part` was not written by Offsets.
        """
        if not isinstance(part, dict) or "to" not in part:
            raise DocumentError("this is not a part of Offsets: give the source a new name", found=str(part)[:80])
        if part.get("from") != position:
            # Where a run has read on from `from`, the next one goes on at the position: all of the part is read by now,
            # or then. A source that begins anew has no position.
            return Refusal(
                f"another run has read on from {shorten(part.get('from'))}, where this one was to begin, and the "
                f"position is {shorten(position)} now: what this run was to read, up to {shorten(part['to'])}, was "
                "read or is read by the next run",
                all_read=position is not None,
            )
        return part["to"]
