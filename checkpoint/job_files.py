"""The documents of one job in a store: typed, checked, below the job's own prefix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

from ..storage.errors import DocumentError
from ..storage.port import Blob, DeleteFailure, Lost, ObjectStat, ObjectStore, PendingUpload, Written
from . import documents, layout
from .codec import from_json, to_json
from .head import Head
from .model import (
    AckDocument,
    AckPart,
    DeclineDocument,
    DocumentRef,
    EpochCompletedDocument,
    EpochDocument,
    Handover,
    PendingDocument,
)

T = TypeVar("T")

KINDS: dict[type, str] = {
    Head: "cairn.head",
    EpochDocument: "cairn.epoch",
    EpochCompletedDocument: "cairn.epoch-completed",
    PendingDocument: "cairn.pending",
    Handover: "cairn.handover",
    AckDocument: "cairn.ack",
    AckPart: "cairn.ack-part",
    DeclineDocument: "cairn.decline",
}
"""The `kind` that each document carries."""


def encode(document: object) -> bytes:
    """Write a document with its kind and format."""
    body = to_json(document)
    return documents.encode({"format": documents.FORMAT, "kind": KINDS[type(document)], **body})


def reference(key: str, data: bytes) -> DocumentRef:
    """Describe a document so that a later reader knows it is the same."""
    return DocumentRef(key=key, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class JobFiles:
    """One job's part of a store.

    Args:
        store: the storage root.
        job: the job's name (semantics W1).

    Raises:
        InvalidNameError: the name does not match the grammar.
    """

    def __init__(self, store: ObjectStore, job: str) -> None:
        self.store = store
        self.job = layout.check_job(job)
        self.prefix = f"{job}/"

    def full(self, key: str) -> str:
        """Give the key as the store knows it."""
        return self.prefix + key

    def bare(self, full_key: str) -> str:
        """Give a key that the store listed, relative to the job's prefix."""
        return full_key.removeprefix(self.prefix)

    def spark_url(self, key: str) -> str:
        """Give the URL by which Spark reads or writes `key`."""
        return self.store.spark_url(self.full(key))

    def read(self, cls: type[T], key: str, *, max_bytes: int = documents.MAX_MARKER_BYTES) -> tuple[T, Blob]:
        """Read one document and the blob that it was read from.

        Raises:
            GoneError: there is none.
            DocumentError: it is broken, of another job, kind or format, or larger than `max_bytes`.
        """
        blob = self.store.get(self.full(key), max_bytes=max_bytes)
        return self.parse(cls, key, blob.data, max_bytes=max_bytes), blob

    def parse(self, cls: type[T], key: str, data: bytes, *, max_bytes: int = documents.MAX_MARKER_BYTES) -> T:
        """Parse the bytes of a document of this job.

        Raises:
            DocumentError: as `read`.
        """
        where = self.full(key)
        body = documents.decode(data, kind=KINDS[cls], key=where, max_bytes=max_bytes)
        document = from_json(cls, body, key=where, exact=cls is Head)
        found = getattr(document, "job", self.job)
        if found != self.job:
            raise DocumentError("the document belongs to another job", key=where, expected=self.job, found=found)
        return document

    def create(self, key: str, document: object) -> Written | Lost:
        """Write a document that is made once (semantics W4: what it means is judged by the head)."""
        return self.store.create(self.full(key), encode(document))

    def create_bytes(self, key: str, data: bytes) -> Written | Lost:
        """Write bytes that are made once."""
        return self.store.create(self.full(key), data)

    def stat(self, key: str) -> ObjectStat:
        """Give size and tag of one object.

        Raises:
            GoneError: there is none.
        """
        found = self.store.stat(self.full(key))
        return ObjectStat(key=key, size_bytes=found.size_bytes, etag=found.etag)

    def listing(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        """Yield objects below `prefix` in key order, with keys relative to the job's prefix."""
        after = None if start_after is None else self.full(start_after)
        for found in self.store.list(self.full(prefix), start_after=after):
            yield ObjectStat(key=self.bare(found.key), size_bytes=found.size_bytes, etag=found.etag)

    def uploads(self) -> Iterator[PendingUpload]:
        """Yield the job's pending multipart uploads; their keys are the store's."""
        return self.store.uploads(self.prefix)

    def delete(self, keys: Iterable[str]) -> list[DeleteFailure]:
        """Delete objects of the job; what could not be deleted comes back (semantics W7)."""
        return self.store.delete(self.full(key) for key in keys)
