"""A small stage that leaves behind everything that a session can: a view, a cached table, a Python worker, a state."""

from __future__ import annotations

from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch

ROWS = 1_000

if __name__ == "__main__":
    with Epoch.current() as epoch:
        twice = F.udf(lambda number: 2 * number, "long")
        rows = epoch.spark.range(ROWS).select("id", twice("id").alias("twice"), F.lit(1).cast("long").alias("epochs"))
        rows.createOrReplaceTempView("rows")
        today, before = epoch.spark.table("rows").cache(), epoch.state("seen")
        both = today if before is None else before.select(*today.columns).union(today)
        epoch.snapshot("seen", both.groupBy("id", "twice").agg(F.sum("epochs").alias("epochs")), key=["id"])
