"""An ordinary script, which knows nothing of Cairn: the sales of a day, from CSV to Parquet."""

import sys

from pyspark.sql import SparkSession

day, lake, out = sys.argv[1:]
spark = SparkSession.builder.appName("ingest sales").getOrCreate()
sales = spark.read.csv(f"{lake}/sales/{day}.csv", header=True, schema="id BIGINT, store STRING, amount DECIMAL(12, 2)")
sales.where("amount IS NOT NULL").dropDuplicates(["id"]).write.parquet(out)
