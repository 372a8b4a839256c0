"""Failures of an application that another try would only repeat (semantics F4)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Execution
from ...checkpoint.masking import MAX_DETAIL, masked
from ...storage import RENAMED
from ...storage import errors as storage_errors
from ...storage.errors import OF_THE_STORE, CairnError, ErrorKind, StorageError, may_pass, printable

if TYPE_CHECKING:
    from pyspark.errors import PySparkException


_RAISED = re.compile(r"airflow_cairn\.storage\.errors\.(?P<name>\w+): ")
"""Python's printed form of a store error that ended a driver."""


def is_of_store(error: BaseException) -> bool:
    """Tell whether the store refused or gave no answer, which may pass by itself (semantics F4, W3)."""
    return any(may_pass(each) for each in causes(error))


def names_store(printed: str) -> bool:
    """Tell the same from the driver's last printed line; if the driver cannot decline, only that line tells."""
    found = _RAISED.match(printed)
    name = RENAMED.get(found["name"], found["name"]) if found else ""
    kind = getattr(storage_errors, name, None)
    return isinstance(kind, type) and issubclass(kind, StorageError) and kind.kind in OF_THE_STORE


_ABOUT_DATA = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""Error conditions that Spark reports as analysis errors although they concern files, which may come back."""


def is_incurable(error: BaseException) -> bool:
    """Tell whether the application is at fault: a wrong plan or name, or a package that Spark lacks.

    An error raised *from* another one is judged by that one: an author may wrap Spark's errors.
    """
    from pyspark.errors import AnalysisException

    if missing_package(error):
        return True
    chain = list(causes(error))
    for each in chain:
        if isinstance(each, AnalysisException):
            return not condition_of(each).startswith(_ABOUT_DATA)
    root = chain[-1]
    return isinstance(root, CairnError) and root.kind is ErrorKind.INVALID


def condition_of(error: PySparkException) -> str:
    """Return Spark's name of the error's condition; Spark 3.5 has the same names in another attribute."""
    named = error.getCondition if hasattr(error, "getCondition") else error.getErrorClass
    return named() or ""


_SIGNS = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FileNotFoundException",
    "PATH_NOT_FOUND",
    "is not a Parquet file",
    "ParquetDecodingException",
)


def unreadable_upstreams(error: BaseException, upstream: Mapping[str, Execution]) -> tuple[str, ...]:
    """Name the upstreams that could not be read, in order; none if the error has another cause."""
    texts = [text for text in map(str, causes_and_contexts(error)) if any(sign in text for sign in _SIGNS)]
    folders = {
        uid: layout.execution_folder(execution.home, uid, execution.attempt, execution.token)
        for uid, execution in upstream.items()
    }
    return tuple(sorted(uid for uid, folder in folders.items() if any(folder in text for text in texts)))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes; an error that merely preceded (`__context__`) is not a cause."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        yield at
        seen.add(id(at))
        at = at.__cause__


def causes_and_contexts(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and the errors that were being handled."""
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            todo += [each.__cause__, each.__context__]


# Spark's reports of a missing package, with the remedy (semantics F4).


_NO_S3A = re.compile(
    r"ClassNotFoundException: (Class )?org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem|No FileSystem for scheme \"?s3a\b"
)
_NO_GS = re.compile(
    r"ClassNotFoundException: (Class )?com\.google\.cloud\.hadoop\.fs\.gcs\.|No FileSystem for scheme \"?gs\b"
)
_NO_ABFS = re.compile(
    r"ClassNotFoundException: (Class )?org\.apache\.hadoop\.fs\.azurebfs\.|No FileSystem for scheme \"?abfss?\b"
)
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'")
_GOES_ON = re.compile(r"During handling of the above exception|direct cause of the following exception")
"""Python's text between an exception and the one that it caused."""
S3A_PACKAGES = (
    "org.apache.spark:spark-hadoop-cloud_2.13 of your Spark's version (_2.12 for most of Spark 3.5) and "
    "org.apache.hadoop:hadoop-aws of its Hadoop's"
)
"""The package that Spark needs for `s3a://` paths."""
GS_PACKAGES = "org.apache.spark:spark-hadoop-cloud_2.13 of your Spark's version"
"""The package that Spark needs for Hadoop's manifest committer, on `gs://` paths too."""
ABFS_PACKAGES = f"{GS_PACKAGES} and org.apache.hadoop:hadoop-azure of its Hadoop's"
"""The package that Spark needs for `abfss://` paths."""


def missing_package(error: BaseException) -> str | None:
    """Name the package that Spark lacks, and the remedy; None if the failure has another cause.

    Args:
        error: the error that ended the application. A Python ImportError of the application does not count: Spark
            reports errors of functions that ran on Spark as text.
    """
    for text in _reported(error):
        if _NO_S3A.search(text):
            return (
                f"Spark has no hadoop-aws, so it cannot reach s3a:// paths. Give {S3A_PACKAGES} where Spark is "
                "started: packages or jars of a submitted stage, spark.jars.packages of a Spark Connect server"
            )
        if _NO_GS.search(text):
            return (
                f"Spark has no connector to Google Cloud Storage. Give {GS_PACKAGES}, which brings it, where Spark is "
                "started: packages or jars of a submitted stage, spark.jars.packages of a Spark Connect server"
            )
        if _NO_ABFS.search(text):
            return (
                f"Spark has no hadoop-azure, so it cannot reach abfss:// paths. Give {ABFS_PACKAGES} where Spark is "
                "started: packages or jars of a submitted stage, spark.jars.packages of a Spark Connect server"
            )
        found = _NO_MODULE.search(text)
        # An exception that was caught did not end the function.
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
    if find_spec("py4j"):  # PySpark's client alone has no py4j
        from py4j.protocol import Py4JJavaError

        kinds = (*kinds, Py4JJavaError)
    return (str(each) for each in causes(error) if isinstance(each, kinds))


# An exception in one line, for a decline (semantics D1): class and text, without credentials. Declines are read in the
# Airflow UI and in terminals, and kept in the store.


_STACK = re.compile(r"^\s*(at [\w.$/<>]+\(|\.\.\. \d+ (more|elided)|JVM stacktrace:)")


def error_line(error: BaseException, *, environ: Mapping[str, str] = os.environ) -> str:
    """Describe an exception as `Class: text` in one line of at most `MAX_DETAIL` characters, credentials masked."""
    lines = (line for line in str(error).splitlines() if not _STACK.match(line))
    text = " ".join(" ".join(lines).split())
    name = error.name if isinstance(error, CairnError) else type(error).__name__
    whole = printable(masked(f"{name}: {text}" if text else name, environ=environ))
    if len(whole) <= MAX_DETAIL:
        return whole
    # The cause is at either end: first in Spark's errors, last in tracebacks of Python workers.
    return f"{whole[: MAX_DETAIL - 200]} … {whole[-190:]}"
