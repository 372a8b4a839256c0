"""How an application reaches Spark: its own driver (classic), or a Spark Connect server that others use too.

The two differ in a few calls only. They are told apart here, and nowhere by the kind of an import that fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session is that of a client of a Spark Connect server."""
    return not hasattr(spark, "_jsparkSession")


def identity_of(spark: SparkSession) -> Any:
    """Give what is equal for two Python objects of one session: PySpark makes another one each time it is asked."""
    found: Any = spark
    return found.session_id if is_remote(spark) else found._jsparkSession


def conf_of(spark: SparkSession, *keys: str) -> dict[str, str | None]:
    """Look up several settings of a session: over Spark Connect by one request, which takes a millisecond or more.

    Args:
        spark: the session.
        *keys: of the settings.

    Returns:
        By key what is set; None where nothing is, so that Spark's own default counts.
    """
    if not is_remote(spark):
        return {key: spark.conf.get(key, None) for key in keys}
    client: Any = spark.client
    return dict(zip(keys, client.get_config_with_defaults(*((key, None) for key in keys)), strict=True))


class JobTags(Protocol):
    """Tags of the Spark jobs that a thread starts."""

    def add(self, tag: str) -> None:
        """Tag what this thread starts from now on."""

    def remove(self, tag: str) -> None:
        """Tag it no longer."""

    def cancel(self, tag: str) -> None:
        """Cancel what runs with a tag, of any thread."""


def job_tags(spark: SparkSession) -> JobTags:
    """Give the job tags of a session."""
    return _OfSession(spark) if is_remote(spark) else _OfContext(spark)


class _OfContext:
    """The classic ones. Those of the session would not do: another thread cannot cancel by them."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    def add(self, tag: str) -> None:
        self._context.addJobTag(tag)

    def remove(self, tag: str) -> None:
        self._context.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        self._context.cancelJobsWithTag(tag)


class _OfSession:
    """Those of Spark Connect, which reach the operations of this session only."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def add(self, tag: str) -> None:
        self._spark.addTag(tag)

    def remove(self, tag: str) -> None:
        self._spark.removeTag(tag)

    def cancel(self, tag: str) -> None:
        self._spark.interruptTag(tag)
