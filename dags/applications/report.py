"""Appends a day to the league table: airports by traffic so far, with the mean delay of what left them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cairn import Epoch


def league(routes: DataFrame, airports: DataFrame) -> DataFrame:
    """Join both states into one row an airport."""
    delays = routes.groupBy(F.col("origin").alias("airport")).agg(
        (F.sum("delay_sum") / F.sum("flights")).alias("mean_departure_delay")
    )
    return (
        airports.join(delays, "airport", "left")
        .select(
            "airport",
            (F.col("departures") + F.col("arrivals")).alias("flights"),
            "departures",
            "arrivals",
            F.round("mean_departure_delay", 2).alias("mean_departure_delay"),
        )
        .orderBy(F.desc("flights"), "airport")
    )


if __name__ == "__main__":
    with Epoch.current() as epoch:
        standing = league(epoch.read("routes", "totals"), epoch.read("airports", "traffic"))
        day, _ = epoch.slice.dates("UTC")  # the time zone of the DAG's schedule
        epoch.append("league", standing.withColumn("day", F.lit(day).cast("date")))
        epoch.put("days", epoch.get("days", 0) + 1)
