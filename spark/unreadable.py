"""Which upstreams an application could not read, found in why it failed (semantics F1).

Where a file is gone or altered the store itself shows it. What was broken when it was written it does not show: only
Spark's error does, and it names the file. A store that did not answer makes nothing unreadable (R1), so an error counts
only if it says that the file is not there, or is no Parquet file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..checkpoint import layout
from ..checkpoint.model import Execution

_SIGNS = (
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FileNotFoundException",
    "PATH_NOT_FOUND",
    "is not a Parquet file",
    "ParquetDecodingException",
)


def of(error: BaseException, upstream: Mapping[str, Execution]) -> tuple[str, ...]:
    """Give the upstreams that could not be read, in order; none where the error is about something else.

    Args:
        error: why the application failed, with its causes.
        upstream: the executions that the handover names.
    """
    texts = [text for text in map(str, _chain(error)) if any(sign in text for sign in _SIGNS)]
    folders = {
        uid: layout.execution_folder(execution.home, uid, execution.attempt, execution.token)
        for uid, execution in upstream.items()
    }
    return tuple(sorted(uid for uid, folder in folders.items() if any(folder in text for text in texts)))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        each = todo.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            todo += [each.__cause__, each.__context__]
