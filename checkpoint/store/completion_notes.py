"""Notes of version 0.1: one object for each completed epoch that its head had forgotten (semantics T9, C5).

They are read and no longer written; `completed_epochs` says which of them count.
"""

from __future__ import annotations

from ...storage.errors import GoneError
from ..documents import layout
from ..documents.attempt import EpochCompletedDocument
from .job_files import JobFiles


def read(files: JobFiles, epoch: str) -> int | None:
    """Give the checkpoint that an epoch's note names; None if there is no note.

    Args:
        files: the job's files.
        epoch: the epoch's name.

    Raises:
        DocumentError: the note is broken.
    """
    try:
        return files.read(EpochCompletedDocument, layout.epoch_completed(epoch))[0].checkpoint
    except GoneError:
        return None
