"""Sums an event an hour into windows of six hours; those that are not over stay in the state until they are.

A window is over when the epoch's input has come to its end, or when the job drains (semantics P2): then all are.
windows.py GATES FIRST LAST: the hours since 1970 of the first event, and of the one after the last. It can be held as
`counting.py` can, at the point of its stage's name.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime

from counting import stop_at  # type: ignore[import-not-found]  # Spark finds it in this folder
from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch

HOURS = 6


def hour_of(moment: str | None, otherwise: int) -> int:
    """Give the hour since 1970 in which a slice starts or ends."""
    return otherwise if moment is None else int(datetime.fromisoformat(moment).timestamp()) // 3600


if __name__ == "__main__":
    first, last = map(int, sys.argv[2:])
    with Epoch.current() as epoch:
        stop_at(sys.argv[1], f"{epoch.job}/{epoch.run_id}/{epoch.attempt}/{epoch.stage}", os.getpid())
        start, end = hour_of(epoch.slice.start, first), hour_of(epoch.slice.end, last)
        hours = epoch.spark.range(max(start, first), max(start, min(end, last)), numPartitions=1)
        new = hours.select((F.col("id") - F.col("id") % HOURS).alias("window"), (F.col("id") % 11).alias("amount"))
        open_before, emitted_before = epoch.state("open"), epoch.state("emitted")
        rows = new if open_before is None else new.union(open_before)
        windows = rows.groupBy("window").agg(F.sum("amount").alias("amount")).cache()
        is_over = F.lit(epoch.draining) | (F.col("window") + HOURS <= end)
        over = windows.where(is_over).withColumn("by", F.lit(epoch.run_id))
        epoch.snapshot("open", windows.where(~is_over), key="window")
        # Every row that was ever let out: one that was let out twice stands here twice.
        epoch.snapshot("emitted", over if emitted_before is None else over.union(emitted_before), key="window")
        epoch.put("drained", epoch.draining)
