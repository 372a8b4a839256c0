"""Event time in one epoch: restored, read and changed by the application, and stored (semantics K6)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

from ...checkpoint.documents.attempt import Handover, moment_in_slice
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import InvalidKeyError
from ...storage.names import check_name
from ...storage.records import dataclass
from ..input.inputs import Inputs
from ..input.restored import VALUE, RestoredState
from ..kinds import small_state
from ..output.outputs import Outputs
from ..stored import deltas, key_groups
from ..stored.local_state import LocalState
from ..stored.outputs import StageContents, frame, same_type
from . import moments, ttl
from .watermark import INPUTS, STAGE, UNKNOWN, StageWatermark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = logging.getLogger("airflow_cairn")

RESERVED = "_cairn_"
"""Prefix of the states and values of Cairn itself."""


def check_free(kind: str, name: str) -> str:
    """Check a name that an application gives to a state or a value.

    Raises:
        InvalidKeyError: the name does not match the grammar (semantics W1), or is reserved for Cairn.
    """
    if check_name(kind, name).startswith(RESERVED):
        raise InvalidKeyError(
            f"names of states and values that begin with {RESERVED} are reserved for Cairn's own. Choose another",
            code="invalid_name",
            kind_of_name=kind,
            value=name,
        )
    return name


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the epoch that event time uses."""

    spark: SparkSession
    files: JobFiles
    handover: Handover
    carried: RestoredState
    inputs: Inputs
    outputs: Outputs
    local: LocalState | None


class EventTime:
    """The event time of one stage in one epoch; safe to use from several threads."""

    def __init__(self, parts: Parts) -> None:
        self._at = parts
        self._lock = RLock()
        self._timers: dict[str, Timers] = {}
        self._mark = StageWatermark(parts.handover.stage, ())
        self._restored_ttls: dict[str, ttl.StateTtl] = {}
        self._ttls: dict[str, ttl.StateTtl] = {}
        self._written: set[str] = set()

    def load(self) -> None:
        at = self._at
        stored = {name: at.carried.value(at.files, name, None, at.local) for name in (STAGE, INPUTS, ttl.VALUE)}
        self._mark = StageWatermark(at.handover.stage, at.handover.upstream.keys(), stored[STAGE], stored[INPUTS])
        self._restored_ttls = ttl.parse(stored[ttl.VALUE])
        self._ttls = dict(self._restored_ttls)

    def source(self, df: DataFrame, column: str | Column, delay: int, source: str, idle_after: int | None) -> None:
        """Advance a source's watermark by the rows read from it; see `Epoch.watermark`.

        Raises:
            InvalidStateError: an argument is wrong, or the watermark was given or read before.
        """
        if idle_after is not None and (type(idle_after) is not int or idle_after < 1):
            raise InvalidStateError(
                f"idle_after must be a number of epochs, at least 1, and is {idle_after!r}", source=source
            )
        check_name("source", source)
        time, kind = moments.column_of("the watermark", df, column)
        with self._lock:
            self._mark.check_source(source)
        newest = moments.newest("the watermark", df, column, time, kind)
        at = None if newest is None else max(newest - delay, moments.BEGIN_OF_TIME)
        with self._lock:
            self._mark.source(source, at, idle_after)

    def advance(self, moment: datetime, source: str) -> None:
        """Advance a source's watermark to a moment; see `Epoch.advance_watermark`.

        Raises:
            InvalidStateError: the watermark would go back, or is later than the year 9999 in UTC.
        """
        at = moments.micros_of(moment)
        if at > moments.micros_of(moments.END_OF_TIME):
            raise moments.beyond("the watermark", moment.isoformat(), source=source)
        with self._lock:
            self._mark.check_forward(check_name("source", source), at)
            self._mark.source(source, at)

    def forget(self, source: str) -> None:
        """Stop a source from holding the watermark back; see `Epoch.drop_watermark`."""
        with self._lock:
            self._mark.forget(source)

    def note_read(self) -> None:
        """Take over the watermarks of the upstreams that have been read."""
        with self._lock:
            loaded, unknown = self._at.inputs.loaded, self._at.inputs.unknown
            self._mark.read({uid: UNKNOWN if uid in unknown else self._of(each) for uid, each in loaded.items()})

    def current(self) -> int | None:
        """Return the watermark that decides which timers are due; the end of time in a drain (semantics P2)."""
        asked = self._ask()
        return moments.micros_of(moments.END_OF_TIME) if self._at.handover.draining else asked

    def is_late(self, df: DataFrame, column: str | Column, *, inclusive: bool) -> Column:
        """Return the condition for a row to be late; null only where the row's time is null."""
        from pyspark.sql import functions as F

        time, kind = moments.column_of("what is late", df, column)
        if self._mark.at_start is None:
            return F.when(time.isNotNull(), F.lit(False))
        limit = moments.literal(self._mark.at_start, kind)
        return time <= limit if inclusive else time < limit

    def timers(self, name: str, key: tuple[str, ...], time: str) -> Timers:
        """Return timers by their name; see `Epoch.timers`.

        Raises:
            InvalidStateError: the timers were set with another key or time column before, or there is no key.
        """
        at = self._at
        stored_name = check_name("timers", PREFIX + check_name("timers", name))
        if not key or time in key or len(set(key)) < len(key):
            raise InvalidStateError(
                f"the timers {name!r} need at least one key column, each named once, and none may be the time",
                key=", ".join(key),
                time=time,
            )
        with self._lock:
            made = self._timers.get(name)
            if made is not None:
                check_same(name, made.key, [*made.key, made.time], key, time)
                return made
            stored = at.carried.restored(f"state.{stored_name}")
            restored = None
            if stored is not None:
                restored = frame(at.spark, at.files, stored, None, at.local)
                check_same(name, stored.output.key, restored.columns, key, time)
            self._timers[name] = Timers(name, key, time, restored, self.current)
            return self._timers[name]

    def to_write(self, name: str, df: DataFrame, lives: ttl.StateTtl | None) -> DataFrame:
        """Drop ended rows of a state to be written; by event time, as of the epoch's end."""
        if lives is None:
            return df
        return ttl.alive(f"the state {name!r}", df, lives, self._ask if lives.time == "event" else self._time)

    def to_read(self, name: str, df: DataFrame) -> DataFrame:
        """Drop ended rows of a state that was read; by event time, as of the epoch's start."""
        lives = self._restored_ttls.get(name)
        if lives is None:
            return df
        by_event = lives.time == "event"
        return ttl.alive(f"the state {name!r}", df, lives, (lambda: self._mark.at_start) if by_event else self._time)

    def to_give_back(self, name: str, df: DataFrame) -> DataFrame:
        """Drop ended rows of a state that this epoch has written (semantics K8)."""
        return self.to_write(name, df, self._ttls.get(name))

    def to_fold(self, name: str, df: DataFrame) -> DataFrame:
        """Drop rows when base and deltas become a new base: the rows that a read would drop.

        An epoch without a time of its own drops no rows by processing time: the files keep such rows until an epoch
        with a time writes a new base, and reads go on dropping them.
        """
        lives = self._restored_ttls.get(name)
        timeless = lives is not None and lives.time == "processing" and self._at.handover.slice.end is None
        return df if timeless else self.to_read(name, df)

    def check_lives(self, name: str, changed: DataFrame | None, lives: ttl.StateTtl) -> None:
        """Check that the rows of an updated state may have this time to live.

        Ended rows are written all the same: each hides the older row of its key.

        Raises:
            InvalidStateError: the state has another time to live, which may have ended rows that are in the files; the
                column holds no timestamps; or the epoch has no processing time to judge by.
        """
        known = self._restored_ttls.get(name)
        if known is not None and known != lives:
            raise InvalidStateError(
                f"the state {name!r} has another time to live: {known}. By {lives} rows could come back that have "
                "ended. To change it, write the state whole, by epoch.snapshot with the new ttl",
                stage=self._at.handover.stage,
            )
        if lives.time == "processing":
            self._time()
        if changed is not None:
            moments.column_of(f"the time to live of the state {name!r}", changed, lives.column)

    def let_live(self, name: str, lives: ttl.StateTtl | None) -> None:
        """Record the time to live of a written state's rows; None: forever."""
        with self._lock:
            self._written.add(name)
            self._ttls.pop(name, None)
            if lives is not None:
                self._ttls[name] = lives

    def check_lives_on(self, name: str) -> None:
        """Check that no row of a state ends: partials would be merged with an ended row, and bring it back.

        Raises:
            InvalidStateError: the state has a time to live.
        """
        if name in self._ttls:
            raise InvalidStateError(
                f"the state {name!r} has a time to live, and partial aggregates would bring back what has ended. Write "
                "it by epoch.snapshot without ttl first, or keep it by epoch.update",
                stage=self._at.handover.stage,
            )

    def time(self) -> datetime:
        """Return the processing time of the epoch; see `Epoch.time`.

        Raises:
            InvalidStateError: the run has no data interval, or a source gave something that is not a moment.
        """
        end = self._at.handover.slice.end
        if end is None:
            raise InvalidStateError(
                "this epoch has no time of its own: its run has no data interval, and a clock would give a retry "
                "another time. Start the run with a logical date, or go by event time (epoch.watermark)",
                job=self._at.handover.job,
                run=run_id_of(self._at.handover.epoch),
            )
        return moments.utc_of(moment_in_slice("end", end))

    def finish(self) -> None:
        """Write the changed timers, and put watermarks and times to live as values."""
        at = self._at
        self.note_read()
        for name, timers in self._timers.items():
            left = timers.to_store()
            if left is not None:
                at.outputs.write("state", PREFIX + name, left, timers.key)
        values = self._mark.values()
        if self._ttls or self._restored_ttls:
            kept = self._written | {each.partition(".")[2] for each in at.carried.outputs if each.startswith("state.")}
            values[ttl.VALUE] = ttl.plain_of(self._ttls, kept)
        for name in (STAGE, INPUTS):
            if name not in values:
                at.carried.forget(name)
        for name, value in values.items():
            at.carried.put(name, value)
        if values.get(STAGE) is not None:
            self._log()

    def _time(self) -> int:
        return moments.micros_of(self.time())

    def _ask(self) -> int | None:
        with self._lock:
            return self._mark.ask()

    def _log(self) -> None:
        watermark = self._mark.ask()
        log.info(
            "Stage %s: the watermark is %s; what holds it back: %s",
            self._at.handover.stage,
            "not there yet" if watermark is None else moments.shown(watermark),
            ", ".join(self._mark.held_back_by()) or "nothing",
        )

    def _of(self, contents: StageContents) -> Json:
        """Return the watermark that an upstream has acknowledged; None if it has none."""
        stored = contents.outputs.get(f"{VALUE}.{STAGE}")
        if stored is not None:
            plain: Json = small_state.read(self._at.files, stored)
            return plain
        return contents.values.get(STAGE)


# Timers: keyed state that comes back once, when the watermark has passed its time. A timer is a key and a time;
# setting it twice makes one timer. Timers are stored as a keyed state, so a restore, a savepoint and another
# parallelism treat them like any other. The epoch does not store timers that `due` has returned. They come back only
# if the attempt fails, and then the rest of the attempt is undone too.


PREFIX = "_cairn_timers."
"""Prefix of the state that stores timers; their name follows."""


class Timers:
    """The timers of one name, made by `Epoch.timers`; due up to the microseconds of `until`, none if that is None."""

    def __init__(
        self, name: str, key: Sequence[str], time: str, restored: DataFrame | None, until: Callable[[], int | None]
    ) -> None:
        self._what = f"the timers {name!r}"
        self.key = tuple(key)
        self.time = time
        self._columns = [*key, time]
        self._left = None if restored is None else restored.select(*map(key_groups.quoted, self._columns))
        self._until = until
        self._lock = Lock()
        self._changed = False
        self._perhaps: DataFrame | None = None
        """The timers that were due before any other change; they may have no rows."""

    def set(self, df: DataFrame) -> None:
        """Set a timer for each row; setting an existing timer changes nothing. Runs the DataFrame now.

        A timer whose time has passed is due at once: the next call of `due` returns it.

        Args:
            df: has the key columns and the time column; other columns are ignored.

        Raises:
            InvalidStateError: a column is missing or of another type than before, or a time is null or later than the
                year 9999.
        """
        new = self._taken(df, self._columns)
        time, kind = moments.column_of(self._what, new, self.time)
        odd = new.where(time.isNull() | moments.is_beyond(time, kind)).select(time.cast("string")).first()
        if odd is not None and odd[0] is not None:
            raise moments.beyond(self._what, odd[0], column=self.time)
        if odd is not None:
            raise InvalidStateError(
                f"{self._what} have no time in some rows (null in {self.time!r}), so they would never be due. Leave "
                "these rows out"
            )
        with self._lock:
            self._left = (new if self._left is None else self._left.union(new)).distinct()
            self._changed = True

    def delete(self, df: DataFrame) -> None:
        """Delete timers by a row's key and time, or all timers of its key if `df` has no time column.

        Runs the DataFrame now. Missing timers are ignored.

        Args:
            df: has the key columns, and may have the time column.
        """
        with_time = self.time in getattr(df, "columns", ())
        columns = self._columns if with_time else list(self.key)
        gone = self._taken(df, columns)
        keys = deltas.only_keys(gone, columns)
        with self._lock:
            if self._left is None:
                return
            self._left = self._left.join(keys, deltas.same_key(columns), "left_anti")
            self._changed = True

    def due(self) -> DataFrame | None:
        """Take out the timers whose time the watermark has reached; in a drain, all timers.

        Another call returns timers that were set since and are due too. Timers not taken stay for the next epoch.

        Returns:
            The key columns and the time column. None if no timer of this name was ever set.
        """
        until = self._until()
        with self._lock:
            left = self._left
            if left is None:
                return None
            time, kind = moments.column_of(self._what, left, self.time)
            if until is None:
                return left.limit(0)
            passed = time <= moments.literal(until, kind)
            due = left.where(passed)
            self._left = left.where(~passed)
            if not self._changed and self._perhaps is None:
                self._perhaps = due
            return due

    def to_store(self) -> DataFrame | None:
        """Return the remaining timers; None if they equal the restored checkpoint's. May run a Spark job."""
        with self._lock:
            changed = self._changed or (self._perhaps is not None and not self._perhaps.isEmpty())
            return self._left if changed else None

    def _taken(self, df: Any, columns: Sequence[str]) -> DataFrame:
        """Check rows and fix their values, so that a second evaluation by Spark cannot change them."""
        for column in columns:
            if column not in getattr(df, "columns", ()):
                raise InvalidStateError(
                    f"{self._what} need the column {column!r}, which the DataFrame does not have",
                    columns=", ".join(getattr(df, "columns", ())) or f"none: it is a {type(df).__name__}",
                    key=", ".join(self.key),
                    time=self.time,
                )
        if self.time in columns:
            moments.column_of(self._what, df, self.time)
        key_groups.check_key(self._what, df, self.key)
        chosen: DataFrame = df.select(*map(key_groups.quoted, columns))
        if self._left is not None:
            _check_types(self._what, self._left, chosen)
        return chosen.distinct().localCheckpoint(eager=True)


def check_same(name: str, stored_key: Sequence[str], stored: Sequence[str], key: Sequence[str], time: str) -> None:
    """Check that timers are used with the key and time columns that they were set with.

    Raises:
        InvalidStateError: the columns differ.
    """
    if tuple(stored_key) == tuple(key) and sorted(stored) == sorted([*key, time]):
        return
    raise InvalidStateError(
        f"the timers {name!r} were set with another key or another time. Name the same, or give the new timers "
        f"another name and let these end by epoch.drop({PREFIX + name!r}, kind='state')",
        set_with=", ".join(stored_key),
        set_with_time=", ".join(column for column in stored if column not in stored_key),
        key=", ".join(key),
        time=time,
    )


def _check_types(what: str, known: DataFrame, given: DataFrame) -> None:
    for field in given.schema:
        before = known.schema[field.name].dataType
        if not same_type(before, field.dataType):
            raise InvalidStateError(
                f"the column {field.name!r} of {what} has another type than the timers that are set. Cast it",
                type=field.dataType.simpleString(),
                set_with=before.simpleString(),
            )
