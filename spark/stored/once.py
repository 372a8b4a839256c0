"""Applies an update to a keyed state, or to its deltas, in one query that checks its keys for duplicates (K1, K5).

When the rows of a key are written, they are in one partition, side by side. So the write itself counts how often the
update has a key, and fails if this is more than once: otherwise chance would decide which of the rows counts. Nothing
is read back, and the check needs no shuffle and no sort beyond those of the write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import StateHandle
from . import key_groups
from .runs import DELETED, NUMBER, numbered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WHOLE_BYTES = 1 << 20
"""A state of up to this many bytes is rewritten by each epoch that changes it: a delta would cost more."""

_TWICE = "cairn: a key is more than once in one update"
"""Spark's error message; `is_in` looks for it."""
_GIVEN = "_cairn_given"
"""How often the update has the row's key."""
_NEWEST = "_cairn_newest"
"""The number of the newest delta with the row's key."""


def is_small(handles: Sequence[StateHandle]) -> bool:
    """Tell whether a change rewrites the state (semantics K3)."""
    return sum(handle.size_bytes for handle in handles) <= WHOLE_BYTES


def rows_of(stored: DataFrame | None, update: DataFrame) -> DataFrame:
    """Unite the rows of a state and of an update, for `applied`.

    Args:
        stored: the existing state; None: it has no rows.
        update: the update, with `DELETED`; a deleted key needs only its key columns.
    """
    from pyspark.sql import functions as F

    if stored is None:
        return update
    return stored.withColumn(DELETED, F.lit(None).cast("boolean")).unionByName(update, allowMissingColumns=True)


def applied(placed: DataFrame, key: Sequence[str]) -> DataFrame:
    """Apply an update: its row replaces the state's row of that key, or deletes the key.

    Args:
        placed: `rows_of` state and update; the state's rows have no value in `DELETED`.
        key: the key columns.
    """
    from pyspark.sql import functions as F

    counted = placed.withColumn(_GIVEN, _given(key))
    stays = F.coalesce(~F.col(DELETED), F.col(_GIVEN) == 0)
    return counted.where(_else_fail(stays)).drop(_GIVEN, DELETED)


def checked(placed: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the rows of an update unchanged, with the check of their keys.

    Args:
        placed: the rows, with `DELETED`.
        key: the key columns.
    """
    from pyspark.sql import functions as F

    counted = placed.withColumn(_GIVEN, _given(key))
    return counted.withColumn(DELETED, _else_fail(F.col(DELETED))).drop(_GIVEN)


def as_one_run(placed: DataFrame, key: Sequence[str], number: int) -> DataFrame:
    """Merge deltas and an update into one delta: the newest row of each key, which may mark it as deleted.

    Args:
        placed: the rows of the deltas and of the update; the update's have no value in `NUMBER`.
        key: the key columns.
        number: the number of the merged delta.
    """
    from pyspark.sql import functions as F

    of_update = F.col(NUMBER).isNull()
    of_key = key_groups.together(key)
    counted = placed.withColumn(_GIVEN, F.count(F.when(of_update, F.lit(1))).over(of_key))
    counted = counted.withColumn(_NEWEST, F.max(NUMBER).over(of_key))
    stays = of_update | ((F.col(_GIVEN) == 0) & (F.col(NUMBER) == F.col(_NEWEST)))
    return numbered(counted.where(_else_fail(stays)).drop(_GIVEN, _NEWEST), number)


def is_in(error: Exception) -> bool:
    """Tell whether Spark failed because an update has a key more than once."""
    return _TWICE in str(error)


def _given(key: Sequence[str]) -> Column:
    from pyspark.sql import functions as F

    return F.count(DELETED).over(key_groups.together(key))


def _else_fail(value: Column) -> Column:
    from pyspark.sql import functions as F

    return F.when(F.col(_GIVEN) > 1, F.raise_error(F.lit(_TWICE)).cast("boolean")).otherwise(value)
