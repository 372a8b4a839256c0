"""The epoch's event time for applications: watermarks, late rows, timers (semantics K6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ..checkpoint.documents import layout
from ..checkpoint.documents.attempt import Handover, Slice
from ..checkpoint.errors import InvalidStateError
from ..checkpoint.store.job_files import JobFiles
from ..storage import older_pythons
from .event_time import moments
from .event_time.event_time import EventTime, Timers
from .input import slices
from .output.updates import names_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


# The facts of an epoch that an application may ask for: identity and input. Nothing here writes.


class EpochFacts:
    """The facts of one execution of a stage.

    Args:
        handover: what the operator handed over.
        files: the job's files; they hold the list of input files if it is long.
        source_files: the files that the epoch's sources have fixed.
    """

    def __init__(self, handover: Handover, files: JobFiles, source_files: slices.SourceFiles) -> None:
        self._handover = handover
        self._files = files
        self._source_files = source_files

    @property
    def job(self) -> str:
        """The job's name."""
        return self._handover.job

    @property
    def epoch(self) -> str:
        """The epoch's name: the DAG run's id, encoded (semantics W1)."""
        return self._handover.epoch

    @property
    def run_id(self) -> str:
        """The id of the DAG run that the epoch belongs to."""
        return layout.run_id_of(self._handover.epoch)

    @property
    def attempt(self) -> int:
        """The number of this attempt at the epoch; the first is 1."""
        return self._handover.attempt

    @property
    def checkpoint(self) -> int:
        """The checkpoint that this attempt is to complete."""
        return self._handover.checkpoint

    @property
    def draining(self) -> bool:
        """True if this is the job's last epoch before it ends (semantics P2).

        Event time goes on to its end: emit everything that waits for it, such as open windows.
        """
        return self._handover.draining

    @property
    def stage(self) -> str:
        """The stage's uid."""
        return self._handover.stage

    @property
    def restored_from(self) -> int | None:
        """The completed checkpoint that was restored; None if the job starts empty (semantics R2)."""
        return self._handover.restore.checkpoint if self._handover.restore else None

    @property
    def slices(self) -> list[Slice]:
        """The input to read, oldest first, the epoch's own last (semantics T8).

        Several after damage (R1), or if this stage was left out of older checkpoints (B3, F6). The files of a part that
        the application takes out (`sources[name]`) are compared as those of `files()` are (semantics T11).
        """
        return [self._source_files.watched(each) for each in slices.slices_of(self._handover)]

    @property
    def slice(self) -> Slice:
        """The input to read, as one window (semantics T8)."""
        return self._source_files.watched(slices.hull_of(self._handover))

    def files(self, source: str = "files") -> list[str]:
        """Return the files to read, in the order of `slices` (semantics T8), for `spark.read`.

        A backslash precedes each character that Spark would read as part of a pattern, such as `[`. For other readers,
        `slices[…].sources` has the names without backslashes.

        Args:
            source: the name of the job's `FileSource`.
        """
        return self._source_files.urls(source)


SOURCE = "main"
"""The name of a stage's only source."""


class EpochEventTime(EpochFacts):
    """The event time of an epoch."""

    _event_time: EventTime

    def _check_open(self, method: str, used: str = "was called") -> None:
        raise NotImplementedError

    @property
    def time(self) -> datetime:
        """The processing time of the epoch: the end of its slice, the same for each attempt."""
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
        """Advance the stage's watermark by the rows read from a source. Runs the DataFrame now.

        The source's watermark becomes the newest time minus the delay; it never goes back. The stage's own watermark is
        the lowest of all its sources' and of the upstreams that it has read (semantics K6).

        Args:
            df: all rows read from the source in this epoch.
            column: the rows' times, a timestamp; without a zone it is UTC. Nulls are ignored.
            delay: how much older than the newest row a row may be without being late.
            source: the source's name, if the stage reads several. Once given, a source holds the stage's watermark back
                in each epoch that does not give it.
            idle_after: after this many epochs in a row without a row, the source no longer holds the watermark back.

        Raises:
            InvalidKeyError: the source's name does not match the grammar (semantics W1).
        """
        self._check_open("watermark")
        length = moments.length_of("the delay of a watermark", delay, may_be_nothing=True)
        self._event_time.source(df, column, length, source, idle_after)

    def advance_watermark(self, to: datetime | str, *, source: str = SOURCE) -> None:
        """Advance a source's watermark to a moment that the application knows, such as `epoch.slice.end`.

        Args:
            to: no row before this time is expected any more; text is ISO 8601, UTC if it has no zone.
            source: the source's name, if the stage reads several.

        Raises:
            InvalidStateError: the watermark would go back; `to` is not a moment, or is later than the year 9999; or
                the source was given, or the watermark read, before in this epoch.
            InvalidKeyError: the source's name does not match the grammar (semantics W1).
        """
        self._check_open("advance_watermark")
        try:
            moment = older_pythons.moment_of(to) if isinstance(to, str) else to
        except ValueError:
            moment = None
        if not isinstance(moment, datetime):
            raise InvalidStateError(
                f"a watermark must be a datetime, or ISO 8601 text, and is {to!r}. A run without a data interval has "
                "no epoch.slice.end",
                stage=self.stage,
            )
        self._event_time.advance(moment, source)

    def drop_watermark(self, source: str) -> None:
        """Forget a source that the stage no longer reads, so that it stops holding the watermark back."""
        self._check_open("drop_watermark")
        self._event_time.forget(source)

    @property
    def current_watermark(self) -> datetime | None:
        """The stage's watermark in this epoch; None: event time has not begun. `datetime.max`, in UTC, in a drain.

        Also None before the year 1, which a datetime cannot hold. Late rows and due timers are judged by it all the
        same.

        The first read fixes the watermark for this epoch: read all upstreams and give all sources before.
        """
        self._check_open("current_watermark")
        micros = self._event_time.current()
        return None if micros is None else moments.moment_of(micros)

    def late(self, df: DataFrame, column: str | Column, *, inclusive: bool = False) -> DataFrame:
        """Select the late rows: those without a time, or with one behind the watermark of the epoch's start.

        Args:
            df: the rows.
            column: their times; a timestamp.
            inclusive: count a time equal to the watermark as late. Use this for the end of a window: a window holds
                only times before its end, so it is over then.
        """
        self._check_open("late")
        return self._divided(df, column, inclusive=inclusive, late=True)

    def on_time(self, df: DataFrame, column: str | Column, *, inclusive: bool = False) -> DataFrame:
        """Select the rows that `late` leaves out, with the same arguments."""
        self._check_open("on_time")
        return self._divided(df, column, inclusive=inclusive, late=False)

    def timers(self, name: str, key: str | Sequence[str], *, time: str = "time") -> Timers:
        """Return timers by their name: a keyed state whose rows come back once the watermark has reached their time.

        Args:
            name: the timers' name.
            key: the key columns.
            time: the time column; a timestamp.
        """
        self._check_open("timers")
        return self._event_time.timers(name, names_of(key), time)

    def _divided(self, df: DataFrame, column: str | Column, *, inclusive: bool, late: bool) -> DataFrame:
        from pyspark.sql import functions as F

        is_late = self._event_time.is_late(df, column, inclusive=inclusive)
        return df.where(F.coalesce(is_late, F.lit(True)) == F.lit(late))
