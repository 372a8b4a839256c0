"""What Spark says where it lacks a package, told with the way out (semantics F4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec

from .error_chain import causes

_NO_S3A = re.compile(
    r"ClassNotFoundException: (Class )?org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem|No FileSystem for scheme \"?s3a\b"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")
_GOES_ON = re.compile(r"During handling of the above exception|direct cause of the following exception")
"""Python's words between an exception and the one that came of it."""
S3A_PACKAGES = (
    "org.apache.spark:spark-hadoop-cloud_2.13 of your Spark's version (_2.12 for most of Spark 3.5) and "
    "org.apache.hadoop:hadoop-aws of its Hadoop's"
)
"""What Spark needs to reach `s3a://` paths."""


def missing_package(error: BaseException) -> str | None:
    """Say which package Spark lacks, and what to do; None where the failure is about something else.

    Args:
        error: what ended the application. Python's own error there is not meant: Spark reports one of a function that
            ran on it as text.
    """
    for text in _reported(error):
        if _NO_S3A.search(text):
            return (
                f"Spark has no hadoop-aws, so it cannot reach s3a:// paths. Give {S3A_PACKAGES} where Spark is "
                "started: packages or jars of a submitted stage, spark.jars.packages of a Spark Connect server"
            )
        found = _NO_MODULE.search(text)
        # One that was caught is not what ended the function.
        if found and not _GOES_ON.search(text, found.end()):
            module = found["name"]
            return (
                f"the Python that runs functions where Spark is has no module {module}. Install it there, or hand it "
                "over by py_files"
            )
    return None


def _reported(error: BaseException) -> Iterator[str]:
    from pyspark.errors import PySparkException

    kinds: tuple[type[BaseException], ...] = (PySparkException,)
    if find_spec("py4j"):  # a worker that has only PySpark's client has none
        from py4j.protocol import Py4JJavaError

        kinds = (*kinds, Py4JJavaError)
    return (str(each) for each in causes(error) if isinstance(each, kinds))
