"""Timers: keyed state that comes back once, when the watermark has passed its time (semantics K6).

A timer is a key and a time; setting it twice makes one timer. Timers are stored as a keyed state, so a restore, a
savepoint and another parallelism treat them like any other. The epoch does not store timers that `due` has returned.
They come back only if the attempt fails, and then the rest of the attempt is undone too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidStateError
from ..stored import deltas, key_groups
from ..stored.outputs import same_type
from . import moments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX = "_cairn_timers."
"""Prefix of the state that stores timers; their name follows."""


class Timers:
    """The timers of one name in one epoch; made by `Epoch.timers`.

    Args:
        name: the timers' name.
        key: the key columns.
        time: the time column.
        restored: the timers in the restored checkpoint; None if it has none.
        until: returns the watermark in microseconds up to which timers are due; None: none is due.
    """

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

    Args:
        name: the timers' name.
        stored_key: the key columns in the restored checkpoint.
        stored: all columns there.
        key: the key columns now.
        time: the time column now.

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
