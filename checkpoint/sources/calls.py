"""Calls an author's source, so that whatever it raises is a trigger that failed, with the cause (semantics T1, T8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...storage.errors import CairnError
from ..documents.text import one_line
from ..errors import SourceError

T = TypeVar("T")


def call(source: str, step: str, work: Callable[[], T]) -> T:
    """Do one step of a source.

    Raises:
        SourceError: it raised something that is not Cairn's own.
        CairnError: the store that it looked at did not answer, or refused, say.
    """
    try:
        return work()
    except CairnError:
        raise
    except Exception as error:
        raise SourceError(
            f"the source {source} failed in {step}: {one_line(repr(error))}. Mend the source, then run (or clear) this "
            "task again",
            source=source,
            step=step,
        ) from error
