"""Checks of the DataFrames that an application writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...checkpoint.errors import InvalidStateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def names_of(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Return column names as a tuple; an author may give a single name."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def columns_of(output_id: str, df: DataFrame, key: str | Sequence[str]) -> tuple[str, ...]:
    """Check a DataFrame to be written, and return its key columns.

    Raises:
        InvalidStateError: `df` is no DataFrame, or lacks a key column.
    """
    from pyspark.sql import DataFrame

    if not isinstance(df, DataFrame):
        raise InvalidStateError(
            f"{output_id} must be a Spark DataFrame and is a {type(df).__name__}. Make one with spark.createDataFrame",
        )
    columns = names_of(key)
    for column in columns:
        if column not in df.columns:
            raise InvalidStateError(
                f"the key column {column!r} is not in the DataFrame of {output_id}", columns=", ".join(df.columns)
            )
    return columns
