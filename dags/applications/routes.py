"""Keeps, for each origin and destination, how many flights there were, how late, and the histogram of their delays.

A day's counts are partial aggregates: an epoch adds its own and reads nothing of what is there.

By hand, without Airflow: `python routes.py --local --input clean=flights.parquet`.
"""

from __future__ import annotations

import sys

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_cairn import Epoch

KEY = ["origin", "destination"]
MERGE = {"flights": "sum", "delay_sum": "sum", "delay_histogram": "each(sum)"}
BUCKET_MINUTES = 10
FIRST_BUCKET_MINUTES = -60
BUCKETS = 36
"""Ten-minute buckets from -60 to +300; the outer two take everything beyond. Any percentile can be read off them."""


def bucket(delay: Column) -> Column:
    """Give the 0-based bucket of a delay in minutes."""
    raw = F.floor((delay - FIRST_BUCKET_MINUTES) / BUCKET_MINUTES)
    return F.least(F.greatest(raw, F.lit(0)), F.lit(BUCKETS - 1))


def count_routes(flights: DataFrame) -> DataFrame:
    """Aggregate flights into one row a route."""
    delay = F.col("delay")
    return flights.groupBy(*KEY).agg(
        F.count("*").alias("flights"),
        F.sum("delay").alias("delay_sum"),
        F.array(*[F.count_if(bucket(delay) == number) for number in range(BUCKETS)]).alias("delay_histogram"),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--local"]:
        from airflow_cairn.testing import run_by_hand  # here: a cluster does not have it

        sys.exit(run_by_hand(__file__, *sys.argv[2:]))

    with Epoch.current() as epoch:
        epoch.aggregate("totals", count_routes(epoch.read("clean")), key=KEY, merge=MERGE)
