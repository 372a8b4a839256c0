"""By which values the rows of a table that grows are kept apart: a file holds rows of one partition (`Epoch.append`).

The columns stay in the files, so a reader needs no more than the files. While Spark writes, one column more tells the
partitions apart: its text names a folder, and from there the partition that each file belongs to. It is only compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidStateError
from ..stored.key_groups import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN = "cairn_partition"
"""Only while the rows are written; its name begins the names of folders."""

_TYPES = ("string", "boolean", "date", "tinyint", "smallint", "int", "bigint")
_FOLDER = re.compile(rf"(?:\A|/){COLUMN}=([^/]+)/")
_READABLE = 40
"""Characters of the values that a folder's name shows."""


def check(output_id: str, df: DataFrame, columns: Sequence[str]) -> None:
    """Check by which columns a table is to be partitioned.

    Raises:
        InvalidStateError: there is no such column, it is named twice, or its type has no exact text.
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


def told_apart(df: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Give the rows with the text of their partition: readable values, and a hash that is theirs alone."""
    from pyspark.sql import functions

    texts = [functions.col(quoted(each)).cast("string") for each in columns]
    shown = functions.concat_ws(".", *(functions.coalesce(each, functions.lit("null")) for each in texts))
    plain = functions.substring(functions.regexp_replace(shown, "[^A-Za-z0-9_.-]", "_"), 1, _READABLE)
    # The hash passes over a null, so each text is hashed with whether it is one.
    marked = [part for each in texts for part in (each.isNull(), each)]
    return df.withColumn(
        COLUMN, functions.concat(plain, functions.lit("-"), functions.hex(functions.xxhash64(*marked)))
    )


def partition_of(path: str) -> str:
    """Give the partition of a file that was written by `told_apart`; empty where there is none."""
    found = _FOLDER.search(path)
    return found[1] if found else ""
