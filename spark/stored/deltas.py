"""Keyed state that grows: a base, and deltas with the changes, merged when the state is read (semantics K1, K2).

A delta holds the changes of one epoch: new or changed rows, and deleted keys. Its files are laid out as a base's are,
by key group, with two more columns: a flag for deleted keys, and the delta's number. The checkpoint's metadata give
each file's delta; 0 is the base. For each key the row in the newest delta counts.

Deltas of updates are merged in tiers: an epoch whose delta's number is divisible by 8 writes its changes and the 7
deltas before as one delta with that number; a number divisible by 64 merges all since the last such number, and so on.
So few deltas are live, and their numbers and sizes alone decide the merges: no other record is kept. Partial aggregates
are merged 64 at a time. Deltas that are due for a new base before as many bytes again have come are not merged: the
base rewrites their rows once more. An epoch decides by the existing files, before it writes: it writes either a delta,
or a merged delta, or a base.

The number is a text of fixed length, whose order is the numbers'. Spark compiles a number into the generated code, anew
in each epoch; a text is passed by reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any

from ...checkpoint.documents.acknowledgement import StateHandle
from ...storage.records import dataclass
from . import key_groups

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

DELETED = "_cairn_deleted"
"""The stored column of a delta that marks a key as deleted."""
NUMBER = "_cairn_run"
"""The stored column of a delta that holds its number."""

FAN_IN = 8
"""Number of neighbouring deltas of updates, of one tier, that are merged into one."""
FAN_IN_PARTIALS = 64
"""Fan-in of partial aggregates: no epoch reads them, and merging eight of them costs more than it saves."""
MAX_EPOCHS = 512
"""Most epochs that change a state before it gets a new base, so that deleted and ended rows go at last."""
MAX_SHARE = 0.75
"""Largest ratio of delta bytes to base bytes."""
SMALL_BYTES = 4 << 20
"""Deltas of up to this many bytes together are kept, whatever the base's size, until some of them are merged, so that a
small state is not rewritten each epoch."""

SCANNED_BYTES = 4 << 20
"""A state of up to this many bytes is read whole for given keys: a look at the keys first costs more."""

_BROADCAST_BYTES = 32 << 20
"""Deltas of up to this many bytes in the store have keys that fit into each executor's memory."""
_BROADCAST_KEYS = 1_000_000
"""Number of the caller's keys that fit there too."""
_BROADCAST_VALUES = 100_000
"""Number of a state's values that fit there, however well they are compressed: rows by columns."""
_DIGITS = 10
_NEWER = "_cairn_newer"
"""The number of a delta, where it is compared with another."""
_WHOLE_NUMBERS = frozenset({"byte", "short", "integer", "long"})
_DATES = (date(1582, 10, 15), date(9999, 12, 31))
"""The dates that are the same in Python, in the calendar of Java's filters, and in Spark."""


def own_columns() -> list[StructField]:
    """Return the columns that a delta's files have beside those of the state."""
    from pyspark.sql.types import BooleanType, StringType, StructField

    return [StructField(DELETED, BooleanType()), StructField(NUMBER, StringType())]


def next_number(handles: Iterable[StateHandle]) -> int:
    """Return the number of the delta that an epoch adds to a state with these files."""
    return max((handle.delta for handle in handles), default=0) + 1


def is_due(handles: Sequence[StateHandle], *, partials: bool = False) -> bool:
    """Tell whether an epoch writes base, deltas and its changes as a new base (semantics K3); see `to_merge`."""
    size = sum(handle.size_bytes for handle in handles if handle.delta)
    most = _most_bytes(handles)
    if next_number(handles) >= MAX_EPOCHS or size > max(SMALL_BYTES, most):
        return True
    # For a small state a new base costs no more than the merged delta that is due anyway.
    return size > most and bool(to_merge(handles, partials=partials))


def to_merge(handles: Sequence[StateHandle], *, partials: bool = False) -> frozenset[int]:
    """Return the numbers of the deltas that an epoch merges with its own changes (semantics K3).

    Returns:
        No numbers if the epoch writes only its own delta. All numbers if there are far more deltas than the tiers
        leave: an older version merged none.
    """
    found = frozenset(handle.delta for handle in handles if handle.delta)
    fan_in = FAN_IN_PARTIALS if partials else FAN_IN
    if len(found) >= 2 * _most_live(fan_in):
        return found
    number, span = next_number(handles), fan_in
    left = max(SMALL_BYTES, _most_bytes(handles)) - sum(handle.size_bytes for handle in handles if handle.delta)
    together: frozenset[int] = frozenset()
    while number % span == 0:
        tier = [handle for handle in handles if handle.delta > max(0, number - span)]
        if sum(handle.size_bytes for handle in tier) > left:
            break  # a new base will rewrite these rows before as many bytes again have come
        together = frozenset(handle.delta for handle in tier)
        span *= fan_in
    return together


def _most_bytes(handles: Iterable[StateHandle]) -> float:
    """Return the limit for the bytes of the deltas beside their base."""
    return MAX_SHARE * sum(handle.size_bytes for handle in handles if not handle.delta)


def _most_live(fan_in: int) -> int:
    """Return the number of deltas that the tiers leave, with the epoch's own, if all due merges are done."""
    most = span = 1
    while span < MAX_EPOCHS:
        most += min(fan_in, MAX_EPOCHS // span) - 1
        span *= fan_in
    return most


def rows_of(changed: DataFrame | None, deletes: DataFrame | None) -> tuple[DataFrame, str]:
    """Combine the rows of an update.

    `changed` has the state's columns in their order, `deletes` only the key columns; one of the two is given.

    Returns:
        The rows, and the value of `DELETED` as SQL; the rows have such a column only if both are given.
    """
    if deletes is None or changed is None:
        one = changed if changed is not None else deletes
        assert one is not None, "one of the two is given"
        return one, str(changed is None).lower()
    rows, keys = changed.selectExpr("*", f"false AS {DELETED}"), deletes.selectExpr("*", f"true AS {DELETED}")
    return rows.unionByName(keys, allowMissingColumns=True), DELETED


def number_of(number: int) -> str:
    """Return a delta's number as its rows hold it, as SQL."""
    return f"'{number:0{_DIGITS}}'"


def newest_wins(rows: DataFrame, log: DataFrame, columns: Sequence[str], key: Key, *, size_bytes: int) -> DataFrame:
    """Merge a base with the rows of its deltas.

    One scan reads base and deltas: for a union Spark would copy each row, also the base's many rows.

    `rows` are those of base and deltas, with the state's columns and the two of a delta, which are null in the base;
    `log` the same rows without those of the base. `size_bytes` is that of the deltas' files.
    """
    from pyspark.sql import functions as F

    # Each executor gets the keys of the deltas. An aggregation would sort all rows of the deltas: Spark keeps texts and
    # structs in no hash table.
    newer = log.select(*key_groups.renamed(key.columns), F.col(NUMBER).alias(_NEWER))
    if size_bytes <= _BROADCAST_BYTES:
        newer = F.broadcast(newer)
    older = F.coalesce(F.col(NUMBER), F.lit("")) < F.col(_NEWER)
    newest = rows.join(newer, key.is_same() & older, "left_anti")
    wanted = [F.col(key_groups.quoted(column)) for column in columns]
    return newest.where(~F.coalesce(F.col(DELETED), F.lit(False))).select(*wanted)


def only_keys(df: DataFrame, key: Sequence[str]) -> DataFrame:
    """Rename the key columns to names that no column of a state has."""
    return df.select(*key_groups.renamed(key))


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a state; `is_number`: it is a single integer column."""

    columns: tuple[str, ...]
    is_number: bool

    @classmethod
    def of(cls, columns: Sequence[str], schema: StructType) -> Key:
        """Make the key; `schema` is the state's."""
        kinds = {schema[column].dataType.typeName() for column in columns}
        return cls(tuple(columns), len(columns) == 1 and kinds <= _WHOLE_NUMBERS)

    def is_same(self) -> Column:
        """Return the condition that a row has a key of `only_keys`; null equals null."""
        from pyspark.sql import functions as F

        if not self.is_number:
            return same_key(self.columns)
        # Spark looks up one number faster than the pair that it makes of `eqNullSafe`, a number and a flag for null.
        # Any condition that is not an equality is evaluated only where the numbers are equal.
        one, other = F.col(key_groups.quoted(self.columns[0])), F.col(f"{key_groups.KEY}0")
        both_or_none = (F.isnull(one) <= F.isnull(other)) & (F.isnull(one) >= F.isnull(other))
        return (F.coalesce(one, F.lit(0)) == F.coalesce(other, F.lit(0))) & both_or_none


def same_key(key: Sequence[str]) -> Column:
    """Return the condition that a row has a key of `only_keys`; null equals null."""
    from pyspark.sql import functions as F

    pairs = (
        F.col(key_groups.quoted(column)).eqNullSafe(F.col(f"{key_groups.KEY}{at}")) for at, column in enumerate(key)
    )
    return reduce(lambda one, other: one & other, pairs)


class Touched:
    """The keys that a caller asks for; if it may save a read, a job locates them first.

    `size_bytes` is that of the state's files; `values` the number of values in them, rows by columns; None if it is
    unknown.
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
            # The number of keys is unknown. If the state's rows are the side sent around, each key must be there once.
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

    def of(self, df: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Select a file's rows that have such a key; over Spark Connect `df.columns` would ask the server."""
        from pyspark.sql import functions as F

        if self._groups is not None:
            df = df.where(df[key_groups.COLUMN].isin(self._groups))
        if self._range is not None:
            df = df.where(df[key_groups.quoted(self._key[0])].between(*self._range))
        if self._are_few:
            # Spark reads the files while it computes the keys; a semi-join would wait for the keys.
            found = self._wanted.join(F.broadcast(df), same_key(self._key))
            # Use the key column of `keys`, which is equal: by it Spark knows that the rows of a key are together.
            own = {column: F.col(f"{key_groups.KEY}{at}").alias(column) for at, column in enumerate(self._key)}
            return found.select(*(own.get(column, F.col(key_groups.quoted(column))) for column in columns))
        return df.join(self._wanted, same_key(self._key), "left_semi")


class _Bounds:
    """Finds the lowest and the highest value of a key column, by which a state's files are filtered.

    Spark passes filters to Parquet as Java's texts and dates. So only values that survive both conversions unchanged
    are bounds. For all others the files are read as if there were no bounds, and Spark compares the keys.
    """

    def __init__(self, kind: DataType) -> None:
        self._kind = kind.typeName()

    def column(self, bound: Column) -> Column:
        """Return the expression that Python fetches in place of a bound."""
        from pyspark.sql import functions as F

        if self._kind == "string":
            return bound.cast("binary")
        if self._kind == "date":
            return F.unix_date(bound)
        return bound if self._kind in _WHOLE_NUMBERS else F.lit(None)

    def values(self, *found: Any) -> tuple[Any, Any] | None:
        """Return the bounds; None if they narrow nothing."""
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
