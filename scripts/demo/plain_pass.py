"""One plain Spark pass over the same input: no epochs, no state, no Cairn. What the pipeline's state must equal.

Run by `spark-submit`: plain_pass.py INPUT FIRST_DAY END_DAY TARGET. Days are ISO dates, the end is not included.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

source, first, end, target = sys.argv[1:]
spark = SparkSession.builder.appName("plain pass").getOrCreate()
flights = spark.read.parquet(source).where(
    (F.col("date") >= F.lit(first).cast("timestamp_ntz"))
    & (F.col("date") < F.lit(end).cast("timestamp_ntz"))
    & F.col("delay").isNotNull()
    & F.col("origin").isNotNull()
    & F.col("destination").isNotNull()
)
# Written another way than in the pipeline on purpose: a mistake made twice would compare as equal.
bucketed = flights.withColumn(
    "bucket",
    F.when(F.col("delay") < -60, 0).when(F.col("delay") >= 300, 35).otherwise(F.floor((F.col("delay") + 60) / 10)),
)
(
    bucketed.groupBy("origin", "destination")
    .pivot("bucket", list(range(36)))
    .agg(F.count(F.lit(1)))
    .na.fill(0)
    .select("origin", "destination", F.array(*[F.col(f"`{number}`") for number in range(36)]).alias("delay_histogram"))
    .join(
        flights.groupBy("origin", "destination").agg(F.count("*").alias("flights"), F.sum("delay").alias("delay_sum")),
        ["origin", "destination"],
    )
    .write.parquet(f"{target}/totals")
)
departures = flights.groupBy(F.col("origin").alias("airport")).agg(F.count("*").alias("departures"))
arrivals = flights.groupBy(F.col("destination").alias("airport")).agg(F.count("*").alias("arrivals"))
departures.join(arrivals, "airport", "full_outer").na.fill(0).write.parquet(f"{target}/traffic")
spark.stop()
