"""Reads the epoch's slice of the flights, drops what cannot be counted, and hands the rest to the stages after it.

The tables that its arguments name get the same rows when the checkpoint completes.
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F

from airflow_cairn import Epoch

with Epoch.current() as epoch:
    # In the time zone of the DAG's schedule; the input's moments have none.
    first, after = epoch.slice.dates("UTC")
    flights = epoch.spark.read.parquet(sys.argv[1])
    day = flights.where(
        (F.col("date") >= F.lit(first).cast("timestamp_ntz")) & (F.col("date") < F.lit(after).cast("timestamp_ntz"))
    )
    known = F.col("delay").isNotNull() & F.col("origin").isNotNull() & F.col("destination").isNotNull()
    counted = day.where(known).select("date", "delay", "origin", "destination")
    for table in sys.argv[2:]:
        epoch.table(table).append(counted)
    epoch.write(counted)
