"""An ordinary script, which knows nothing of Cairn: sales with the country of their store."""

import sys

from pyspark.sql import SparkSession

sales, lake, out = sys.argv[1:]
spark = SparkSession.builder.appName("join stores").getOrCreate()
stores = spark.read.csv(f"{lake}/stores.csv", header=True, schema="store STRING, country STRING")
spark.read.parquet(sales).join(stores, "store").write.parquet(out)
