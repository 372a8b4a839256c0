"""Keeps, for each airport, how many flights left it and how many came in.

An epoch reads the airports that its flights touch, and writes those; the others stay where they are.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cairn import Epoch

KEY = ["airport"]


def count_airports(flights: DataFrame) -> DataFrame:
    """Aggregate flights into one row an airport."""
    left = flights.select(F.col("origin").alias("airport"), F.lit(1).alias("departures"), F.lit(0).alias("arrivals"))
    came = flights.select(F.col("destination").alias("airport"), F.lit(0), F.lit(1))
    return add(left.union(came))


def add(counts: DataFrame) -> DataFrame:
    """Sum rows of the same airport."""
    return counts.groupBy(*KEY).agg(F.sum("departures").alias("departures"), F.sum("arrivals").alias("arrivals"))


if __name__ == "__main__":
    with Epoch.current() as epoch:
        today = count_airports(epoch.read("clean"))
        before = epoch.state("traffic", keys=today)
        epoch.update("traffic", today if before is None else add(before.unionByName(today)), key=KEY)
