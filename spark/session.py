"""The Spark session of this application, found or built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.errors import InvalidConfigError
from .execution.transport import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(given: SparkSession | None) -> SparkSession:
    """Give the session that was given, else the active one, else a new one by the submitted conf.

    Raises:
        InvalidConfigError: it is a client's of a Spark Connect server, and PySpark's functions are not: they follow the
            way by which the process made its first session.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote as functions_are_remote

    spark = given or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    if is_remote(spark) and not functions_are_remote():
        raise InvalidConfigError(
            "this Spark Connect session was made past pyspark.sql.SparkSession, so pyspark.sql.functions do not work "
            "with it. Make it by pyspark.sql.SparkSession.builder.remote(…).getOrCreate(), or let Epoch.current() find "
            "the one that it was submitted with",
            session=type(spark).__module__,
        )
    return spark
