"""The columns of a table that grows: what is appended may add columns and widen types, and nothing else.

Older files are never rewritten for it. Spark reads a column that a file lacks as null, and a narrower type as the
wider one; only what it reads so without loss is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidStateError
from ..stored.key_groups import quoted
from ..stored.outputs import same_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_WHOLE = ("tinyint", "smallint", "int", "bigint")
"""Types of whole numbers, each wider than the one before."""

READS_NARROWER = 4
"""The first Spark that reads a file whose type is narrower than the table's."""

_DECIMAL = 38
"""Digits of Spark's widest decimal."""


def grown(output_id: str, before: StructType, df: DataFrame) -> DataFrame:
    """Give what is to be appended with the table's columns and types: first those that are there, then the new ones.

    Args:
        output_id: the table's.
        before: its columns so far.
        df: what to append.

    Raises:
        InvalidStateError: a column is missing, differs in case only, or has a type that is neither the same nor wider
            nor narrower.
    """
    new = df.schema
    reads_narrower = int(df.sparkSession.version.partition(".")[0]) >= READS_NARROWER
    problems = []
    columns = []
    for field in before.fields:
        if field.name not in new.names:
            problems.append(f"the column {field.name!r} is missing")
            continue
        found = new[field.name].dataType
        wider = _wider(field.dataType, found)
        if wider is None:
            problems.append(f"the column {field.name!r} is of the type {found.simpleString()}")
        elif not reads_narrower and not same_type(wider, field.dataType):
            problems.append(
                f"the column {field.name!r} is of the wider type {found.simpleString()}, as which Spark "
                f"{df.sparkSession.version} cannot read the table's files; Spark {READS_NARROWER} can"
            )
        else:
            column = df[quoted(field.name)]
            columns.append(column if wider == found else column.cast(wider).alias(field.name))
    there = {name.lower() for name in before.names}
    for name in new.names:
        if name in before.names:
            continue
        if name.lower() in there:
            problems.append(f"the column {name!r} differs in case only")
        columns.append(df[quoted(name)])
    if problems:
        raise InvalidStateError(
            f"this cannot be appended to {output_id}: {'; '.join(problems)}. A table that grows takes new columns and "
            "wider types. Cast or add the column, or publish the table anew",
            table=before.simpleString(),
            appended=new.simpleString(),
        )
    return df.select(*columns)


def _wider(before: DataType, new: DataType) -> DataType | None:
    """Give the type that holds both; None where there is none that old files can be read as."""
    from pyspark.sql.types import DecimalType

    if same_type(before, new):
        return new  # they may differ in what may be null inside: Spark reads that from files, and casts it only one way
    names = before.simpleString(), new.simpleString()
    if isinstance(before, DecimalType) and isinstance(new, DecimalType):
        scale = max(before.scale, new.scale)
        precision = max(before.precision - before.scale, new.precision - new.scale) + scale
        return DecimalType(precision, scale) if precision <= _DECIMAL else None
    if set(names) == {"float", "double"}:
        return before if names[0] == "double" else new
    if all(name in _WHOLE for name in names):
        return before if _WHOLE.index(names[0]) > _WHOLE.index(names[1]) else new
    return None
