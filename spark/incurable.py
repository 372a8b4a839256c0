"""Which failures of an application another try would only repeat (semantics F4)."""

from __future__ import annotations

from collections.abc import Iterator

from ..storage.errors import CairnError, ErrorKind

_ABOUT_DATA = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")
"""Conditions that Spark reports as an analysis error although they are about files, which may come back."""


def is_incurable(error: BaseException) -> bool:
    """Tell whether the application itself is at fault: Spark cannot analyse its plan, a name or a state is wrong.

    What was raised *from* something else is as curable as that: author's code may wrap what Spark says.

    Args:
        error: what ended the epoch's block.
    """
    from pyspark.errors import AnalysisException

    chain = list(_causes(error))
    for each in chain:
        if isinstance(each, AnalysisException):
            condition = each.getCondition() or ""
            return not condition.startswith(_ABOUT_DATA)
    root = chain[-1]
    return isinstance(root, CairnError) and root.kind is ErrorKind.INVALID


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and what each was raised from; what only happened before it (`__context__`) is no cause."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        yield at
        seen.add(id(at))
        at = at.__cause__
