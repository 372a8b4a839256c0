"""Reads the month's tables by the formats' own Spark readers; prints rows, and groups that differ from a plain pass."""

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

flights, storage, jdbc, own = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()


def groups(rows: DataFrame) -> DataFrame:
    """Count and sum, but for what the foreign writer has added."""
    known = F.col("delay").isNotNull() & F.col("origin").isNotNull() & F.col("destination").isNotNull()
    by = (F.to_date("date").alias("day"), "origin", "destination")
    return rows.where(known & (F.col("origin") != "XXX")).groupBy(*by).agg(F.count("*"), F.sum("delay"))


scope: dict[str, Any] = {"spark": spark, "storage": f"{storage}/cairn", "job": "flights", "name": "days"}
exec(own, scope)
tables = {
    "own": scope["daily"],
    "iceberg": spark.table("lake.flights.days"),
    "delta": spark.read.format("delta").load(f"{storage}/delta"),
    "postgres": spark.read.jdbc(jdbc, "flights", properties={"driver": "org.postgresql.Driver"}),
}
plain = groups(spark.read.parquet(flights)).cache()
found = {}
for name, rows in tables.items():
    there = groups(rows)
    found[name] = [rows.count(), there.exceptAll(plain).count() + plain.exceptAll(there).count()]
print("FOUND", json.dumps(found))
