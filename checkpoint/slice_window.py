"""The window of time that an epoch reads, from its slice (semantics T8)."""

from __future__ import annotations

from .model import Slice
from .read_windows import Window, WindowText, text_of, window_of


def window_read_by(slice_: Slice) -> Window | None:
    """Give the window that an epoch reads; None where a source chooses something else, or it reads none.

    Args:
        slice_: the epoch's.
    """
    if slice_.source_window:
        return window_of(slice_.start, slice_.end)
    # A savepoint keeps the positions of the sources, and not what its last epoch read.
    if slice_.sources or slice_.positions or slice_.start is None:
        return None
    return window_of(slice_.start, slice_.end)


def window_text(slice_: Slice) -> WindowText | None:
    """Give the window that an epoch reads, as a document has it; None as of `window_read_by`."""
    window = window_read_by(slice_)
    return None if window is None else text_of(window)
