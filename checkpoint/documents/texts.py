"""Texts for users: a DAG run's name with the window that its epoch reads, and one line of a detail (semantics T8).

In Airflow 3 the id of a scheduled run names the end of its data interval. So wherever a run's id is shown, the window
is shown beside it, and a user who needs the run's start date reads the right one.
"""

from __future__ import annotations

from ...storage.errors import printable
from ..masking import masked
from .attempt import Slice
from .head import Head
from .layout import run_id_of
from .read_windows import ReadWindow, WindowText, text_of, window_of


def run_text(run_id: str, window: ReadWindow | WindowText | None) -> str:
    """Name a run, with its window if that is known.

    Args:
        run_id: the run's.
        window: the run's window; None: none, or unknown.
    """
    if window is None:
        return run_id
    return f"{run_id} (input {(window.window if isinstance(window, WindowText) else window).short})"


def run_of_slice(epoch: str, slice_: Slice) -> str:
    """Name the run of an epoch whose slice is known."""
    return run_text(run_id_of(epoch), window_read_by(slice_))


def run_of_head(head: Head, epoch: str) -> str:
    """Name the run of an epoch as far as the job's head remembers its window."""
    return run_text(run_id_of(epoch), head.window_of(epoch))


def window_read_by(slice_: Slice) -> ReadWindow | None:
    """Give an epoch's window; None where a source chooses other input, or the epoch reads no window."""
    if slice_.source_window:
        return window_of(slice_.start, slice_.end)
    # A savepoint keeps the positions of the sources, but not the input of its last epoch.
    if slice_.sources or slice_.positions or slice_.start is None:
        return None
    return window_of(slice_.start, slice_.end)


def window_text(slice_: Slice) -> WindowText | None:
    """Give an epoch's window as a document has it; None as for `window_read_by`."""
    window = window_read_by(slice_)
    return None if window is None else text_of(window)


MAX_DETAIL = 500
"""Characters of a failure's detail that the head keeps."""


def one_line(text: str) -> str:
    """Shorten a text for the head: one line, at most `MAX_DETAIL` characters, without secrets."""
    line = printable(masked(" ".join(text.encode("utf-8", "replace").decode().split())))
    return line if len(line) <= MAX_DETAIL else line[: MAX_DETAIL - 1] + "…"
