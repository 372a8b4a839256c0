"""The document of an attempt: while the attempt is pending, a small document is in the head, any other an object.

In the head the document costs no extra request, neither to write nor to read. If the attempt ends without completing,
the process that ends it writes the document as an object, just before its swap. So the documents of ended attempts,
which later attempts and notices need, are always objects, and the head does not grow with its history.

A crash between that write and the swap leaves the attempt pending, and an object. The process that ends the attempt
later finds the same content. If the attempt completes, the cleaner deletes the object.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from ...storage.errors import DocumentError, GoneError
from ..documents import codec, layout, unread
from ..documents.attempt import Execution, HookAnswer, HookAnswersDocument, HooksRef, PendingDocument
from ..documents.entries import EndedEntry, PendingEntry
from ..documents.head import Head
from ..documents.strict_json import Json
from ..errors import InvalidConfigError
from ..reasons import Status
from .job_files import JobFiles, encode

MAX_HELD_BYTES = 16 * 1024
"""Largest document that the head holds, as JSON: about 100 stages."""

MAX_HELD = 4
"""Documents that the head holds at once. If more are pending, the others are objects, so that no swap of the head
carries more than 64 KiB of documents."""

LEVELS_ABOVE = 3
"""Levels of nesting above a document that the head holds: the head, its pending entries, the entry."""


class AttemptDocuments:
    """Reads the documents of one job's attempts.

    Args:
        files: the job's files.
        held: gives the document of an attempt by its token, if a head that this process knows holds it.
    """

    def __init__(self, files: JobFiles, held: Callable[[str], PendingDocument | None]) -> None:
        self._files = files
        self._held = held
        self._last: dict[str, PendingDocument] = {}
        """The document read last, by its token: documents never change, so none is read twice in a row."""

    def of(self, entry: PendingEntry | EndedEntry) -> PendingDocument:
        """Read the document of an attempt. The stages and executions of a large one are read only when used."""
        # Read once: a driver's threads share the coordinator, and another thread may replace the document here.
        known = self._last.get(entry.token)
        if known is not None:
            return known
        document = _found(self._files, entry, self._held(entry.token))
        if isinstance(entry, PendingEntry):
            self._last = {entry.token: document}
        return document

    def readable(self, entry: PendingEntry | EndedEntry | None) -> PendingDocument | None:
        """Read the document of an attempt; None if it is gone or broken."""
        try:
            return _whole(self.of(entry)) if entry is not None else None
        except (GoneError, DocumentError):
            return None

    def lent_by(self, ended: EndedEntry | None) -> PendingDocument | None:
        """Read the document by which an ended attempt lends executions to the next; None if it lends none.

        An attempt that was left behind lends nothing: a cleaner may be deleting its document.
        """
        return None if ended is None or ended.left_behind else self.readable(ended)


def execution_of(document: PendingDocument, stage: str) -> Execution:
    """Give a stage's execution in an attempt.

    Raises:
        InvalidConfigError: the attempt does not expect the stage.
    """
    execution = document.execution(stage)
    if execution is None:
        raise InvalidConfigError(
            "the pending checkpoint does not expect this stage: the DAG has changed since it was triggered; clear "
            "the task that triggers the checkpoint",
            job=document.job,
            checkpoint=document.checkpoint,
            stage=stage,
            expected=", ".join(sorted(document.executions)),
        )
    return execution


def write(files: JobFiles, head: Head, document: PendingDocument) -> PendingDocument | None:
    """Write the document of a new attempt as an object and return None, or return a small document for the head."""
    data = encode(document)
    held = sum(entry.document is not None for entry in head.pending)
    if held < MAX_HELD and len(data) <= MAX_HELD_BYTES and _fits_below(data):
        return document
    files.create(layout.pending(document.checkpoint, document.token), document)
    return None


def _fits_below(data: bytes) -> bool:
    try:
        codec.check_depth(data, key=layout.HEAD, limit=codec.MAX_DEPTH - LEVELS_ABOVE)
    except DocumentError:
        return False
    return True


def read(files: JobFiles, entry: PendingEntry | EndedEntry, held: PendingDocument | None = None) -> PendingDocument:
    """Read the document of an attempt: one request, unless the head holds it.

    Args:
        files: the job's files.
        entry: the attempt.
        held: the document of an ended attempt, if the caller knows a head that held it.

    Raises:
        DocumentError: the document is broken, or of another checkpoint.
    """
    return _whole(_found(files, entry, held))


def _whole(document: PendingDocument) -> PendingDocument:
    unread.read_all(document)
    return document


def _found(files: JobFiles, entry: PendingEntry | EndedEntry, held: PendingDocument | None) -> PendingDocument:
    key = layout.HEAD
    document = entry.document if isinstance(entry, PendingEntry) else held
    if document is None:
        key = layout.pending(entry.id, entry.token)
        document = files.read(PendingDocument, key)[0]
    found = (document.job, document.checkpoint, document.token, document.epoch)
    if found != (files.job, entry.id, entry.token, entry.epoch):
        raise DocumentError(
            "the document describes another checkpoint",
            key=files.full(key),
            expected=entry.id,
            found=document.checkpoint,
        )
    return document


def set_aside(files: JobFiles, old: Head, new: Head) -> None:
    """Write, before the swap, the documents in `old` of attempts that end in `new` without completing.

    The epoch's next attempt is made from the document (semantics F2, D5), notices find staged committables by it (D4),
    and users look up missing stages in it (O1), until the cleaner deletes it. If `new` is not swapped in after all, the
    object does no harm.
    """
    for entry in old.pending:
        ended = new.ended_by_id(entry.id)
        if entry.document is not None and ended is not None and ended.status is not Status.COMPLETED:
            # A failed condition means that another process has written the same content.
            files.create(layout.pending(entry.id, entry.token), entry.document)


# Answers of an attempt's master hooks, as a document that is created once (semantics T7).


def hooks_missing(files: JobFiles, ref: HooksRef | None) -> tuple[str, ...]:
    """Give the hooks that have not answered: all or none. Costs one request, without hooks no request."""
    return () if ref is None or files.has(layout.hook_answers(ref.home, ref.token)) else ref.names


def read_hook_answers(files: JobFiles, ref: HooksRef) -> tuple[HookAnswer, ...]:
    """Read the answers of the hooks; a hook with nothing to keep has no answer.

    Raises:
        DocumentError: the answers cannot be read, or are those of other hooks.
    """
    key = layout.hook_answers(ref.home, ref.token)
    document, _ = files.read(HookAnswersDocument, key)
    if document.token != ref.token or document.hooks != ref.names:
        raise DocumentError("the document holds the answers of other hooks", key=files.full(key))
    for answer in document.answers:
        answered_state(answer, key=files.full(key))
    return document.answers


def answered_state(answer: HookAnswer, *, key: str) -> Json | bytes:
    """Give a hook's answer as the hook gave it.

    Raises:
        DocumentError: its bytes are not base64.
    """
    if answer.data is None:
        return answer.value
    try:
        return base64.b64decode(answer.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DocumentError(f"the bytes of the hook {answer.name} are not base64: {error}", key=key) from error
