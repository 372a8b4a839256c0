"""Reads the epoch's slice of the flights, drops what cannot be counted, and hands the rest to the stages after it."""

from __future__ import annotations

import sys
from datetime import datetime

from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch


def local(moment: str | None) -> datetime:
    """Turn a bound of the slice into the input's own kind of time: local, without a zone."""
    if moment is None:
        raise ValueError("this run has no data interval; run the DAG on its schedule or give the run a logical date")
    return datetime.fromisoformat(moment).replace(tzinfo=None)


with Epoch.current() as epoch:
    start, end = local(epoch.slice.start), local(epoch.slice.end)
    flights = epoch.spark.read.parquet(sys.argv[1])
    day = flights.where(
        (F.col("date") >= F.lit(start).cast("timestamp_ntz")) & (F.col("date") < F.lit(end).cast("timestamp_ntz"))
    )
    epoch.write(
        day.where(F.col("delay").isNotNull() & F.col("origin").isNotNull() & F.col("destination").isNotNull()).select(
            "date", "delay", "origin", "destination"
        )
    )
