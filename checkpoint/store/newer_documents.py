"""Checkpoints completed by a newer `head.json` than this one, as after a restore from a backup (semantics W9, T9).

An older head wins over newer documents, so epochs that those have completed run again. Metadata in the folder of an id
that this head has not handed out proves that there was a newer head.
"""

from __future__ import annotations

import logging

from ...storage.errors import GoneError
from ..documents import layout, metadata
from ..documents.codec import MAX_MARKER_BYTES
from ..documents.head import Head
from ..errors import DocumentError
from .job_files import JobFiles

log = logging.getLogger("airflow_cairn")


def completed_later(files: JobFiles, head: Head) -> dict[int, str | None]:
    """Give the checkpoints that a newer head has completed, or was about to complete, each with its epoch.

    Costs a listing after the folders of this head's ids, and a read for each metadata found.

    Returns:
        By id, oldest first. The epoch is None where the metadata cannot be read.
    """
    found: dict[int, str | None] = {}
    for each in files.listing("", start_after=layout.folder(head.next_id)):
        if each.key > layout.EPOCH_LISTS:
            break  # in the order of keys, all checkpoints' folders come before
        checkpoint = layout.metadata_of(each.key)
        if checkpoint is not None:
            found[checkpoint] = _epoch(files, each.key)
    return found


def describe_newer_completion(files: JobFiles, head: Head, epoch: str) -> None:
    """Warn that an epoch runs again although a newer head than this one has completed it."""
    for checkpoint, completed in completed_later(files, head).items():
        if completed == epoch:
            log_rerun(epoch, checkpoint)


def log_rerun(epoch: str, checkpoint: int) -> None:
    """Warn that an epoch runs again, because this head does not know the checkpoint that completed it."""
    log.warning(
        "%s completed in checkpoint %d, which this head.json never handed out: it is older than that checkpoint, as "
        "after a restore from a backup. That does not count, and the epoch runs again",
        layout.run_id_of(epoch),
        checkpoint,
    )


def _epoch(files: JobFiles, key: str) -> str | None:
    try:
        first = files.read_range(key, 0, MAX_MARKER_BYTES).partition(b"\n")[0]
        line = metadata.decode_line(first, key=files.full(key), first=True)
    except (GoneError, DocumentError):
        return None
    return line.epoch if isinstance(line, metadata.MetadataHeader) else None
