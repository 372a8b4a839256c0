"""`CheckpointTimetable`: the schedule of a job's periodic checkpoints (semantics S2, S3).

The scheduler, the API server and the dag processor load this, so it imports nothing that a DAG names and asks no store.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any, Self, overload

import pendulum
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable

from . import windows

SECOND = timedelta(seconds=1)
LONGEST = timedelta(days=3660)
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60))
_ONE = frozenset(timedelta(seconds=seconds) for seconds in (86_400, 3_600, 60, 1))


class CheckpointTimetable(Timetable):
    """A run every `interval`, the first one after a delay that differs from job to job (semantics S2).

    The delay lies between `min_pause` and `interval`. It is derived from the DAG's id, so it is the same in every
    process and after every restart, while jobs that start together do not trigger together. Each run reads from where
    the scheduled run before it ended: data intervals have neither gaps nor overlaps. With `catchup=True` a schedule
    that was down makes up for each interval by a run of its own, with `catchup=False` by one run for all of them.

    A manual run gets a data interval without length, because any other would read again what scheduled runs read. With
    the source `DataInterval` it reads from where the last checkpoint ended up to its own logical date.

    Args:
        interval: between two runs; one second to 3,660 days.
        min_pause: `CheckpointConfig.min_pause` of the DAG's groups, which take it over from here: how long after a
            completion the next periodic checkpoint begins at the earliest (semantics T3). Zero to `interval`.
        jitter: True: the delay comes from the DAG's id, which a `CheckpointedTaskGroup` or a
            `TriggerCheckpointOperator` in the DAG fills in. A text: it comes from that. False: it is the interval.

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
        """Give this timetable for a DAG: with `jitter=True` the delay comes from the DAG's id from now on.

        Args:
            dag_id: of the DAG.
        """
        return type(self)(self.interval, self.min_pause, dag_id) if self.jitter is True else self

    @property
    def delay(self) -> timedelta:
        """Between the start of the schedule and the first run: whole seconds wherever the bounds allow it."""
        if self.jitter is False:
            return self.interval
        least = max(1, -(-self.min_pause // SECOND))
        choices = self.interval // SECOND - least + 1
        if choices < 1:
            return self.interval
        drawn = int.from_bytes(hashlib.sha256(str(self.jitter).encode()).digest())
        return (least + drawn % choices) * SECOND

    def validate(self) -> None:
        """Refuse a timetable that does not know what to derive the delay from, when the DAG is parsed (semantics S3).

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
        """Give the arguments as JSON."""
        return {
            "interval": self.interval.total_seconds(),
            "min_pause": self.min_pause.total_seconds(),
            "jitter": self.jitter,
        }

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Self:
        """Build one from what `serialize` gave."""
        return cls(timedelta(seconds=data["interval"]), timedelta(seconds=data["min_pause"]), data["jitter"])

    @property
    def summary(self) -> str:
        """What Airflow's lists show as the schedule."""
        words = said(self.interval)
        return f"every {words.removeprefix('1 ') if self.interval in _ONE else words}"

    def infer_manual_data_interval(self, *, run_after: pendulum.DateTime) -> DataInterval:
        """Give a manual run an interval without length."""
        return DataInterval.exact(run_after)

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """Say when the next run may start and what it reads; see `windows`."""
        bounds = windows.Bounds(_plain(restriction.earliest), _plain(restriction.latest), restriction.catchup)
        now = datetime.now(UTC)
        if last_automated_data_interval is None:
            found = windows.first(self.delay, self.interval, bounds, now)
        else:
            last = windows.Window(*(_plain(moment) for moment in last_automated_data_interval))
            found = windows.following(last, self.delay, self.interval, bounds, now)
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
    """Say a span of time in words: 1 hour 30 minutes."""
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
    # Python adds to the clock on the wall, which daylight saving turns; in UTC a day is always 24 hours.
    moment = moment and moment.astimezone(UTC)
    return moment and datetime.combine(moment.date(), moment.time(), UTC)


def _invalid(text: str, **facts: object) -> Exception:
    from ..checkpoint.errors import InvalidConfigError

    return InvalidConfigError(text, **{name: repr(value) for name, value in facts.items()})
