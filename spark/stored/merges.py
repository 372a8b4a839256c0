"""Merges: how the partial aggregates of a keyed state become one row for each key (semantics K1, K5).

A merge is commutative and associative, so partials may come in any order and be merged in any groups: an epoch writes
its own and never reads what is there. Integers and decimals are exact, and what no longer fits its column is an error
where it is merged; floating-point sums depend on the order in their last digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidConfigError, InvalidStateError
from .array_merges import BITS, EXACT, does_not_fit, element_merge, fitted, merged_arrays
from .array_merges import TYPES as ELEMENT_TYPES
from .key_groups import KEY, OWN, quoted, renamed, without_order

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

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
"""By merge, the types that it takes; none named: all that can be ordered."""
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
"""By the merge that follows another column, how that column itself is merged."""


def check(name: str, schema: StructType, key: Sequence[str], merge: Mapping[str, str]) -> None:
    """Check that each column of a state has a merge that takes its type, and the key columns none.

    Raises:
        InvalidStateError: a column has none, or one that is unknown or does not take it; or a merge names no column.
        InvalidConfigError: this version of Spark lacks the function of a sketch.
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
    """Give the type of an array's elements; nothing for what is no array."""
    from pyspark.sql.types import ArrayType

    return kind.elementType.typeName() if isinstance(kind, ArrayType) else ""


def merged(
    df: DataFrame, schema: StructType, key: Sequence[str], merge: Mapping[str, str], beside: Sequence[str] = ()
) -> DataFrame:
    """Give one row for each key.

    Args:
        df: base and partials, with the columns of the state.
        schema: of the state.
        key: its key columns.
        merge: how each other column is merged, at least one; checked.
        beside: columns that follow from the key and are kept.
    """
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
    """Sum exactly; what does not fit the column is an error, also where the session's arithmetic would wrap."""
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
    """Tell whether a sum may not fit its column in some epochs' partials, and fit once the base is added to them.

    64 bits, and decimals of 18 digits, leave so much room that only what is near their bounds could.

    Args:
        schema: of the state.
        merge: of its columns, checked.
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
    """Give merges as an error shows them."""
    return ", ".join(f"{column}: {how}" for column, how in sorted(merge.items())) or "none"
