"""The document of an attempt: in its entry in the head while it is pending and small, otherwise an object of its own.

Held in the head it costs no request of its own, neither to write nor to read. It lies there only while the attempt is
pending. Before a swap that ends the attempt without completing it, the process that swaps sets it aside: writes it as
the object that a large one is from the start. So what ended attempts lend, and notices need, is always an object, and
the head does not grow with its history.

Order of an end: the object, then the swap. A crash between the two leaves the attempt pending, and an object that the
cleaner keeps as long as it is pending, and takes once it has completed. The process that ends it then finds the same
content.
"""

from __future__ import annotations

from collections.abc import Callable

from ...storage.errors import DocumentError, GoneError
from ..documents import codec, layout
from ..documents.attempt import Execution, PendingDocument
from ..documents.entries import EndedEntry, PendingEntry
from ..documents.head import Head
from ..errors import InvalidConfigError
from ..reasons import Status
from .job_files import JobFiles, encode

MAX_HELD_BYTES = 16 * 1024
"""Of one document that the head holds, as JSON: about 100 stages."""

MAX_HELD = 4
"""Documents that the head holds at once. With more pending, later ones are objects, so that no swap of the head carries
more than 64 KiB of them."""

LEVELS_ABOVE = 3
"""Levels of nesting above a document that the head holds: the head, its pending entries, the entry."""


class AttemptDocuments:
    """Reads the documents of one job's attempts.

    Args:
        files: the job's files.
        held: gives the document of an attempt by its token, where a head that this process knows holds it.
    """

    def __init__(self, files: JobFiles, held: Callable[[str], PendingDocument | None]) -> None:
        self._files = files
        self._held = held
        self._last: dict[str, PendingDocument] = {}
        """The document read last, by its token: made once, it is not read twice. Which one counts, the head says."""

    def of(self, entry: PendingEntry | EndedEntry) -> PendingDocument:
        """Read what an attempt expects (or expected).

        Raises:
            GoneError: the attempt is past and cleaned.
            DocumentError: the document is broken, or another checkpoint's.
        """
        # One look: a driver's threads ask the same coordinator, and another may put its document there meanwhile.
        known = self._last.get(entry.token)
        if known is not None:
            return known
        document = read(self._files, entry, self._held(entry.token))
        if isinstance(entry, PendingEntry):
            self._last = {entry.token: document}
        return document

    def readable(self, entry: PendingEntry | EndedEntry | None) -> PendingDocument | None:
        """Read the document of an attempt; one that is gone or broken lends nothing to the next."""
        try:
            return self.of(entry) if entry is not None else None
        except (GoneError, DocumentError):
            return None

    def lent_by(self, ended: EndedEntry | None) -> PendingDocument | None:
        """Read what an attempt that has ended lends to the next; None where it lends nothing.

        What was left behind may be being deleted, so it lends nothing although it may be there still.
        """
        return None if ended is None or ended.left_behind else self.readable(ended)


def execution_of(document: PendingDocument, stage: str) -> Execution:
    """Give a stage's execution in an attempt.

    Raises:
        InvalidConfigError: the attempt does not expect the stage.
    """
    try:
        return document.executions[stage]
    except KeyError:
        raise InvalidConfigError(
            "the pending checkpoint does not expect this stage: the DAG has changed since it was triggered; clear "
            "the task that triggers the checkpoint",
            job=document.job,
            checkpoint=document.checkpoint,
            stage=stage,
            expected=", ".join(sorted(document.executions)),
        ) from None


def write(files: JobFiles, head: Head, document: PendingDocument) -> PendingDocument | None:
    """Give what the entry of a new attempt is to hold: its document, or None once that is an object of its own.

    Raises:
        InvalidStateError: it is too large or nested too deeply to be read back.
    """
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
    """Give what an attempt expects (or expected): one read, where the head does not hold it.

    Args:
        files: the job's files.
        entry: the attempt.
        held: the document of an attempt that has ended, where the caller knows a head that held it.

    Raises:
        GoneError: the attempt is past and cleaned.
        DocumentError: the document is broken, or another checkpoint's.
    """
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
    """Write the documents that `old` holds of attempts that end in `new` without completing; then `new` may be swapped.

    The epoch's next attempt is made from it (semantics F2, D5), a notice needs it to find what was staged (D4), and
    users ask what was missing (O1), until the cleaner takes it. Where `new` is not swapped in after all, the object
    does no harm.
    """
    for entry in old.pending:
        ended = new.ended_by_id(entry.id)
        if entry.document is not None and ended is not None and ended.status is not Status.COMPLETED:
            # A failed condition means that another process has written it: the content is the same.
            files.create(layout.pending(entry.id, entry.token), entry.document)
