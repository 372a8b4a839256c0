"""States in many row groups, and what of them Spark reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData
    from pyspark.sql import DataFrame, SparkSession

_BLOCK = "parquet.block.size"
_CHECKED = ("parquet.block.size.row.check.min", "parquet.page.size.row.check.min")


@contextmanager
def small(spark: SparkSession, *, rows: int = 100) -> Iterator[None]:
    """Write row groups of 32 KiB for a while.

    Args:
        spark: the session.
        rows: after how many Parquet looks at the size first.
    """
    hadoop: Any = spark._jsc
    for name, value in {_BLOCK: 32 * 1024, **dict.fromkeys(_CHECKED, rows)}.items():
        hadoop.hadoopConfiguration().setInt(name, value)
    try:
        yield
    finally:
        for name in (_BLOCK, *_CHECKED):
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
    """Give how many rows Spark's scans of files handed on, before any filter, when the frame was collected.

    Where it has joins, the session may not be adaptive: the plan that ran is then another one.
    """
    executed: Any = frame._jdf.queryExecution()
    plan = executed.executedPlan().collectLeaves()
    leaves = [plan.apply(n) for n in range(plan.length())]
    scans = [each for each in leaves if each.nodeName().startswith("Scan parquet")]
    assert scans, [each.nodeName() for each in leaves]
    return sum(each.metrics().apply("numOutputRows").value() for each in scans)
