"""States in many row groups, and what of them Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame, SparkSession

_SMALL = {
    "parquet.block.size": 32 * 1024,
    "parquet.block.size.row.check.min": 100,
    "parquet.page.size.row.check.min": 100,
}


@contextmanager
def small(spark: SparkSession) -> Iterator[None]:
    """Write row groups of 32 KiB for a while."""
    hadoop: Any = spark._jsc
    for name, value in _SMALL.items():
        hadoop.hadoopConfiguration().setInt(name, value)
    try:
        yield
    finally:
        for name in _SMALL:
            hadoop.hadoopConfiguration().unset(name)


def rows_at_most(footers: Sequence[FileMetaData], column: int, wanted: range) -> int:
    """Give how many rows the row groups have that may hold one of these values, by their statistics.

    Args:
        footers: of the files.
        column: its 0-based index.
        wanted: the values.
    """
    found = 0
    for footer in footers:
        for each in (footer.row_group(number) for number in range(footer.num_row_groups)):
            statistics: Any = each.column(column).statistics
            if statistics.min <= wanted[-1] and statistics.max >= wanted[0]:
                found += each.num_rows
    return found


def scanned(frame: DataFrame) -> int:
    """Give how many rows Spark's scan handed on, before any filter, when the frame was collected."""
    executed: Any = frame._jdf.queryExecution()
    leaves = executed.executedPlan().collectLeaves()
    return sum(leaves.apply(n).metrics().apply("numOutputRows").value() for n in range(leaves.length()))
