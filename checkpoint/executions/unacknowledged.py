"""Why a stage has not acknowledged although its task has ended: read off the store, for the message of who waits."""

from __future__ import annotations

from ...storage.errors import DocumentError, GoneError
from ..documents import layout
from ..documents.attempt import Handover, PendingDocument
from ..documents.head import Head
from ..store import acks
from ..store.job_files import JobFiles


def why(files: JobFiles, head: Head, document: PendingDocument, stage: str) -> str:
    """Say why a stage has not acknowledged, as far as the store tells: one or two reads.

    Raises:
        UnavailableError: the store did not answer.
    """
    execution = document.executions[stage]
    key = layout.handover(execution.home, stage, execution.token)
    try:
        files.read(Handover, key)
    except GoneError:
        return _not_begun(head, document, stage)
    except DocumentError as error:
        return f"its handover cannot be used: {error}"
    declined = acks.why_declined(files, stage, execution)
    if declined is not None:
        return f"it declined, {declined[0]}: {declined[1]}"
    marker = files.full(layout.ack(execution.home, stage, execution.token))
    return (
        "it has begun, and its acknowledgement is not in the store: its task was marked or killed before the stage had "
        f"acknowledged, or {marker} was deleted"
    )


def _not_begun(head: Head, document: PendingDocument, stage: str) -> str:
    if document.executions[stage].attempt < document.attempt or document.attempt == 1:
        return "it has not begun: its task ended before it asked for its work, because it was marked or killed"
    before = next((each for each in head.ended_of_epoch(document.epoch)), None)
    cause = f" ({before.reason}: {before.detail})" if before is not None and before.reason is not None else ""
    return (
        f"attempt {document.attempt} has to run it again, because the attempt before ended{cause}, and its task has "
        "not run since"
    )
