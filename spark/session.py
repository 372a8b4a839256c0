"""The Spark session of this application, found or built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.errors import InvalidConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(given: SparkSession | None) -> SparkSession:
    """Give the session that was given, else the active one, else a new one by the submitted conf.

    Raises:
        InvalidConfigError: it is a Spark Connect session, which has no driver of its own to write from.
    """
    from pyspark.sql import SparkSession

    spark = given or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    if not hasattr(spark, "_jsparkSession"):
        raise InvalidConfigError(
            "an epoch needs a classic Spark session and this is a Spark Connect one. Submit the application with "
            "spark-submit and without spark.remote or SPARK_REMOTE",
            session=type(spark).__module__,
        )
    return spark
