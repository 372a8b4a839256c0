"""Notes which epochs have completed before a head forgets them, so that none is ever folded in twice (semantics T9)."""

from __future__ import annotations

from . import completion_notes
from .decisions import forgotten
from .head import Head
from .job_files import JobFiles


def note(files: JobFiles, old: Head, new: Head) -> None:
    """Note durably what `new` no longer remembers.

    Comes before `new` is written, and before anybody asks `new` whether an epoch has completed. What is noted has
    happened, whether or not `new` is ever written.

    Args:
        files: the job's files.
        old: a version of the head as it was read.
        new: what is to follow it.
    """
    for epoch, checkpoint in forgotten(old, new).items():
        completion_notes.note(files, epoch, checkpoint)
