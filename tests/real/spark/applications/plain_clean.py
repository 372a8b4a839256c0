"""An ordinary script, which knows nothing of Cairn: flights of one day, a folder for each airport."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

day, flights, clean = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
found = spark.read.parquet(flights).where("delay is not null").withColumn("day", F.lit(day))
found.write.partitionBy("airport").parquet(clean)
