"""Which failures of an application another try would only repeat (semantics F4)."""

from __future__ import annotations

from ..storage.errors import CairnError, ErrorKind

_ABOUT_DATA = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""Conditions that Spark reports as an analysis error although they are about files, which may come back."""


def is_incurable(error: BaseException) -> bool:
    """Tell whether the application itself is at fault: Spark cannot analyse its plan, a name or a state is wrong.

    What was raised *from* something else may be as curable as that.

    Args:
        error: what ended the epoch's block.
    """
    from pyspark.errors import AnalysisException

    if isinstance(error, AnalysisException):
        condition = error.getCondition() or ""
        return not condition.startswith(_ABOUT_DATA)
    return isinstance(error, CairnError) and error.kind is ErrorKind.INVALID and error.__cause__ is None
