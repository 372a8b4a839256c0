"""Appends a day of the flights to an own table and to three of other formats; an argument has the driver die then."""

import os
import signal
import sys

from pyspark.sql import functions as F

from airflow_cairn import Epoch

flights, what = sys.argv[1:]
with Epoch.current() as epoch:
    first, after = epoch.slice.dates("UTC")
    known = F.col("delay").isNotNull() & F.col("origin").isNotNull() & F.col("destination").isNotNull()
    in_day = (F.col("date") >= F.lit(first).cast("timestamp_ntz")) & (
        F.col("date") < F.lit(after).cast("timestamp_ntz")
    )
    day = epoch.spark.read.parquet(flights).where(in_day & known).select("date", "delay", "origin", "destination")
    for table in ("iceberg", "delta", "postgres"):
        epoch.table(table).append(day)
    epoch.append("days", day)
    if what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
