"""The transport between application and Spark: its own driver (classic), or a shared Spark Connect server.

The transports differ in a few calls only. Only this module tells them apart, never by the kind of a failed import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session belongs to a Spark Connect client."""
    return not hasattr(spark, "_jsparkSession")


def identity_of(spark: SparkSession) -> Any:
    """Return a value that is equal for all Python objects of one session: PySpark often makes a new one."""
    found: Any = spark
    return found.session_id if is_remote(spark) else found._jsparkSession


def conf_of(spark: SparkSession, *keys: str) -> dict[str, str | None]:
    """Look up several settings of a session; over Spark Connect in one request, which takes a millisecond or more.

    Args:
        spark: the session.
        *keys: the settings' names.

    Returns:
        The values by name; None for a setting that is not set, so that Spark's default applies.
    """
    if not is_remote(spark):
        return {key: spark.conf.get(key, None) for key in keys}
    client: Any = spark.client
    return dict(zip(keys, client.get_config_with_defaults(*((key, None) for key in keys)), strict=True))


class JobTags(Protocol):
    """Tags of the Spark jobs that a thread starts."""

    def add(self, tag: str) -> None:
        """Tag the jobs that this thread starts from now on."""

    def remove(self, tag: str) -> None:
        """Stop tagging."""

    def cancel(self, tag: str) -> None:
        """Cancel the running jobs with a tag, of any thread."""


def job_tags(spark: SparkSession) -> JobTags:
    """Return the job tags of a session."""
    return _OfSession(spark) if is_remote(spark) else _OfContext(spark)


class _OfContext:
    """Classic tags, through the context. The session's own tags cannot be cancelled from another thread."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def add(self, tag: str) -> None:
        self._context.addJobTag(tag)

    def remove(self, tag: str) -> None:
        self._context.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        self._context.cancelJobsWithTag(tag)


class _OfSession:
    """Tags of Spark Connect, which reach only the operations of this session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def add(self, tag: str) -> None:
        self._spark.addTag(tag)

    def remove(self, tag: str) -> None:
        self._spark.removeTag(tag)

    def cancel(self, tag: str) -> None:
        self._spark.interruptTag(tag)
