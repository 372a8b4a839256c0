"""Merges of a keyed state: its partial aggregates, and an update with the stored rows (semantics K1, K5).

A merge of partials is commutative and associative, so they may come in any order and be merged in any groups: an epoch
writes its partials and never reads the existing ones. Integers and decimals are exact, and a result that does not fit
its column is an error of the merge. The last digits of floating-point sums depend on the order.

When the rows of a key are written, they are in one partition, side by side. So the write counts the rows of each key in
an update, and fails if a key has more than one: otherwise chance would decide which of the rows counts. Nothing is read
back, and the check needs no shuffle and no sort beyond those of the write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import StateHandle
from ...checkpoint.errors import InvalidConfigError, InvalidStateError
from ...storage.records import dataclass
from . import deltas, key_groups
from .deltas import DELETED, NUMBER, number_of
from .key_groups import KEY, OWN, quoted, renamed, without_order

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType


# Merges of arrays, element by element: a histogram adds up bucket by bucket (semantics K1, K5). The first elements of
# all partials are merged, then the second ones, and so on. A shorter array counts as if nulls followed its end, and
# nulls are left out, as in every merge.


_EACH = re.compile(r"\Aeach\((\w+)\)\Z")
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""Bits of each integer type."""
ELEMENT_TYPES: dict[str, tuple[str, ...]] = {
    "sum": (*BITS, "float", "double"),
    "min": (*BITS, "decimal", "float", "double", "string", "date", "timestamp", "timestamp_ntz"),
    "max": (*BITS, "decimal", "float", "double", "string", "date", "timestamp", "timestamp_ntz"),
    "bool_and": ("boolean",),
    "bool_or": ("boolean",),
    "bit_and": tuple(BITS),
    "bit_or": tuple(BITS),
    "bit_xor": tuple(BITS),
}
"""The element types that each merge of elements takes. No sums of decimals: Spark rounds while it adds."""
EXACT = "decimal(38,0)"
"""The type for computing sums of integers: no possible number of rows overflows it."""


def element_merge(how: str) -> str | None:
    """Return the merge of the elements that `each(…)` names; None for another merge."""
    found = _EACH.match(how)
    return found[1] if found is not None and found[1] in ELEMENT_TYPES else None


def merged_arrays(column: Column, name: str, element: DataType, how: str) -> Column:
    """Build the aggregate that merges arrays element by element; null if all are null.

    The arrays of one key are collected before they are merged, so those of one key must fit into memory.

    `how` is a merge of `TYPES` that takes the elements' type.
    """
    from pyspark.sql import functions as F

    kind = element.simpleString()
    is_exact = how == "sum" and element.typeName() in BITS
    work = f"array<{EXACT if is_exact else kind}>"
    pair = _pairs()[how]

    def one(left: Column, right: Column) -> Column:
        return F.coalesce(pair(left, right).cast(EXACT if is_exact else kind), left, right)

    gathered = F.collect_list(column)
    total = F.aggregate(gathered, F.array().cast(work), lambda before, array: F.zip_with(before, array.cast(work), one))
    if is_exact:
        error = does_not_fit(name, f"array<{kind}>")
        total = F.transform(total, lambda value: fitted(value, element, error))
    # Most keys of a state are in none of an epoch's partials: their arrays are taken as they are.
    return F.when(F.size(gathered) == 1, gathered[0]).when(F.size(gathered) > 1, total)


def does_not_fit(name: str, kind: str) -> Column:
    """Build the error for a sum that does not fit a column of this name and type."""
    from pyspark.sql import functions as F

    return F.raise_error(F.lit(f"the sum of the column {name} no longer fits its type {kind}"))


def fitted(total: Column, kind: DataType, error: Column) -> Column:
    """Cast an exact total to its integer type, or fail with the error if it does not fit."""
    from pyspark.sql import functions as F

    most = 2 ** (BITS[kind.typeName()] - 1)
    fits = total.isNull() | total.between(F.lit(f"{-most}").cast(EXACT), F.lit(f"{most - 1}").cast(EXACT))
    return F.when(fits, total.cast(kind)).otherwise(error.cast(kind))


def _pairs() -> dict[str, Callable[[Column, Column], Column]]:
    """Return how each merge combines two elements, neither of them null."""
    from pyspark.sql import functions as F

    return {
        "sum": lambda left, right: left + right,
        "min": F.least,
        "max": F.greatest,
        "bool_and": lambda left, right: left & right,
        "bool_or": lambda left, right: left | right,
        "bit_and": lambda left, right: left.bitwiseAND(right),
        "bit_or": lambda left, right: left.bitwiseOR(right),
        "bit_xor": lambda left, right: left.bitwiseXOR(right),
    }


_NUMBERS = (*BITS, "decimal", "float", "double")
_TYPES: dict[str, tuple[str, ...]] = {
    "sum": _NUMBERS,
    "count": tuple(BITS),
    "min": (),
    "max": (),
    "bool_and": ("boolean",),
    "bool_or": ("boolean",),
    "bit_and": tuple(BITS),
    "bit_or": tuple(BITS),
    "bit_xor": tuple(BITS),
    "hll_union": ("binary",),
    "theta_union": ("binary",),
    "kll_merge_bigint": ("binary",),
    "kll_merge_float": ("binary",),
    "kll_merge_double": ("binary",),
}
"""The types that each merge takes; empty: all types with an order."""
_SKETCHES = {
    "hll_union": "hll_union_agg",
    "theta_union": "theta_union_agg",
    "kll_merge_bigint": "kll_merge_agg_bigint",
    "kll_merge_float": "kll_merge_agg_float",
    "kll_merge_double": "kll_merge_agg_double",
}
_BY = re.compile(r"\A(first_by|last_by)\((.+)\)\Z", re.DOTALL)
_ROOMY_DIGITS = 18
_TIMED = {"first_by": "min", "last_by": "max"}
"""For merges that follow another column: the merge of that other column."""


def check(name: str, schema: StructType, key: Sequence[str], merge: Mapping[str, str]) -> None:
    """Check that each column of a state has a merge that takes its type, and that no key column has one.

    Raises:
        InvalidStateError: a column has no merge, or one that is unknown or does not take it; or a merge names no
            column.
    """
    values = [column for column in schema.names if column not in key]
    if sorted(values) != sorted(merge):
        raise InvalidStateError(
            f"state.{name} needs a merge for each column that is not in its key, and for no other",
            columns=", ".join(values) or "none",
            merge=listed(merge),
        )
    for column, how in merge.items():
        _check_one(name, column, how, schema[column].dataType, merge)


def _check_one(name: str, column: str, how: str, kind: DataType, merge: Mapping[str, str]) -> None:
    from pyspark.sql import functions as F

    by = _BY.match(how) if isinstance(how, str) else None
    if by is not None:
        if merge.get(by[2]) != _TIMED[by[1]]:
            raise InvalidStateError(
                f"the merge {how!r} of the column {column!r} of state.{name} needs the column {by[2]!r} "
                f"to be merged by {_TIMED[by[1]]!r}: only then it is known from which row the value is",
                merge=listed(merge),
            )
        return
    each = element_merge(how) if isinstance(how, str) else None
    if each is None and how not in _TYPES:
        raise InvalidStateError(
            f"there is no merge {how!r}, which is given for the column {column!r} of state.{name}",
            merges=", ".join((*_TYPES, "first_by(…)", "last_by(…)", *(f"each({one})" for one in ELEMENT_TYPES))),
        )
    takes, found = (ELEMENT_TYPES[each], _element_of(kind)) if each else (_TYPES[how], kind.typeName())
    if (takes and found not in takes) or (not takes and without_order(kind)):
        raise InvalidStateError(
            f"the merge {how!r} does not take the column {column!r} of state.{name}",
            type=kind.simpleString(),
            takes=("arrays of " if each else "") + (", ".join(takes) or "what can be ordered"),
        )
    if how in _SKETCHES and not hasattr(F, _SKETCHES[how]):
        raise InvalidConfigError(f"the merge {how!r} needs {_SKETCHES[how]}, which this version of Spark does not have")


def _element_of(kind: DataType) -> str:
    """Return the type of an array's elements; empty for any other type."""
    from pyspark.sql.types import ArrayType

    return kind.elementType.typeName() if isinstance(kind, ArrayType) else ""


def merged(
    df: DataFrame, schema: StructType, key: Sequence[str], merge: Mapping[str, str], beside: Sequence[str] = ()
) -> DataFrame:
    """Merge rows into one for each key, with the columns in `beside`, which follow from the key."""
    from pyspark.sql import functions as F

    names = {column: f"{KEY}{index}" for index, column in enumerate(key)}
    names |= {column: f"{OWN}value_{index}" for index, column in enumerate(merge)}
    values = [_value(schema[column].dataType, column, how).alias(names[column]) for column, how in merge.items()]
    found = df.groupBy(*beside, *renamed(key)).agg(*values)
    return found.select(*(F.col(names[column]).alias(column) for column in schema.names), *beside)


def _value(kind: DataType, column: str, how: str) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    col = F.col(quoted(column))
    by = _BY.match(how)
    if by is not None:
        order = F.col(quoted(by[2]))
        return (F.min_by if by[1] == "first_by" else F.max_by)(col, order)
    if how in ("sum", "count"):
        return _sum(kind, column)
    each = element_merge(how)
    if each is not None:
        assert isinstance(kind, ArrayType), "the merge has been checked"
        return merged_arrays(col, column, kind.elementType, each)
    if how == "hll_union":
        return F.hll_union_agg(col, F.lit(True))
    named: Callable[[Column], Column] = getattr(F, _SKETCHES.get(how, how))
    return named(col)


def _sum(kind: DataType, column: str) -> Column:
    """Sum exactly; a result that does not fit the column is an error, even if the session's arithmetic would wrap."""
    from pyspark.sql import functions as F

    col, found = F.col(quoted(column)), kind.typeName()
    if found in ("float", "double"):
        return F.sum(col).cast(kind)
    error = does_not_fit(column, kind.simpleString())
    if found in BITS:
        return fitted(F.sum(col.cast(EXACT)), kind, error)
    # In SQL, since Spark 3.5 has no `Column.try_cast`.
    total = F.expr(f"try_cast(sum({quoted(column)}) AS {kind.simpleString()})")
    return F.when(total.isNotNull() | (F.count(col) == 0), total).otherwise(error.cast(kind))


def needs_the_base(schema: StructType, merge: Mapping[str, str]) -> bool:
    """Tell whether a sum may overflow its column in some epochs' partials, and fit once the base is added.

    64 bits, and decimals of 18 digits, leave so much room that only sums near their bounds could.
    """
    from pyspark.sql.types import ArrayType, DecimalType

    for column, how in merge.items():
        kind = schema[column].dataType
        if element_merge(how) == "sum" and isinstance(kind, ArrayType):
            kind = kind.elementType
        elif how not in ("sum", "count"):
            continue
        if isinstance(kind, DecimalType):
            if kind.precision < _ROOMY_DIGITS:
                return True
        elif kind.typeName() in BITS and kind.typeName() != "long":
            return True
    return False


def listed(merge: Mapping[str, str]) -> str:
    """Format merges for an error message."""
    return ", ".join(f"{column}: {how}" for column, how in sorted(merge.items())) or "none"


WHOLE_BYTES = 1 << 20
"""A state of up to this many bytes is rewritten by each epoch that changes it: a delta would cost more."""

_TWICE = "cairn: a key is more than once in one update"
"""Spark's error message; `is_duplicate_key_error` looks for it."""
_FAIL = f"CAST(raise_error('{_TWICE}') AS BOOLEAN)"
_PLACE = "_cairn_place"
"""The place of a row among those of its key, the newest first."""
_RANK = "_cairn_rank"
"""The rank of a row among those of its key; rows of one delta, or of the base, share a rank."""


def is_small(handles: Sequence[StateHandle]) -> bool:
    """Tell whether a change rewrites the state (semantics K3)."""
    return sum(handle.size_bytes for handle in handles) <= WHOLE_BYTES


@dataclass(frozen=True, slots=True)
class Newest:
    """Makes a delta or a base of placed rows, with the check that an update has each key once.

    The methods make few DataFrames, because Spark's driver analyses the whole plan for each, and use SQL, because each
    part of a Column is several calls from Python to the JVM. In a small epoch both take longer than the rows.

    `number` is that of the delta that an epoch writes, or would write.
    """

    key: Sequence[str]
    columns: Sequence[str]
    number: int

    def rows_of(self, stored: DataFrame | None, changed: DataFrame | None, deletes: DataFrame | None) -> DataFrame:
        """Unite the rows of a state and of an update, with `DELETED` and `NUMBER`.

        The two are null in the base's rows; `changed` and `deletes` are as for `deltas.rows_of`.
        """
        rows, deleted = deltas.rows_of(changed, deletes)
        own = [f"{deleted} AS {DELETED}"] if deleted != DELETED else []
        rows = rows.selectExpr("*", *own, f"{number_of(self.number)} AS {NUMBER}")
        return rows if stored is None else stored.unionByName(rows, allowMissingColumns=True)

    def as_delta(self, placed: DataFrame, deleted: str) -> DataFrame:
        """Make a delta of the rows of an update alone; `deleted` is the value of `DELETED`."""
        given = f"count(1) OVER {key_groups.of_key(self.key)}"
        checked = f"CASE WHEN {given} > 1 THEN {_FAIL} ELSE {deleted} END AS {DELETED}"
        return self._with(placed, checked, f"{number_of(self.number)} AS {NUMBER}")

    def as_one_delta(self, placed: DataFrame) -> DataFrame:
        """Merge `rows_of` deltas and an update into one delta: the newest rows of each key, deleted keys too."""
        return self._with(self._newest(placed, "true"), DELETED, f"{number_of(self.number)} AS {NUMBER}")

    def as_base(self, placed: DataFrame) -> DataFrame:
        """Merge `rows_of` a state and an update into a base: the newest rows of each key that is not deleted."""
        return self._with(self._newest(placed, f"NOT coalesce({DELETED}, false)"))

    def _newest(self, placed: DataFrame, stays: str) -> DataFrame:
        of_key = key_groups.of_key(self.key, f"{NUMBER} DESC NULLS LAST")
        # A snapshot may have given a key several rows, which all stay: they have one rank.
        places = f"rank() OVER {of_key} AS {_RANK}", f"row_number() OVER {of_key} AS {_PLACE}"
        twice = f"{NUMBER} = {number_of(self.number)} AND {_PLACE} > 1"
        # One condition: of two, Spark might evaluate the check second, for fewer rows.
        counts = f"CASE WHEN {twice} THEN {_FAIL} WHEN {_RANK} = 1 THEN {stays} ELSE false END"
        return placed.selectExpr("*", *places).where(counts)

    def _with(self, df: DataFrame, *own: str) -> DataFrame:
        return df.selectExpr(*map(quoted, self.columns), *own, key_groups.COLUMN)


def is_duplicate_key_error(error: Exception) -> bool:
    """Tell whether Spark failed because an update has a key more than once."""
    return _TWICE in str(error)
