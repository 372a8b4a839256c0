"""An application that does not know of Cairn."""

from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate().range(10).count()
