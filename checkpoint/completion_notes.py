"""Notes of completed epochs that the head has forgotten, so that no epoch is ever folded in twice (semantics T9).

A note is made before the swap that forgets, so it may stand although that swap was lost. After a rewind its epoch may
then complete once more, in a checkpoint with a higher id. So a note only ever moves to a higher id, and the head, which
knows what was rewound, says whether it counts.

A note that is broken is written anew, by whoever forgets its epoch next: the head knows better as long as it remembers.
Who can race: another finisher, with the same note; and one whose head stands no more, because the epoch was rewound and
has completed again. The head is looked at between the note and its replacement, so that one writes nothing: the later
completion was noted either before, and the head shows the rewind, or in between, and the note is not the one that was
read. A crash before leaves the broken note to the next, a crash after leaves a whole one.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from ..storage.errors import DocumentError, GoneError, NewerFormatError, OutcomeUnknownError
from ..storage.port import Lost
from . import layout
from .documents import MAX_HEAD_BYTES
from .errors import TooMuchContentionError
from .head import Head
from .job_files import JobFiles
from .model import EpochCompletedDocument

log = logging.getLogger(__name__)

MAX_TRIES = 8
"""How often a note that names an older checkpoint is looked at and replaced."""


def note(files: JobFiles, epoch: str, checkpoint: int) -> None:
    """Note that an epoch completed; what names this checkpoint already, or a newer one, stays. What is broken does not.

    Args:
        files: the job's files.
        epoch: the epoch's name.
        checkpoint: that it completed in.

    Raises:
        NewerFormatError: what stands there was written by a newer version.
        OutcomeUnknownError: whether it was written is not known; delete nothing.
        TooMuchContentionError: others kept changing it.
    """
    key = layout.epoch_completed(epoch)
    wanted = EpochCompletedDocument(files.job, epoch, checkpoint)
    if not isinstance(files.create(key, wanted), Lost):
        return
    for _ in range(MAX_TRIES):
        etag = _to_replace(files, key, checkpoint)
        if etag is None:
            return
        # A lost answer is settled by the next look: what is there says whether it landed.
        with suppress(OutcomeUnknownError):
            files.replace(key, wanted, expected_etag=etag)
    raise TooMuchContentionError(
        "the note of a completed epoch kept changing; nothing of the head was written, try again",
        job=files.job,
        key=files.full(key),
        tries=MAX_TRIES,
    )


def _to_replace(files: JobFiles, key: str, checkpoint: int) -> str | None:
    """Give the etag of the note that stands, if this checkpoint is to stand there; None if nothing is to be done."""
    try:
        standing, blob = files.read(EpochCompletedDocument, key)
        return None if standing.checkpoint >= checkpoint else blob.etag
    except NewerFormatError:
        raise
    except DocumentError as error:
        etag = files.store.stat(files.full(key)).etag
        head, _ = files.read(Head, layout.HEAD, max_bytes=MAX_HEAD_BYTES)
        if head.rewind_of(checkpoint) is not None:
            return None
        log.warning("The note that an epoch completed cannot be read and is written anew. %s", error)
        return etag


def read(files: JobFiles, epoch: str) -> int | None:
    """Give the checkpoint that an epoch's note names; None if there is no note.

    Raises:
        DocumentError: the note is broken.
    """
    try:
        return files.read(EpochCompletedDocument, layout.epoch_completed(epoch))[0].checkpoint
    except GoneError:
        return None
