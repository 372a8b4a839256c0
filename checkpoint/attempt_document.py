"""The document of an attempt, found through its entry in the head."""

from __future__ import annotations

from ..storage.errors import DocumentError
from . import layout
from .head import EndedEntry, PendingEntry
from .job_files import JobFiles
from .model import PendingDocument


def read(files: JobFiles, entry: PendingEntry | EndedEntry) -> PendingDocument:
    """Read what an attempt expects (or expected).

    Raises:
        GoneError: the attempt is past and cleaned.
        DocumentError: the document is broken, or another checkpoint's.
    """
    key = layout.pending(entry.id, entry.token)
    document = files.read(PendingDocument, key)[0]
    if (document.checkpoint, document.token, document.epoch) != (entry.id, entry.token, entry.epoch):
        raise DocumentError(
            "the document describes another checkpoint",
            key=files.full(key),
            expected=entry.id,
            found=document.checkpoint,
        )
    return document
