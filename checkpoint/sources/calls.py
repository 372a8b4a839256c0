"""Calls an author's source, so that whatever it raises is a trigger that failed, with the cause (semantics T1, T8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...storage.errors import CairnError
from ..documents.text import one_line
from ..errors import InvalidStateError, SourceError

T = TypeVar("T")


def call(source: str, step: str, work: Callable[[], T]) -> T:
    """Do one step of a source.

    Raises:
        SourceError: it raised something that is not Cairn's own, or answered what cannot be kept.
        CairnError: the store that it looked at did not answer, or refused, say.
    """
    try:
        return work()
    except Exception as error:
        if isinstance(error, CairnError) and not isinstance(error, InvalidStateError):
            raise
        cause = error.message if isinstance(error, InvalidStateError) else one_line(repr(error))
        raise SourceError(
            f"the source {source} failed in {step}: {cause}. Mend the source, then run (or clear) this task again",
            source=source,
            step=step,
        ) from error
