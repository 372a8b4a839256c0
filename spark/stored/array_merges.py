"""Merges of arrays, element by element: a histogram adds up bucket by bucket (semantics K1, K5).

The first elements of all partials are merged, then the second ones, and so on. An array that is shorter than another
counts as if nulls were behind its end, and a null is left out, as in every merge.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_EACH = re.compile(r"\Aeach\((\w+)\)\Z")
BITS = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""By type of integers, how many bits it has."""
TYPES: dict[str, tuple[str, ...]] = {
    "sum": (*BITS, "float", "double"),
    "min": (*BITS, "decimal", "float", "double", "string", "date", "timestamp", "timestamp_ntz"),
    "max": (*BITS, "decimal", "float", "double", "string", "date", "timestamp", "timestamp_ntz"),
    "bool_and": ("boolean",),
    "bool_or": ("boolean",),
    "bit_and": tuple(BITS),
    "bit_or": tuple(BITS),
    "bit_xor": tuple(BITS),
}
"""By merge of the elements, the types of elements that it takes. No sums of decimals: Spark rounds while it adds."""
EXACT = "decimal(38,0)"
"""The type in which sums of integers are computed: as many rows as there can be do not overflow it."""


def element_merge(how: str) -> str | None:
    """Give the merge of the elements that `each(…)` names; None if `how` is no such merge."""
    found = _EACH.match(how)
    return found[1] if found is not None and found[1] in TYPES else None


def merged_arrays(column: Column, name: str, element: DataType, how: str) -> Column:
    """Give the aggregate that merges arrays element by element; null if all are null.

    The arrays of one key are gathered before they are merged, so all that a key has must fit into memory.

    Args:
        column: the arrays.
        name: the column's, for an error.
        element: the type of its elements.
        how: a merge of `TYPES` that takes the type.
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
    # Most keys of a state are in none of an epoch's partials: what they have is taken as it is.
    return F.when(F.size(gathered) == 1, gathered[0]).when(F.size(gathered) > 1, total)


def does_not_fit(name: str, kind: str) -> Column:
    """Give the error of a sum that does not fit a column of this name and type."""
    from pyspark.sql import functions as F

    return F.raise_error(F.lit(f"the sum of the column {name} no longer fits its type {kind}"))


def fitted(total: Column, kind: DataType, error: Column) -> Column:
    """Give an exact total as the type of integers that it is to have, or the error where it does not fit."""
    from pyspark.sql import functions as F

    most = 2 ** (BITS[kind.typeName()] - 1)
    fits = total.isNull() | total.between(F.lit(f"{-most}").cast(EXACT), F.lit(f"{most - 1}").cast(EXACT))
    return F.when(fits, total.cast(kind)).otherwise(error.cast(kind))


def _pairs() -> dict[str, Callable[[Column, Column], Column]]:
    """Give how two elements become one, where neither is null."""
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
