"""The Spark session of this application, found or built."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.errors import InvalidConfigError
from .execution.transport import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST = (3, 5)
"""The oldest Spark that an application may run on (docs/reference/versions.md)."""


def session(given: SparkSession | None) -> SparkSession:
    """Return the given session, or the active one, or a new one with the submitted conf.

    Raises:
        InvalidConfigError: this Spark is too old; or the session belongs to a Spark Connect client but PySpark's
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
    if not is_remote(spark):  # a client has already compared its version with the server's
        check_version(spark.version)
    return spark


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; the rest is the vendor's."""
    return tuple(int(number) for number in version.split(".")[:2])


def check_version(version: str) -> None:
    """Refuse a Spark older than the oldest supported one.

    Args:
        version: as Spark gives it; vendors append to the first two numbers.

    Raises:
        InvalidConfigError: this Spark is older.
    """
    if numbers_of(version) < OLDEST:
        raise InvalidConfigError(
            f"this is Spark {version}, and Cairn needs Spark {OLDEST[0]}.{OLDEST[1]} or newer. Have the connection's "
            "spark-submit, or SPARK_HOME, name a newer one",
        )
