"""`CheckpointTimetable`: the schedule of a job's periodic checkpoints (semantics S2, S3).

The scheduler, the API server and the dag processor load this module, so it imports nothing that a DAG names and asks no
store.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self, overload

import pendulum
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable

# Computes the window of the next scheduled run: pure arithmetic, in UTC, on nothing but the data that Airflow keeps.
#
# A run's window begins where the window before it ended, so there is neither a gap nor an overlap, even if the clock,
# the options or the processes have changed. Nothing else is remembered: two schedulers, a restart, or a second look
# compute the same window (semantics S2).


ANCHOR = datetime(1970, 1, 1, tzinfo=UTC)
"""Start of the schedule of a DAG that has no start date and does not catch up."""

GRACE = timedelta(minutes=5)
"""Time for which a first run that is not created yet is kept, or half an interval if that is shorter."""

INSTANT = timedelta(microseconds=1)
"""The shortest time that Airflow's database distinguishes from zero."""


@dataclass(frozen=True, slots=True)
class Window:
    """A run's window: from `start` inclusive to `end` exclusive; the run may start from `end` on."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the windows' starts, and the treatment of missed windows."""

    earliest: datetime | None = None
    latest: datetime | None = None
    """Inclusive; a window that starts by then may end later."""
    catchup: bool = True
    """If False, missed windows become one window; before the first run they are left out."""


def first_window(delay: timedelta, interval: timedelta, bounds: Bounds, now: datetime) -> Window | None:
    """Return the first run's window: as long as the delay, from the start date on (semantics S2).

    With `catchup=False` and a start date in the past it is the first whole interval of the same schedule that ends from
    now on.
    """
    if bounds.catchup and bounds.earliest is None:
        return None
    start = bounds.earliest or ANCHOR
    window = Window(start, start + delay)
    if not bounds.catchup:
        # A look just after the window's end must still find this run: Airflow asks again whenever it parses the file,
        # which may be before it has created the run.
        missed = (now - min(GRACE, interval / 2) - window.end) // interval + 1
        if missed > 0:
            end = window.end + missed * interval
            window = Window(end - interval, end)
    return _within(window, bounds)


def window_after(last: Window, delay: timedelta, interval: timedelta, bounds: Bounds, now: datetime) -> Window | None:
    """Return the window after another, from its end; the delay counts if the start date was moved past it."""
    start, length = last.end, interval
    if start <= last.start:
        # A run without length: manual, or of another timetable. Airflow names a run by its start, so the start must
        # move.
        start = last.start + INSTANT
    if bounds.earliest is not None and bounds.earliest > start:
        start, length = bounds.earliest, delay
    window = Window(start, start + length)
    if not bounds.catchup:
        missed = (now - window.end) // interval
        if bounds.latest is not None:
            # No further than the runs would have come one by one.
            missed = min(missed, (bounds.latest - window.end) // interval + 1)
        window = Window(start, window.end + max(0, missed) * interval)
    return _within(window, bounds)


def _within(window: Window, bounds: Bounds) -> Window | None:
    return None if bounds.latest is not None and window.start > bounds.latest else window


SECOND = timedelta(seconds=1)
LONGEST = timedelta(days=3660)
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))
_ONE = frozenset(timedelta(seconds=seconds) for seconds in (86_400, 3_600, 60, 1))


class CheckpointTimetable(Timetable):
    """A run every `interval`, the first one after a delay that differs from job to job (semantics S2).

    The delay lies between `min_pause` and `interval`. It is derived from the DAG's id, so it is the same in every
    process and after every restart, but jobs that start together do not trigger together. Each run reads from where the
    scheduled run before it ended: data intervals have neither gaps nor overlaps. After the schedule was down,
    `catchup=True` makes one run for each missed interval, and `catchup=False` one run for all of them.

    A manual run gets a data interval without length, because any other would repeat the input of scheduled runs. With
    the source `DataInterval` it reads from where the last checkpoint ended up to its own logical date.

    Args:
        interval: time between two runs; one second to 3,660 days.
        min_pause: `CheckpointConfig.min_pause` of the DAG's groups, which read it from here: the minimum time between a
            completion and the next periodic checkpoint (semantics T3). Zero to `interval`. A config that sets it too
            must set the same.
        jitter: True: the delay is derived from the DAG's id, which a `CheckpointedTaskGroup` or a
            `TriggerCheckpointOperator` in the DAG fills in. A text: derived from that text. False: the delay is the
            interval.

    Raises:
        InvalidConfigError: an option is out of its bounds (semantics S3).
    """

    def __init__(self, interval: timedelta, min_pause: timedelta = timedelta(0), jitter: bool | str = True) -> None:
        if not isinstance(interval, timedelta) or not SECOND <= interval <= LONGEST:
            raise _invalid("interval must be a timedelta of one second to 3,660 days", interval=interval)
        if not isinstance(min_pause, timedelta) or not timedelta(0) <= min_pause <= interval:
            raise _invalid(
                "min_pause must be a timedelta of zero to the interval", min_pause=min_pause, interval=interval
            )
        if not isinstance(jitter, bool | str) or jitter == "":
            raise _invalid("jitter must be True, False, or a text to derive the delay from", jitter=jitter)
        self.interval = interval
        self.min_pause = min_pause
        self.jitter = jitter
        self.description = self._describe()

    def named(self, dag_id: str) -> Self:
        """Return this timetable for a DAG: with `jitter=True` the delay is derived from the DAG's id from now on.

        Args:
            dag_id: the DAG's id.
        """
        return type(self)(self.interval, self.min_pause, dag_id) if self.jitter is True else self

    @property
    def delay(self) -> timedelta:
        """Time between the start of the schedule and the first run: whole seconds if the bounds allow it."""
        if self.jitter is False:
            return self.interval
        least = max(1, -(-self.min_pause // SECOND))
        choices = self.interval // SECOND - least + 1
        if choices < 1:
            return self.interval
        drawn = int.from_bytes(hashlib.sha256(str(self.jitter).encode()).digest())
        return (least + drawn % choices) * SECOND

    def validate(self) -> None:
        """Refuse, when the DAG is parsed, a timetable without a value from which to derive the delay (semantics S3).

        Raises:
            InvalidConfigError: `jitter` is True, and nothing in the DAG has filled in the DAG's id.
        """
        if self.jitter is True:
            raise _invalid(
                "jitter=True needs a CheckpointedTaskGroup or a TriggerCheckpointOperator in the DAG, which fills in "
                "the DAG's id. Give jitter='any text' to derive the delay from it, or jitter=False for none",
                jitter=self.jitter,
            )

    def serialize(self) -> dict[str, Any]:
        """Return the arguments as JSON."""
        return {
            "interval": self.interval.total_seconds(),
            "min_pause": self.min_pause.total_seconds(),
            "jitter": self.jitter,
        }

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Self:
        """Build a timetable from the result of `serialize`."""
        return cls(timedelta(seconds=data["interval"]), timedelta(seconds=data["min_pause"]), data["jitter"])

    @property
    def summary(self) -> str:
        """The schedule as Airflow's lists show it."""
        words = said(self.interval)
        return f"every {words.removeprefix('1 ') if self.interval in _ONE else words}"

    def infer_manual_data_interval(self, *, run_after: pendulum.DateTime) -> DataInterval:
        """Return an interval without length for a manual run."""
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Return when the next run may start and its window; see `first_window` and `window_after`."""
        bounds = Bounds(_plain(restriction.earliest), _plain(restriction.latest), restriction.catchup)
        now = datetime.now(UTC)
        if last_automated_data_interval is None:
            found = first_window(self.delay, self.interval, bounds, now)
        else:
            last = Window(*(_plain(moment) for moment in last_automated_data_interval))
            found = window_after(last, self.delay, self.interval, bounds, now)
        return (
            None if found is None else DagRunInfo.interval(pendulum.instance(found.start), pendulum.instance(found.end))
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.serialize() == self.serialize()

    def __hash__(self) -> int:
        return hash((self.interval, self.min_pause, self.jitter))

    def __repr__(self) -> str:
        return f"CheckpointTimetable({self.interval!r}, min_pause={self.min_pause!r}, jitter={self.jitter!r})"

    def _describe(self) -> str:
        text = f"A checkpoint {self.summary}, the first one {said(self.delay)} after the start"
        return f"{text}, and none within {said(self.min_pause)} after another" if self.min_pause else text


def said(span: timedelta) -> str:
    """Return a span of time in words: 1 hour 30 minutes."""
    left = span.total_seconds()
    words = []
    for unit, seconds in _UNITS:
        count, left = divmod(left, seconds)
        if count:
            words.append(f"{count:g} {unit}{'' if count == 1 else 's'}")
    if left or not words:
        words.append(f"{left:g} second{'' if left == 1 else 's'}")
    return " ".join(words)


@overload
def _plain(moment: datetime) -> datetime: ...


@overload
def _plain(moment: datetime | None) -> datetime | None: ...


def _plain(moment: datetime | None) -> datetime | None:
    # Python adds to local clock time, which daylight saving shifts; in UTC a day always has 24 hours.
    moment = moment and moment.astimezone(UTC)
    return moment and datetime.combine(moment.date(), moment.time(), UTC)


def _invalid(text: str, **facts: object) -> Exception:
    from ..checkpoint.errors import InvalidConfigError

    return InvalidConfigError(text, **{name: repr(value) for name, value in facts.items()})
