"""The application whose driver writes the archive of classes: it reads and writes as the tests' applications do.

first_driver.py FOLDER: where it writes.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    rows = spark.range(1000, numPartitions=2).select("id", (F.col("id") % 10).alias("key"))
    rows.write.parquet(sys.argv[1])
    read = spark.read.parquet(sys.argv[1])
    counted = read.union(read).groupBy("key").agg(F.count("*").alias("rows"), F.sum("id").alias("sum"))
    counted.repartition(2, "key").sortWithinPartitions("key").write.parquet(f"{sys.argv[1]}-counted")
    counted.collect()
