"""A keyed state, or runs of it, and an update in one query; and the check that the update has each key once (K1, K5).

The rows of a key are in one partition when they are written, side by side. So the write itself counts how often the
update has a key, and fails where that is more than once: which of the rows counts would be left to chance. Nothing is
read back, and it costs no shuffle and no sort that the write does not need anyway.
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
"""A state of up to this many bytes is written whole by each epoch that changes it: a run of it would cost more."""

_TWICE = "cairn: a key is more than once in one update"
"""What Spark's error says; `is_in` looks for it."""
_GIVEN = "_cairn_given"
"""How often the update has the row's key."""
_NEWEST = "_cairn_newest"
"""The number of the newest run that has the row's key."""


def is_small(handles: Sequence[StateHandle]) -> bool:
    """Tell whether a state is written whole when it changes (semantics K3)."""
    return sum(handle.size_bytes for handle in handles) <= WHOLE_BYTES


def rows_of(stored: DataFrame | None, update: DataFrame) -> DataFrame:
    """Give the rows of a state and those of an update, for `applied`.

    Args:
        stored: the state so far; None: it has no rows.
        update: with `DELETED`; a deleted key needs its key columns alone.
    """
    from pyspark.sql import functions as F

    if stored is None:
        return update
    return stored.withColumn(DELETED, F.lit(None).cast("boolean")).unionByName(update, allowMissingColumns=True)


def applied(placed: DataFrame, key: Sequence[str]) -> DataFrame:
    """Apply an update: of a key that it has, its row counts, or none if that says that the key is deleted.

    Args:
        placed: `rows_of` state and update; those of the state have no value in `DELETED`.
        key: the key columns.
    """
    from pyspark.sql import functions as F

    counted = placed.withColumn(_GIVEN, _given(key))
    stays = F.coalesce(~F.col(DELETED), F.col(_GIVEN) == 0)
    return counted.where(_else_fail(stays)).drop(_GIVEN, DELETED)


def checked(placed: DataFrame, key: Sequence[str]) -> DataFrame:
    """Give the rows of an update, as they are.

    Args:
        placed: the rows, with `DELETED`.
        key: the key columns.
    """
    from pyspark.sql import functions as F

    counted = placed.withColumn(_GIVEN, _given(key))
    return counted.withColumn(DELETED, _else_fail(F.col(DELETED))).drop(_GIVEN)


def as_one_run(placed: DataFrame, key: Sequence[str], number: int) -> DataFrame:
    """Give runs and an update as one run: of each key the newest row, which may say that it is deleted.

    Args:
        placed: the rows of the runs, and those of the update, which have no value in `NUMBER`.
        key: the key columns.
        number: of the run that they become.
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
