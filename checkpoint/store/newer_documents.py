"""What a newer `head.json` than this one has completed, as after a restore from a backup (semantics W9, T9).

A head that is older than other documents wins over them, so what they say has completed runs again. Metadata in the
folder of an id that this head has not handed out proves that there was a newer one.
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
    """Give the checkpoints that a newer head has completed, or was about to, each with its epoch.

    A listing behind the folders of this head's ids, and a read for each metadata found.

    Returns:
        By id, oldest first. The epoch is None where the metadata cannot be read.
    """
    found: dict[int, str | None] = {}
    for each in files.listing("", start_after=layout.folder(head.next_id)):
        if each.key > layout.EPOCH_LISTS:
            break  # the checkpoints' folders come before it, in the order of keys
        checkpoint = layout.metadata_of(each.key)
        if checkpoint is not None:
            found[checkpoint] = _epoch(files, each.key)
    return found


def say_if_completed_later(files: JobFiles, head: Head, epoch: str) -> None:
    """Log that an epoch runs again, although a newer head than this one has completed it."""
    for checkpoint, completed in completed_later(files, head).items():
        if completed == epoch:
            log_that_it_runs_again(epoch, checkpoint)


def log_that_it_runs_again(epoch: str, checkpoint: int) -> None:
    """Log that an epoch runs again, because this head does not know the checkpoint that completed it."""
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
