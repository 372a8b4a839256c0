"""Which stretch of time the next scheduled run reads: pure arithmetic, in UTC, on nothing but what Airflow remembers.

A run's window begins where the window before it ended, so there is neither a gap nor an overlap, whatever the clock,
the options or the processes have done in between. Nothing else is remembered: two schedulers, a restart, or a second
look come to the same window (semantics S2).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

ANCHOR = datetime(1970, 1, 1, tzinfo=UTC)
"""Where the schedule of a DAG begins that has no start date and leaves out what it missed."""

GRACE = timedelta(minutes=5)
"""A first run that is not created yet is held out for this long, or half an interval where that is shorter."""

INSTANT = timedelta(microseconds=1)
"""The shortest time that Airflow's database tells from none."""


@dataclass(frozen=True, slots=True)
class Window:
    """What a run reads, from `start` up to but without `end`; it may run from `end` on."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between what moments windows may start, and what becomes of those that were missed."""

    earliest: datetime | None = None
    latest: datetime | None = None
    """Inclusive; a window that starts by then may end later."""
    catchup: bool = True
    """With False what was missed is one window; before the first run it is left out."""


def first(delay: timedelta, interval: timedelta, bounds: Bounds, now: datetime) -> Window | None:
    """Give the first run's window: as long as the delay, from the start date on (semantics S2).

    With `catchup=False` and a start date that has passed it is the first whole interval of the same schedule that ends
    from now on.

    Args:
        delay: between the start and the first run.
        interval: between two runs.
        bounds: of the DAG.
        now: the time.
    """
    if bounds.catchup and bounds.earliest is None:
        return None
    start = bounds.earliest or ANCHOR
    window = Window(start, start + delay)
    if not bounds.catchup:
        # A look just after the window's end must still find this run: Airflow looks again whenever it parses the file,
        # which may be before it has created the run.
        missed = (now - min(GRACE, interval / 2) - window.end) // interval + 1
        if missed > 0:
            end = window.end + missed * interval
            window = Window(end - interval, end)
    return _within(window, bounds)


def following(last: Window, delay: timedelta, interval: timedelta, bounds: Bounds, now: datetime) -> Window | None:
    """Give the window after another: it begins where that one ended.

    Args:
        last: of the newest scheduled or backfilled run.
        delay: between a start date and the first run after it; counts where the start date was moved past `last`.
        interval: between two runs.
        bounds: of the DAG.
        now: the time.
    """
    start, length = last.end, interval
    if start <= last.start:
        # A run without length: manual, or of another timetable. Airflow names a run by its start: it must move on.
        start = last.start + INSTANT
    if bounds.earliest is not None and bounds.earliest > start:
        start, length = bounds.earliest, delay
    window = Window(start, start + length)
    if not bounds.catchup:
        missed = (now - window.end) // interval
        if bounds.latest is not None:
            # No further than the runs would have gone one by one.
            missed = min(missed, (bounds.latest - window.end) // interval + 1)
        window = Window(start, window.end + max(0, missed) * interval)
    return _within(window, bounds)


def _within(window: Window, bounds: Bounds) -> Window | None:
    return None if bounds.latest is not None and window.start > bounds.latest else window
