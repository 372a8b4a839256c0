"""An ordinary script, which knows nothing of Cairn: totals of all days so far, and of them a table by country."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

sales, before, totals, table = sys.argv[1:]
spark = SparkSession.builder.appName("total sales").getOrCreate()
new = spark.read.parquet(sales).select("country", "store", "amount", F.lit(1).cast("bigint").alias("sales"))
both = spark.read.parquet(before).unionByName(new).groupBy("country", "store")
added = both.agg(F.sum("amount").cast("decimal(18, 2)").alias("amount"), F.sum("sales").alias("sales"))
added.write.parquet(totals)
spark.read.parquet(totals).write.partitionBy("country").parquet(table)
