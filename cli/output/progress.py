"""How far work on many files is, on a terminal."""

from __future__ import annotations

import sys

from ...checkpoint.answers import FilesProgress
from ...checkpoint.views import wording

_COLUMNS = 24


class ProgressLine:
    """One line on a terminal's standard error that is written over; nothing where there is no terminal. Use in `with`.

    Args:
        doing: what is being done, such as "copied".
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._drawn = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            print(file=sys.stderr)

    def show(self, progress: FilesProgress) -> None:
        """Draw it anew."""
        if not sys.stderr.isatty():
            return
        share = progress.bytes_done / progress.size_bytes if progress.size_bytes else 1.0
        full = min(_COLUMNS, round(share * _COLUMNS))
        of = f" of {progress.files:,}" if progress.files else ""
        done = f"{progress.files_done:,}{of} files, {wording.size(progress.bytes_done)}"
        print(
            f"\r[{'#' * full}{'.' * (_COLUMNS - full)}] {self._doing} {done} of {wording.size(progress.size_bytes)}",
            end="\x1b[K",
            file=sys.stderr,
            flush=True,
        )
        self._drawn = True
