"""What an application asks and sets of event time: watermarks, late rows, timers (semantics K6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..checkpoint.errors import InvalidStateError
from ..storage import iso8601
from .epoch_facts import EpochFacts
from .event_time import moments
from .event_time.event_time import EventTime
from .event_time.timers import Timers
from .output.columns import names_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SOURCE = "main"
"""The name of a stage's only source."""


class EpochEventTime(EpochFacts):
    """The part of an epoch that is about event time."""

    _event_time: EventTime

    def _check_open(self, method: str) -> None:
        raise NotImplementedError

    @property
    def time(self) -> datetime:
        """The processing time of the epoch: the end of its slice, the same for each attempt.

        Raises:
            InvalidStateError: the run has no data interval.
        """
        return self._event_time.time()

    def watermark(
        self,
        df: DataFrame,
        column: str | Column,
        *,
        delay: timedelta = timedelta(0),
        source: str = SOURCE,
        idle_after: int | None = None,
    ) -> None:
        """Take the stage's watermark forward by rows that it has read from a source. Runs the DataFrame now.

        The watermark of the source becomes the newest time less the delay, unless it is further already. The stage's
        own is the least of all its sources and of the upstreams that it has read (semantics K6).

        Args:
            df: what was read from the source in this epoch, all of it.
            column: the rows' times: a timestamp; one without a zone is taken to be UTC. Nulls are passed over.
            delay: how much older than the newest row a row may be without being late.
            source: its name, where the stage reads more than one. A source that was named once holds the stage's
                watermark back in each epoch that does not give it.
            idle_after: after so many epochs in a row without a row it no longer holds the stage's watermark back.

        Raises:
            InvalidStateError: the column is not there or holds no timestamps, the delay is negative, the source was
                given before in this epoch, or the watermark was asked for before.
            InvalidNameError: the source's name does not match the grammar (semantics W1).
        """
        self._check_open("watermark")
        length = moments.length_of("the delay of a watermark", delay, may_be_nothing=True)
        self._event_time.source(df, column, length, source, idle_after)

    def advance_watermark(self, to: datetime | str, *, source: str = SOURCE) -> None:
        """Take the watermark of a source forward to a moment that the application knows, such as `epoch.slice.end`.

        Args:
            to: no row with a time before it is expected any more; as text ISO 8601, without a zone UTC.
            source: the name of the source, where the stage reads more than one.

        Raises:
            InvalidStateError: it would go back or is no moment, the source was given before in this epoch, or the
                watermark was asked for before.
            InvalidNameError: the source's name does not match the grammar (semantics W1).
        """
        self._check_open("advance_watermark")
        try:
            moment = iso8601.moment_of(to) if isinstance(to, str) else to
        except ValueError:
            moment = None
        if not isinstance(moment, datetime):
            raise InvalidStateError(
                f"a watermark is to be a datetime, or ISO 8601 text, and is {to!r}. A run without a data interval has "
                "no epoch.slice.end",
                stage=self.stage,
            )
        self._event_time.advance(moment, source)

    def drop_watermark(self, source: str) -> None:
        """Let a source that the stage no longer reads hold its watermark back no more.

        Args:
            source: its name.

        Raises:
            InvalidStateError: there is no such source, it was given in this epoch, or the watermark was asked for.
        """
        self._check_open("drop_watermark")
        self._event_time.forget(source)

    @property
    def current_watermark(self) -> datetime | None:
        """How far event time has come with this epoch; None: not begun. `datetime.max`, in UTC, in a drain.

        Once it was asked for it stays for this epoch: read all upstreams and give all sources before.

        Raises:
            InvalidStateError: outside the `with` block.
        """
        self._check_open("current_watermark")
        micros = self._event_time.current()
        return None if micros is None else moments.moment_of(micros)

    def late(self, df: DataFrame, column: str | Column, *, inclusive: bool = False) -> DataFrame:
        """Give the late rows: those with a time behind the watermark with which the epoch began, and those without one.

        Args:
            df: the rows.
            column: their times; a timestamp.
            inclusive: whether a time that equals the watermark is late too. So for the end of a window: the window
                holds only times before it, so it is over then.

        Raises:
            InvalidStateError: the column is not there, or holds no timestamps.
        """
        self._check_open("late")
        return self._divided(df, column, inclusive=inclusive, late=True)

    def on_time(self, df: DataFrame, column: str | Column, *, inclusive: bool = False) -> DataFrame:
        """Give the rows that `late`, with the same arguments, does not give."""
        self._check_open("on_time")
        return self._divided(df, column, inclusive=inclusive, late=False)

    def timers(self, name: str, key: str | Sequence[str], *, time: str = "time") -> Timers:
        """Give the timers of a name: a keyed state that comes back when the watermark has reached its time.

        Args:
            name: their name.
            key: the columns of their key.
            time: the column of their time; a timestamp.

        Raises:
            InvalidStateError: the timers were set with another key or time before, or there is no key.
            InvalidNameError: the name does not match the grammar (semantics W1).
        """
        self._check_open("timers")
        return self._event_time.timers(name, names_of(key), time)

    def _divided(self, df: DataFrame, column: str | Column, *, inclusive: bool, late: bool) -> DataFrame:
        from pyspark.sql import functions as F

        is_late = self._event_time.is_late(df, column, inclusive=inclusive)
        return df.where(F.coalesce(is_late, F.lit(True)) == F.lit(late))
