"""Keeps, for each origin and destination, how many flights there were, how late, and the histogram of their delays."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch

KEY = ["origin", "destination"]
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


def merge(before: DataFrame, today: DataFrame) -> DataFrame:
    """Add today's counts to those before; routes that only one side has are kept."""
    none = F.array_repeat(F.lit(0).cast("long"), BUCKETS)
    joined = before.alias("b").join(today.alias("t"), KEY, "full_outer")

    def both(name: str, default: Column) -> tuple[Column, Column]:
        return F.coalesce(F.col(f"b.{name}"), default), F.coalesce(F.col(f"t.{name}"), default)

    def total(name: str) -> Column:
        left, right = both(name, F.lit(0).cast("long"))
        return (left + right).alias(name)

    histogram = F.zip_with(*both("delay_histogram", none), lambda left, right: left + right)
    return joined.select(*KEY, total("flights"), total("delay_sum"), histogram.alias("delay_histogram"))


if __name__ == "__main__":
    with Epoch.current() as epoch:
        today = count_routes(epoch.read("clean"))
        before = epoch.state("totals")
        epoch.snapshot("totals", today if before is None else merge(before, today), key=KEY)
