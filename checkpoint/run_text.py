"""A DAG run for people: its id, and the input that it reads (semantics T8).

In Airflow 3 the id of a scheduled run names the end of its data interval. So wherever a run's id is shown, the window
stands beside it, and a start date that somebody reads off it is right.
"""

from __future__ import annotations

from . import slice_window
from .head import Head
from .layout import run_id_of
from .model import Slice
from .read_windows import Window, WindowText


def run_text(run_id: str, window: Window | WindowText | None) -> str:
    """Name a run, with the window that it reads where that is known.

    Args:
        run_id: the run's.
        window: what it reads; None: no window, or it is not known.
    """
    if window is None:
        return run_id
    return f"{run_id} (input {(window.window if isinstance(window, WindowText) else window).short})"


def run_of_slice(epoch: str, slice_: Slice) -> str:
    """Name the run of an epoch whose slice is known.

    Args:
        epoch: the epoch's name.
        slice_: what it reads.
    """
    return run_text(run_id_of(epoch), slice_window.window_read_by(slice_))


def run_of_head(head: Head, epoch: str) -> str:
    """Name the run of an epoch as far as the job's head remembers its window.

    Args:
        head: of the job.
        epoch: the epoch's name.
    """
    return run_text(run_id_of(epoch), head.window_of(epoch))
