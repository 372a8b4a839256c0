"""What Spark says where it lacks a package, told with the way out (semantics F4)."""

from __future__ import annotations

import re
from collections.abc import Iterator

_NO_S3A = re.compile(
    r"ClassNotFoundException: (Class )?org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem|No FileSystem for scheme \"?s3a\b"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")


def missing_package(error: BaseException) -> str | None:
    """Say which package Spark lacks, and what to do; None where the failure is about something else.

    Args:
        error: what ended the application. Python's own error there is not meant: Spark reports one of a function that
            ran on it as text.
    """
    for text in _reported(error):
        if _NO_S3A.search(text):
            return (
                "Spark has no hadoop-aws, so it cannot reach s3a:// paths. Give org.apache.hadoop:hadoop-aws of its "
                "Hadoop's version, and org.apache.spark:spark-hadoop-cloud_2.13 of its own, where Spark is started: "
                "packages or jars of a submitted stage, spark.jars.packages of a Spark Connect server"
            )
        if found := _NO_MODULE.search(text):
            module = found["name"]
            return (
                f"the Python that runs functions where Spark is has no module {module}. Install it there, or hand it "
                "over by py_files"
            )
    return None


def _reported(error: BaseException) -> Iterator[str]:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        if isinstance(at, PySparkException | Py4JJavaError):
            yield str(at)
        seen.add(id(at))
        at = at.__cause__
