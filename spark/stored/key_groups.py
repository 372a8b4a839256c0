"""Key groups: keyed state is stored by group, so that a restore at any parallelism reads only what it needs (R4).

A row's group is Spark's hash of its key columns, modulo the stage's maximum parallelism; every Spark job computes it by
the same expression. The group is stored beside the author's columns. Each file holds a contiguous range of groups,
sorted by group and key, so that Parquet's statistics tell which row groups and pages hold a range of groups.

This takes one shuffle and one sort, and no further job: each range of groups goes to one partition. Spark partitions by
the hash of a number, so rows are partitioned by the number whose hash is that of the partition (`unhashed`). Only the
cut of the files depends on this: readers use the stored column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import Output
from ...checkpoint.documents.attempt import Handover
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.rules.restored_state import KEY_GROUPS, key_groups_of
from ..execution.transport import version_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


COLUMN = "_cairn_key_group"
"""The stored column of the row's key group. Applications never see it."""
_TARGET = "_cairn_partition"
"""Exists only until the rows are sorted; it tells Spark that the rows of a key are in one partition."""
PLACES = (COLUMN, _TARGET)
"""The additional columns of placed rows."""
_FEW = 4
"""Number of a delta's files if Spark does not choose it by the size."""
_FEW_TO_JOIN = 32
"""Partitions of a small state, and smallest number of a delta's; Spark joins them by their size. 128 made the write of
a small delta a fifth dearer."""
_PLACED_BYTES = 16 << 20
"""Size of a state beyond which its deltas have a partition for each so many bytes of it."""
OWN = "_cairn_"
"""Prefix of Cairn's own columns."""
KEY = "_cairn_key_"
"""Prefix of a key column, with its place, while rows of one state are merged."""
_WITHOUT_ORDER = {
    "map": "a map",
    "variant": "a variant",
    "interval": "a calendar interval",
    "geometry": "a geometry",
    "geography": "a geography",
}
"""Types of Spark without order, which cannot be keys, by their names."""


def number_of(handover: Handover, restored: Iterable[Output]) -> int:
    """Return the number of key groups of a stage, shared by all its keyed states (semantics R4).

    Returns:
        The stage's maximum parallelism. For a stage without parallelism: the number that its keyed state was written
        with, at first 128.
    """
    stored = max((output.key_groups or 0 for output in restored), default=0)
    return handover.max_parallelism or stored or KEY_GROUPS


def of_subtask(handover: Handover, subtask: int, output: Output | None) -> range:
    """Return a state's key groups for a 0-based subtask at the stage's parallelism (semantics R4).

    Raises:
        InvalidStateError: the stage has no parallelism or no such subtask, or the state has no key.
    """
    if handover.parallelism is None:
        raise InvalidStateError(
            "a subtask is named and the stage names no parallelism. Set `parallelism` on its operator, or read all of "
            "the state",
            stage=handover.stage,
            subtask=subtask,
        )
    if subtask not in range(handover.parallelism):
        raise InvalidStateError(
            "the stage has no such subtask; they are counted from 0",
            stage=handover.stage,
            subtask=subtask,
            parallelism=handover.parallelism,
        )
    if output is None:
        return range(0)
    if output.key_groups is None:
        raise InvalidStateError(
            "the state was written without a key, so no part of it belongs to a subtask. Read all of it, or write "
            f"it by epoch.snapshot({output.name!r}, …, key=…)",
            stage=handover.stage,
        )
    return key_groups_of(subtask, handover.parallelism, output.key_groups)


def check_key(output_id: str, df: DataFrame, key: Sequence[str]) -> None:
    """Check that key columns identify rows as Spark compares them, and that Cairn's own column can be added.

    Raises:
        InvalidStateError: a column's type has no hash that agrees with Spark's equality, or Cairn's column name is
            taken.
    """
    for column in df.columns:
        if column.casefold().startswith(OWN):
            raise InvalidStateError(
                f"the column {column!r} of {output_id} has a name that keyed state needs for itself: those that begin "
                f"with {OWN}. Rename it",
                columns=", ".join(df.columns),
            )
    for column in key:
        unfit = _unfit(df.schema[column].dataType)
        if unfit:
            raise InvalidStateError(
                f"the key column {column!r} of {output_id} is or holds {unfit}, by which Spark does not group and "
                "order rows, or of which equal values may differ. Key it by something else, for strings by "
                "collation_key(…), or write the state without a key",
                type=df.schema[column].dataType.simpleString(),
            )


def distributed(df: DataFrame, key: Sequence[str], key_groups: int, parallelism: int | None) -> DataFrame:
    """Place and sort rows, and add the column of the key groups.

    Without `parallelism`, Spark chooses the number of partitions by the size, at most one for each group where it may
    not cut large ones.
    """
    return in_order(without_target(placed(df, key, key_groups, parallelism)), key)


def placed(
    df: DataFrame, key: Sequence[str], key_groups: int, parallelism: int | None, *, is_small: bool = False
) -> DataFrame:
    """Place rows; a window `of_key`, and then `in_order`, cost no further shuffle and one sort.

    If the state has been small so far, Spark joins small partitions, at any parallelism.
    """
    if (parallelism is None or is_small) and _is_adaptive(df):
        partitions = parallelism or min(key_groups, _FEW_TO_JOIN if is_small else key_groups)
        return _rebalanced(_aimed(df, key, key_groups, partitions), partitions)
    if parallelism is None:
        # Spark will not join small partitions here, so the session's setting gives their number.
        parallelism = min(key_groups, int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or key_groups))
    return _aimed(df, key, key_groups, parallelism).repartition(parallelism, _TARGET)


def gathered(df: DataFrame, key: Sequence[str], key_groups: int, size_bytes: int) -> DataFrame:
    """Place rows of a delta, in as few files as their size allows."""
    if not _is_adaptive(df):
        return _aimed(df, key, key_groups, _FEW).repartition(_FEW, _TARGET)
    partitions = min(key_groups, max(_FEW_TO_JOIN, size_bytes // _PLACED_BYTES))
    return _rebalanced(_aimed(df, key, key_groups, partitions), partitions)


def without_target(placed: DataFrame) -> DataFrame:
    """Drop from placed rows the column that only says where Spark put them."""
    return placed.drop(_TARGET)


def in_order(df: DataFrame, key: Sequence[str]) -> DataFrame:
    """Sort placed rows by group and key for storage, with the column of the key groups."""
    from pyspark.sql import functions as F

    # A name given as text is more than twice as many calls from Python to the JVM.
    return df.sortWithinPartitions(*map(F.expr, (COLUMN, *map(quoted, key))))


def of_key(key: Sequence[str], order: str = "") -> str:
    """Return the window over the rows of one key, for placed rows, as SQL; `order`: sorted by this."""
    together = f"PARTITION BY {', '.join((COLUMN, *map(quoted, key), _TARGET))}"
    return f"({together} ORDER BY {order})" if order else f"({together})"


def group_of(key: Sequence[str], key_groups: int) -> Column:
    """Return the key group of a row."""
    from pyspark.sql import functions as F

    return F.pmod(F.hash(*(F.col(quoted(column)) for column in key)), F.lit(key_groups))


def renamed(key: Sequence[str]) -> list[Column]:
    """Rename the key columns to `KEY` and their place in the key: no column of a state has such a name."""
    from pyspark.sql import functions as F

    return [F.col(quoted(column)).alias(f"{KEY}{index}") for index, column in enumerate(key)]


def _is_adaptive(df: DataFrame) -> bool:
    return str(df.sparkSession.conf.get("spark.sql.adaptive.enabled")).lower() == "true"


def _rebalanced(df: DataFrame, partitions: int) -> DataFrame:
    if version_of(df.sparkSession).startswith("3."):  # its `hint` takes a column only from SQL
        hinted = f"SELECT /*+ REBALANCE({partitions}, {_TARGET}) */ * FROM {{rows}}"  # noqa: S608 - a number and ours
        return df.sparkSession.sql(hinted, rows=df)
    return df.hint("rebalance", partitions, _TARGET)


def _aimed(df: DataFrame, key: Sequence[str], key_groups: int, partitions: int) -> DataFrame:
    """Add the key group of each row, and the number by which Spark puts the row into its group's partition."""
    # As text, because each part of an expression is several calls from Python to the JVM.
    group = f"pmod(hash({', '.join(map(quoted, key))}), {key_groups})"
    numbers = ", ".join(f"{unhashed(partition)}" for partition in range(partitions))
    target = f"element_at(array({numbers}), CAST({group} * {partitions}L DIV {key_groups} AS INT) + 1)"
    return df.selectExpr("*", f"{group} AS {COLUMN}", f"{target} AS {_TARGET}")


def _unfit(kind: DataType) -> str | None:
    from pyspark.sql import types as T

    found = without_order(kind)
    if found is not None:
        return found
    if isinstance(kind, T.StringType) and kind != T.StringType():
        return "a string with a collation"
    return next(filter(None, map(_unfit, _inside(kind))), None)


def without_order(kind: DataType) -> str | None:
    """Name the type, at any depth, that Spark neither orders nor takes for a key; None if there is none."""
    found = _WITHOUT_ORDER.get(kind.typeName())
    return found or next(filter(None, map(without_order, _inside(kind))), None)


def _inside(kind: DataType) -> Iterable[DataType]:
    from pyspark.sql import types as T

    if isinstance(kind, T.ArrayType):
        return (kind.elementType,)
    return [each.dataType for each in kind] if isinstance(kind, T.StructType) else ()


def quoted(column: str) -> str:
    """Quote a column's name for Spark, whatever it contains."""
    return "`{}`".format(column.replace("`", "``"))


# The inverse of Spark's hash of an integer: every step of Murmur3 can be undone.


_SEED = 42
"""Seed of Spark's hash, as a function and as a partitioning."""
_BYTES = 4
_BITS = 0xFFFFFFFF


def unhashed(hashed: int) -> int:
    """Return the signed 32-bit number whose hash, as Spark computes it, is `hashed` (unsigned)."""
    value = _unshifted(hashed, 16)
    value = _unshifted(_divided(value, 0xC2B2AE35), 13)
    value = _unshifted(_divided(value, 0x85EBCA6B), 16) ^ _BYTES
    value = _turned(_divided(value - 0xE6546B64, 5), 13) ^ _SEED
    value = _divided(_turned(_divided(value, 0x1B873593), 15), 0xCC9E2D51)
    return value - (1 << 32) if value >> 31 else value


def _divided(value: int, factor: int) -> int:
    """Undo a multiplication by an odd number."""
    return value * pow(factor, -1, 1 << 32) & _BITS


def _turned(value: int, bits: int) -> int:
    """Undo a rotation to the left."""
    return (value >> bits | value << (32 - bits)) & _BITS


def _unshifted(value: int, bits: int) -> int:
    """Undo `value ^ value >> bits`."""
    found = value
    for _ in range(32 // bits):
        found = value ^ found >> bits
    return found
