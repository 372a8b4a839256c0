"""The partitions of a table that grows: each file holds rows of one partition (`Epoch.append`).

The partition columns stay in the files, so a reader needs only the files. While Spark writes, an extra column names the
partition. Its text becomes the name of a folder, from which each file's partition is read; names are only compared.

A stranger may choose the values, so a name ends in 128 bits of SHA-256: two values with one name cannot be made. Older
names end in 64 bits of a reversible hash, so a file with such a name may hold rows of several values. Such a file is
found by its name, and the values decide what becomes of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidStateError
from .key_groups import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMN = "cairn_partition"
"""Exists only while the rows are written; the folders' names begin with it."""

_TYPES = ("string", "boolean", "date", "tinyint", "smallint", "int", "bigint")
_FOLDER = re.compile(rf"(?:\A|/){COLUMN}=([^/]+)/")
_READABLE, _HASH = 24, 32
"""Longest readable part of a name in characters, and the number of hex digits of the values' SHA-256."""
_OLDER_READABLE, _OLDER_HASH = 40, 16
"""The same for an older name, with an xxHash64 without leading zeros; either name has at most 57 characters."""


def check(output_id: str, df: DataFrame, columns: Sequence[str]) -> None:
    """Check a table's partition columns.

    Raises:
        InvalidStateError: a column is missing, is named twice, or has a type without exact text.
    """
    if COLUMN.lower() in {column.lower() for column in df.columns}:
        raise InvalidStateError(
            f"no column of {output_id} may be called {COLUMN!r}; Cairn uses that name. Rename it", output=output_id
        )
    for column in columns:
        if column not in df.columns or columns.count(column) > 1:
            problem = "is named twice" if column in df.columns else "is not in the DataFrame"
            raise InvalidStateError(
                f"the partition column {column!r} of {output_id} {problem}", columns=", ".join(df.columns)
            )
        found = df.schema[column].dataType.simpleString()
        if found not in _TYPES:
            raise InvalidStateError(
                f"{output_id} cannot be partitioned by {column!r}, whose type is {found}. Partition by a text, a date, "
                "a whole number or a boolean",
                expected=", ".join(_TYPES),
            )


def told_apart(df: DataFrame, values: Sequence[Column]) -> DataFrame:
    """Add the name of each row's partition: readable values, and a hash of them.

    Args:
        df: the rows.
        values: those of a row that its partition has, as texts.
    """
    from pyspark.sql import functions

    # The length precedes each text, and a null has none, so different values never make one text.
    marked = [
        functions.coalesce(
            functions.concat(functions.octet_length(text).cast("string"), functions.lit(":"), text), functions.lit("-")
        )
        for text in values
    ]
    digest = functions.upper(functions.sha2(functions.concat(*marked).cast("binary"), 256))
    return df.withColumn(COLUMN, _name(values, _READABLE, functions.substring(digest, 1, _HASH)))


def older_names(df: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the older partition names of these rows, as the only column."""
    from pyspark.sql import functions

    # This hash skips nulls, so a flag for null is hashed with each text.
    values = texts(columns)
    marked = [part for text in values for part in (text.isNull(), text)]
    hashed = functions.hex(functions.xxhash64(*marked))
    return df.select(_name(values, _OLDER_READABLE, hashed).alias(COLUMN)).distinct()


def is_older(name: str) -> bool:
    """Tell whether a file of this partition may also hold rows of others."""
    return 0 < len(name.rpartition("-")[2]) <= _OLDER_HASH


def texts(columns: Sequence[str]) -> list[Column]:
    """Give the values of columns as texts."""
    from pyspark.sql import functions

    return [functions.col(quoted(each)).cast("string") for each in columns]


def _name(values: Sequence[Column], readable: int, hashed: Column) -> Column:
    from pyspark.sql import functions

    shown = functions.concat_ws(".", *(functions.coalesce(each, functions.lit("null")) for each in values))
    plain = functions.substring(functions.regexp_replace(shown, "[^A-Za-z0-9_.-]", "_"), 1, readable)
    return functions.concat(plain, functions.lit("-"), hashed)


def partition_of(path: str) -> str:
    """Return the partition of a file written by `told_apart`; empty if it has none."""
    found = _FOLDER.search(path)
    return found[1] if found else ""
