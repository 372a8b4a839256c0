"""Notes of completed epochs that the head has forgotten, so that no epoch is ever folded in twice (semantics T9).

A note is made before the swap that forgets, so it may stand although that swap was lost. After a rewind its epoch may
then complete once more, in a checkpoint with a higher id. So a note only ever moves to a higher id, and the head, which
knows what was rewound, says whether it counts.
"""

from __future__ import annotations

from contextlib import suppress

from ..storage.errors import GoneError, OutcomeUnknownError
from ..storage.port import Lost
from . import layout
from .errors import TooMuchContentionError
from .job_files import JobFiles, encode
from .model import EpochCompletedDocument

MAX_TRIES = 8
"""How often a note that names an older checkpoint is looked at and replaced."""


def note(files: JobFiles, epoch: str, checkpoint: int) -> None:
    """Note that an epoch completed; what names this checkpoint already, or a newer one, stays.

    Args:
        files: the job's files.
        epoch: the epoch's name.
        checkpoint: that it completed in.

    Raises:
        DocumentError: what stands there is broken.
        OutcomeUnknownError: whether it was written is not known; delete nothing.
        TooMuchContentionError: others kept changing it.
    """
    key = layout.epoch_completed(epoch)
    wanted = EpochCompletedDocument(files.job, epoch, checkpoint)
    if not isinstance(files.create(key, wanted), Lost):
        return
    for _ in range(MAX_TRIES):
        standing, blob = files.read(EpochCompletedDocument, key)
        if standing.checkpoint >= checkpoint:
            return
        # A lost answer is settled by the next look: what is there says whether it landed.
        with suppress(OutcomeUnknownError):
            files.store.replace(files.full(key), encode(wanted), expected_etag=blob.etag)
    raise TooMuchContentionError(
        "the note of a completed epoch kept changing; nothing of the head was written, try again",
        job=files.job,
        key=files.full(key),
        tries=MAX_TRIES,
    )


def read(files: JobFiles, epoch: str) -> int | None:
    """Give the checkpoint that an epoch's note names; None if there is no note.

    Raises:
        DocumentError: the note is broken.
    """
    try:
        return files.read(EpochCompletedDocument, layout.epoch_completed(epoch))[0].checkpoint
    except GoneError:
        return None
