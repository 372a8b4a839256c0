"""Keyed state that grows: a base, and runs of what changed, merged when it is read (semantics K1, K2).

A run is what one epoch changed: rows that are new or different, and keys that are deleted. Its files are laid out as a
base's are, by key group, with two more columns: whether the key is deleted, and the run's number. The checkpoint's
metadata says of each file which run it belongs to; 0 is the base. Of a key the row in the newest run counts.

Runs of updates are merged in tiers: an epoch whose run's number is divisible by 8 writes its changes and the 7 runs
before it as one run with that number, one that is divisible by 64 with all since the last such one, and so on. So few
runs are live, and their numbers and sizes alone say what is merged: nothing is kept of it anywhere. Partial aggregates
are merged 64 at a time. What is due for a new base before as much again has come is not merged: the base has the rows
once more. What is there decides, before the epoch writes: so it writes a run, or a merged run, or a base, and never two
of them.

The number is a text of fixed length, so that it orders as it reads. Spark compiles a number into the code that it
generates, for each epoch anew; a text it passes by reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from ...checkpoint.documents.acknowledgement import StateHandle
from . import key_groups

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

DELETED = "_cairn_deleted"
"""The stored column of a run that marks a key as deleted."""
NUMBER = "_cairn_run"
"""The stored column of a run that holds its number."""

FAN_IN = 8
"""Neighbouring runs of updates, of one tier, that become one run."""
FAN_IN_PARTIALS = 64
"""The same of partial aggregates: no epoch reads those, and to merge eight of them costs more than it saves."""
MAX_EPOCHS = 512
"""Epochs that change a state until it has a new base, at most: what is deleted or has ended does not stay for ever."""
MAX_SHARE = 0.75
"""Bytes of the runs to bytes of the base, at most."""
SMALL_BYTES = 4 << 20
"""Runs of up to this many bytes together are left, whatever the base has, until some of them are merged: a small state
is not rewritten each epoch."""

SCANNED_BYTES = 4 << 20
"""A state of up to this many bytes is read whole for the keys that are asked for: to look at them first costs more."""

_BROADCAST_BYTES = 32 << 20
"""Runs of up to this many bytes in the store have keys that fit into the memory of each executor."""
_BROADCAST_KEYS = 1_000_000
"""So many keys of the caller fit there too."""
_BROADCAST_VALUES = 100_000
"""So many values of a state fit there, whatever they were compressed to: rows by columns."""
_DIGITS = 10
_NEWER = "_cairn_newer"
"""The number of a run, where it is compared with another."""
_WHOLE_NUMBERS = frozenset({"byte", "short", "integer", "long"})
_DATES = (date(1582, 10, 15), date(9999, 12, 31))
"""The dates that are the same in Python, in the calendar of Java's filters, and in Spark."""


def own_columns() -> list[StructField]:
    """Give the columns that the files of a run have beside those of the state."""
    from pyspark.sql.types import BooleanType, StringType, StructField

    return [StructField(DELETED, BooleanType()), StructField(NUMBER, StringType())]


def next_number(handles: Iterable[StateHandle]) -> int:
    """Give the number of the run that an epoch adds to a state with these files."""
    return _newest(handles) + 1


def is_due(handles: Sequence[StateHandle], *, partials: bool = False) -> bool:
    """Tell whether an epoch writes base, runs and its own changes as a new base (semantics K3); as for `to_merge`."""
    size = sum(handle.size_bytes for handle in handles if handle.run)
    most = _most_bytes(handles)
    if next_number(handles) >= MAX_EPOCHS or size > max(SMALL_BYTES, most):
        return True
    # Of a small state a new base costs no more than the merged run that is due anyway.
    return size > most and bool(to_merge(handles, partials=partials))


def to_merge(handles: Sequence[StateHandle], *, partials: bool = False) -> frozenset[int]:
    """Give the numbers of the runs that an epoch writes together with its own changes, as one run (semantics K3).

    Args:
        handles: of the state so far.
        partials: whether the runs are partial aggregates.

    Returns:
        None, where the epoch writes a run of its own. All, where there are many more than the tiers leave: an older
        version merged none.
    """
    found = frozenset(handle.run for handle in handles if handle.run)
    fan_in = FAN_IN_PARTIALS if partials else FAN_IN
    if len(found) >= 2 * _most_live(fan_in):
        return found
    number, span = next_number(handles), fan_in
    left = max(SMALL_BYTES, _most_bytes(handles)) - sum(handle.size_bytes for handle in handles if handle.run)
    together: frozenset[int] = frozenset()
    while number % span == 0:
        tier = [handle for handle in handles if handle.run > max(0, number - span)]
        if sum(handle.size_bytes for handle in tier) > left:
            break  # before as many more have come, a new base has these rows once more
        together = frozenset(handle.run for handle in tier)
        span *= fan_in
    return together


def _most_bytes(handles: Iterable[StateHandle]) -> float:
    """Give how many bytes the runs may have beside their base."""
    return MAX_SHARE * sum(handle.size_bytes for handle in handles if not handle.run)


def _most_live(fan_in: int) -> int:
    """Give how many runs the tiers leave, with the one that an epoch adds, where all that are due are merged."""
    most = span = 1
    while span < MAX_EPOCHS:
        most += min(fan_in, MAX_EPOCHS // span) - 1
        span *= fan_in
    return most


def _newest(handles: Iterable[StateHandle]) -> int:
    return max((handle.run for handle in handles), default=0)


def rows_of(changed: DataFrame | None, deletes: DataFrame | None) -> DataFrame:
    """Give the rows of an update, with `DELETED`.

    Args:
        changed: rows that are new or different, with the columns of the state in their order.
        deletes: keys that are deleted, the key columns alone. One of the two is given.
    """
    from pyspark.sql import functions as F

    parts = []
    if changed is not None:
        parts.append(changed.withColumn(DELETED, F.lit(False)))
    if deletes is not None:
        parts.append(deletes.withColumn(DELETED, F.lit(True)))
    return parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1], allowMissingColumns=True)


def numbered(df: DataFrame, number: int) -> DataFrame:
    """Give the rows of a run with its number, as they are stored."""
    from pyspark.sql import functions as F

    return df.withColumn(NUMBER, F.lit(f"{number:0{_DIGITS}}"))


def newest_wins(rows: DataFrame, log: DataFrame, columns: Sequence[str], key: Key, *, size_bytes: int) -> DataFrame:
    """Merge a base with the rows of its runs.

    Base and runs are read by one scan: of a union Spark would copy each row, the many of the base too.

    Args:
        rows: of base and runs, with the columns of the state and the two of a run, which a base does not fill.
        log: the same rows without those of the base.
        columns: of the state, in their order.
        key: that of the state.
        size_bytes: of the files of the runs.
    """
    from pyspark.sql import functions as F

    # The keys of the runs go to each executor. An aggregation would sort all rows of the runs: Spark keeps texts and
    # structs in no hash table.
    newer = log.select(*key_groups.renamed(key.columns), F.col(NUMBER).alias(_NEWER))
    if size_bytes <= _BROADCAST_BYTES:
        newer = F.broadcast(newer)
    older = F.coalesce(F.col(NUMBER), F.lit("")) < F.col(_NEWER)
    newest = rows.join(newer, key.is_same() & older, "left_anti")
    wanted = [F.col(key_groups.quoted(column)) for column in columns]
    return newest.where(~F.coalesce(F.col(DELETED), F.lit(False))).select(*wanted)


def only_keys(df: DataFrame, key: Sequence[str]) -> DataFrame:
    """Give the key columns under names that no column of a state has."""
    return df.select(*key_groups.renamed(key))


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a state.

    Args:
        columns: its names.
        is_number: whether it is one column of whole numbers.
    """

    columns: tuple[str, ...]
    is_number: bool

    @classmethod
    def of(cls, columns: Sequence[str], schema: StructType) -> Key:
        """Make it; `schema` is the state's."""
        kinds = {schema[column].dataType.typeName() for column in columns}
        return cls(tuple(columns), len(columns) == 1 and kinds <= _WHOLE_NUMBERS)

    def is_same(self) -> Column:
        """Give the condition that a row has a key of `only_keys`; null is a key as any other."""
        from pyspark.sql import functions as F

        if not self.is_number:
            return same_key(self.columns)
        # Spark looks up one number faster than what it makes of `eqNullSafe`, a number and whether it is null. What is
        # no equality is compared only where the numbers are equal.
        one, other = F.col(key_groups.quoted(self.columns[0])), F.col(f"{key_groups.KEY}0")
        both_or_none = (F.isnull(one) <= F.isnull(other)) & (F.isnull(one) >= F.isnull(other))
        return (F.coalesce(one, F.lit(0)) == F.coalesce(other, F.lit(0))) & both_or_none


def same_key(key: Sequence[str]) -> Column:
    """Give the condition that a row has a key of `only_keys`; null is a key as any other."""
    from pyspark.sql import functions as F

    pairs = (
        F.col(key_groups.quoted(column)).eqNullSafe(F.col(f"{key_groups.KEY}{at}")) for at, column in enumerate(key)
    )
    return reduce(lambda one, other: one & other, pairs)


class Touched:
    """The keys that a caller asks for; where that may save something, it runs a job to learn where they are.

    Args:
        keys: has the key columns.
        key: their names.
        groups: how many key groups the state has.
        size_bytes: of the state's files.
        values: in them, rows by columns; None where that is not known.
    """

    def __init__(
        self, keys: DataFrame, key: Sequence[str], groups: int, size_bytes: int, values: int | None = None
    ) -> None:
        from pyspark.sql import functions as F

        self._key = key
        self._groups: list[int] | None = None
        self._range: tuple[Any, Any] | None = None
        self._are_few = size_bytes <= SCANNED_BYTES and values is not None and values <= _BROADCAST_VALUES
        if size_bytes <= SCANNED_BYTES:
            # How many keys there are is not known. Each once, where it is the rows of the state that are sent around.
            self._wanted = only_keys(keys, key).distinct() if self._are_few else only_keys(keys, key)
            return
        lead, told = F.col(key_groups.quoted(key[0])), _Bounds(keys.schema[key[0]].dataType)
        row = keys.agg(
            F.count(F.lit(1)).alias("rows"),
            F.count(lead).alias("leads"),
            told.column(F.min(lead)).alias("least"),
            told.column(F.max(lead)).alias("greatest"),
            F.collect_set(key_groups.group_of(key, groups)).alias("groups"),
        ).first()
        assert row is not None, "an aggregate without groups has one row"
        self._groups = sorted(row["groups"]) if len(row["groups"]) <= groups // 2 else None
        if row["rows"] and row["rows"] == row["leads"]:
            self._range = told.values(row["least"], row["greatest"])
        wanted = only_keys(keys, key)
        self._wanted = F.broadcast(wanted) if row["rows"] <= _BROADCAST_KEYS else wanted

    def of(self, df: DataFrame) -> DataFrame:
        """Give the rows of a file that have such a key; `df` has the column of the key groups."""
        from pyspark.sql import functions as F

        if self._groups is not None:
            df = df.where(df[key_groups.COLUMN].isin(self._groups))
        if self._range is not None:
            df = df.where(df[key_groups.quoted(self._key[0])].between(*self._range))
        if self._are_few:
            # Spark reads them while it computes the keys; a semi-join would wait for the keys.
            found = self._wanted.join(F.broadcast(df), same_key(self._key))
            # The key as `keys` has it, which is equal: by it Spark knows that the rows of a key are together.
            own = {column: F.col(f"{key_groups.KEY}{at}").alias(column) for at, column in enumerate(self._key)}
            return found.select(*(own.get(column, F.col(key_groups.quoted(column))) for column in df.columns))
        return df.join(self._wanted, same_key(self._key), "left_semi")


class _Bounds:
    """Brings the least and the greatest value of a key column to Python, by which a state's files are filtered.

    Spark hands filters to Parquet by way of Java's texts and dates. So only what comes through both as it was is a
    bound; of all else the files are read as if there were none, and Spark compares the keys.

    Args:
        kind: the column's type.
    """

    def __init__(self, kind: DataType) -> None:
        self._kind = kind.typeName()

    def column(self, bound: Column) -> Column:
        """Give what comes to Python in place of a bound."""
        from pyspark.sql import functions as F

        if self._kind == "string":
            return bound.cast("binary")
        if self._kind == "date":
            return F.unix_date(bound)
        return bound if self._kind in _WHOLE_NUMBERS else F.lit(None)

    def values(self, *found: Any) -> tuple[Any, Any] | None:
        """Give the bounds; None where they narrow nothing."""
        try:
            least, greatest = map(self._value, found)
        except (OverflowError, UnicodeDecodeError):
            return None
        if least is None or (self._kind == "date" and not _DATES[0] <= least <= greatest <= _DATES[1]):
            return None
        return least, greatest

    def _value(self, found: Any) -> Any:
        if self._kind == "string":
            return bytes(found).decode()
        return date(1970, 1, 1) + timedelta(days=found) if self._kind == "date" else found
