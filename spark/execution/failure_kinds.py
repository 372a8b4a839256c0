"""Which failures of an application another try would only repeat (semantics F4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...checkpoint.documents import layout
from ...checkpoint.documents.attempt import Execution
from ...storage.errors import CairnError, ErrorKind
from .error_chain import causes, causes_and_contexts
from .missing_packages import missing_package

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_ABOUT_DATA = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""Conditions that Spark reports as an analysis error although they are about files, which may come back."""


def is_incurable(error: BaseException) -> bool:
    """Tell whether the application itself is at fault: a wrong plan or name, a package that Spark lacks.

    An error that was raised *from* another one is as curable as that one: an author may wrap what Spark says.
    """
    from pyspark.errors import AnalysisException

    if missing_package(error):
        return True
    chain = list(causes(error))
    for each in chain:
        if isinstance(each, AnalysisException):
            return not (_condition(each) or "").startswith(_ABOUT_DATA)
    root = chain[-1]
    return isinstance(root, CairnError) and root.kind is ErrorKind.INVALID


def _condition(error: PySparkException) -> str | None:
    """Give what Spark calls its error; Spark 3.5 has the same names under another one."""
    named = error.getCondition if hasattr(error, "getCondition") else error.getErrorClass
    condition: str | None = named()
    return condition


_SIGNS = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FileNotFoundException",
    "PATH_NOT_FOUND",
    "is not a Parquet file",
    "ParquetDecodingException",
)


def of(error: BaseException, upstream: Mapping[str, Execution]) -> tuple[str, ...]:
    """Give the upstreams that could not be read, in order; none where error and causes are about something else."""
    texts = [text for text in map(str, causes_and_contexts(error)) if any(sign in text for sign in _SIGNS)]
    folders = {
        uid: layout.execution_folder(execution.home, uid, execution.attempt, execution.token)
        for uid, execution in upstream.items()
    }
    return tuple(sorted(uid for uid, folder in folders.items() if any(folder in text for text in texts)))
