"""Windows of time that a job's state has read: merged, half-open, bounded in number (semantics T8). Pure functions.

The windows belong to the state, so each checkpoint has its own set, and a rewind brings the older set back. If there
are more gaps than the bound allows, the set forgets the oldest windows and says from when on it is exact: about the
time before that it says nothing.
"""

from __future__ import annotations

from dataclasses import field
from datetime import datetime, time, timezone
from itertools import pairwise

from ...storage import older_pythons
from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass
from .strict_json import SPARSE

MAX_WINDOWS = 100
"""Windows that a set remembers; each further one replaces the oldest."""

_FIRST = datetime.min.replace(tzinfo=timezone.utc)


def _moment(text: str | None) -> datetime:
    if text is None:
        return _FIRST
    moment = older_pythons.moment_of(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def check_moment(text: str) -> None:
    """Refuse a text in a document that is not a moment of time."""
    _moment(text)


@dataclass(frozen=True, slots=True, order=True)
class ReadWindow:
    """A half-open window of time."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        """Write the window for users."""
        return f"{'the beginning' if self.start == _FIRST else self.start.isoformat()} to {self.end.isoformat()}"

    @property
    def short(self) -> str:
        """Short form in UTC: days if both bounds are midnights, and the date only once for a single day."""
        whole_days = all(each.time() == time() for each in (self.start, self.end))
        start = "the beginning" if self.start == _FIRST else _short(self.start, whole_days)
        end = _short(self.end, whole_days)
        same_day = not whole_days and self.start.date() == self.end.date()
        return f"{start} to {end.partition(' ')[2] if same_day else end}"


def _short(moment: datetime, whole_days: bool) -> str:
    if whole_days:
        return f"{moment:%Y-%m-%d}"
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment.second or moment.microsecond else f"{moment:%Y-%m-%d %H:%M}"


def window_of(start: str | None, end: str | None) -> ReadWindow | None:
    """Give a window that a slice names; None where it names none, or one without length.

    Args:
        start: its first moment, ISO 8601; None: the beginning of time.
        end: the first moment after it; None: no window.
    """
    if end is None:
        return None
    try:
        found = ReadWindow(_moment(start), _moment(end))
    except ValueError:
        return None  # an author's own words, of which only the author knows the order
    return found if found.start < found.end else None


@dataclass(frozen=True, slots=True)
class WindowText:
    """A window as a document has it."""

    end: str
    """ISO 8601, UTC; the first moment after it."""
    start: str | None = None
    """ISO 8601, UTC; None: the beginning of time."""

    def __post_init__(self) -> None:
        if window_of(self.start, self.end) is None:
            raise ValueError(f"expected a window of time, found {self.start} to {self.end}")

    @property
    def window(self) -> ReadWindow:
        """The window."""
        return ReadWindow(_moment(self.start), _moment(self.end))


class Overlap(StrEnum):
    """Part of a window that a set holds."""

    NONE = "none"
    SOME = "some"
    ALL = "all"
    UNKNOWN = "unknown"
    """The window begins before the set is exact."""


@dataclass(frozen=True, slots=True)
class ReadWindows:
    """Windows of time that a checkpoint's state has read."""

    windows: tuple[WindowText, ...] = field(default=(), metadata=SPARSE)
    """In order, apart from each other; at most `MAX_WINDOWS`."""
    exact_from: str | None = None
    """ISO 8601, UTC: whether something before this was read is not known. None: all is known."""

    def __post_init__(self) -> None:
        if self.exact_from is not None:
            check_moment(self.exact_from)

    def __bool__(self) -> bool:
        """Tell whether the set holds any knowledge."""
        return bool(self.windows) or self.exact_from is not None

    @property
    def newest(self) -> datetime | None:
        """The first moment after everything read; None: nothing."""
        return self.windows[-1].window.end if self.windows else None

    @property
    def gaps(self) -> tuple[ReadWindow, ...]:
        """The windows between those read, oldest first, as far as the set is exact."""
        exact_from, windows = _moment(self.exact_from), [each.window for each in self.windows]
        return tuple(ReadWindow(one.end, other.start) for one, other in pairwise(windows) if one.end >= exact_from)

    def overlap(self, window: ReadWindow) -> Overlap:
        """Tell which part of a window was read."""
        shared = [each.window for each in self.windows if _meet(each.window, window)]
        if any(each.start <= window.start and window.end <= each.end for each in shared):
            return Overlap.ALL
        if shared:
            return Overlap.SOME
        if self.exact_from is not None and window.start < _moment(self.exact_from):
            return Overlap.UNKNOWN
        return Overlap.NONE

    def shared(self, window: ReadWindow) -> tuple[ReadWindow, ...]:
        """Give the windows read that overlap a window."""
        return tuple(each.window for each in self.windows if _meet(each.window, window))

    def left(self, window: ReadWindow) -> tuple[ReadWindow, ...]:
        """Give the parts of a window that were not read, oldest first, as far as the set is exact."""
        found, start = [], max(window.start, _moment(self.exact_from))
        for read in self.shared(window):
            if start < read.start:
                found.append(ReadWindow(start, read.start))
            start = read.end
        return (*found, ReadWindow(start, window.end)) if start < window.end else tuple(found)

    def having(self, window: ReadWindow) -> ReadWindows:
        """Give the set with one more window."""
        merged: list[ReadWindow] = []
        for each in sorted([*(each.window for each in self.windows), window]):
            if merged and each.start <= merged[-1].end:
                merged[-1] = ReadWindow(merged[-1].start, max(merged[-1].end, each.end))
            else:
                merged.append(each)
        dropped, kept = merged[:-MAX_WINDOWS], merged[-MAX_WINDOWS:]
        exact_from = self.exact_from
        if dropped:
            # Never earlier than it was: what was unknown stays so.
            exact_from = max(_moment(exact_from), dropped[-1].end).isoformat()
        return ReadWindows(tuple(text_of(each) for each in kept), exact_from)


NOTHING_READ = ReadWindows()


def unknown_before(window: ReadWindow) -> ReadWindows:
    """Give the set of a state that has read a window, and of which it is not known what it had read before."""
    return ReadWindows((text_of(window),), window.end.isoformat())


def _meet(one: ReadWindow, other: ReadWindow) -> bool:
    return max(one.start, other.start) < min(one.end, other.end)


def text_of(window: ReadWindow) -> WindowText:
    """Give a window as a document has it."""
    return WindowText(window.end.isoformat(), None if window.start == _FIRST else window.start.isoformat())
