"""The handover of an execution as it is stored: read, and passed on to another try."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from ...storage.errors import DocumentError, GoneError, OutcomeUnknownError
from ...storage.port import ConditionFailed
from ..documents import layout
from ..documents.attempt import Handover
from ..store.job_files import JobFiles


def readable(files: JobFiles, stage: str, home: int, token: str) -> Handover | None:
    """Read the handover of an execution; None where it is gone or broken."""
    try:
        return files.read(Handover, layout.handover(home, stage, token))[0]
    except (GoneError, DocumentError):
        return None


def pass_on(files: JobFiles, handover: Handover, claimant: str, try_number: int, *, adopted: bool = False) -> bool:
    """Name another claimant in a handover, if it still says what was read; False where that is not known.

    Args:
        files: the job's files.
        handover: as it was read.
        claimant: who holds the execution from now on.
        try_number: which try of its task that is; 0: not known.
        adopted: whether it watches the driver that another try has submitted.

    Raises:
        ConflictError: the store refused again and again to say who was first; nothing landed.
        UnavailableError: the store did not answer.
    """
    key = layout.handover(handover.checkpoint, handover.stage, handover.token)
    named = replace(handover, claimant=claimant, try_number=try_number, adopted=adopted or handover.adopted)
    with suppress(GoneError, DocumentError, OutcomeUnknownError):
        standing, blob = files.read(Handover, key)
        if standing == handover:
            return not isinstance(files.replace(key, named, expected_etag=blob.etag), ConditionFailed)
    return False
