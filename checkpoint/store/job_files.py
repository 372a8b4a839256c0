"""The documents of one job in a store: typed, checked, below the job's own prefix."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import IO, TypeVar

from ...storage.checksums import Hasher
from ...storage.errors import DocumentError, GoneError, OutcomeUnknownError, UnavailableError
from ...storage.port import Blob, ConditionFailed, DeleteFailure, ObjectStat, ObjectStore, PendingUpload, Written
from ..documents import codec, layout
from ..documents.acknowledgement import (
    AckDocument,
    AckPart,
    CompactionDocument,
    DeclineDocument,
    ManifestDocument,
    TableDocument,
)
from ..documents.attempt import (
    DocumentRef,
    EpochCompletedDocument,
    EpochDocument,
    Handover,
    HookAnswersDocument,
    PendingDocument,
)
from ..documents.head import Head
from ..documents.server_record import ServersDocument
from ..documents.strict_json import from_json, to_json
from ..errors import InvalidStateError, UnreachableError

T = TypeVar("T")

KINDS: dict[type, str] = {
    Head: "cairn.head",
    EpochDocument: "cairn.epoch",
    EpochCompletedDocument: "cairn.epoch-completed",
    PendingDocument: "cairn.pending",
    Handover: "cairn.handover",
    HookAnswersDocument: "cairn.hooks",
    AckDocument: "cairn.ack",
    AckPart: "cairn.ack-part",
    DeclineDocument: "cairn.decline",
    ServersDocument: "cairn.servers",
    TableDocument: "cairn.table",
    ManifestDocument: "cairn.manifest",
    CompactionDocument: "cairn.compaction",
}
"""The `kind` that each document carries."""

REWRITTEN = frozenset({Head, Handover, ServersDocument})
"""Documents that are read, changed and written again: unknown fields would be lost, and so are refused."""

READ_BYTES = 1024 * 1024
"""Bytes of a large object that one request reads."""

PIECE_BYTES = 8 * 1024 * 1024
"""Bytes of a data file that one request reads; so much of each file is in memory."""

CREATE_TRIES = 8
"""Times that a create whose answer was lost is checked and, if no object is there, sent again."""


def encode(document: object) -> bytes:
    """Write a document with its kind and format.

    Raises:
        InvalidStateError: a value is not JSON, or nested too deeply to be read back.
    """
    kind = KINDS[type(document)]
    data = codec.encode({"format": codec.FORMAT, "kind": kind, **to_json(document)})
    try:
        codec.check_depth(data, key=kind)
    except DocumentError as error:
        raise InvalidStateError(
            f"a value is nested more than {codec.MAX_DEPTH} deep and could not be read back. Make it flatter",
            kind_of_document=kind,
        ) from error
    return data


def reference(key: str, data: bytes) -> DocumentRef:
    """Make a reference by which a later reader recognises the document."""
    return DocumentRef(key=key, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


class JobFiles:
    """One job's part of a store.

    Raises:
        InvalidKeyError: the name does not match the grammar.
    """

    def __init__(self, store: ObjectStore, job: str) -> None:
        self.store = store
        self.job = layout.check_job(job)
        self.prefix = f"{job}/"

    @property
    def storage_option(self) -> str:
        """The command-line option that names the job's storage, for commands in messages."""
        return f"--storage {self.store.uri}"

    def full(self, key: str) -> str:
        """Give the store's key, with the job's prefix."""
        return self.prefix + key

    def bare(self, full_key: str) -> str:
        """Give a store's key relative to the job's prefix."""
        return full_key.removeprefix(self.prefix)

    def spark_url(self, key: str) -> str:
        """Give the URL by which Spark reads or writes `key`."""
        return self.store.spark_url(self.full(key))

    def read(self, cls: type[T], key: str, *, max_bytes: int = codec.MAX_MARKER_BYTES) -> tuple[T, Blob]:
        """Read one document, with its blob."""
        blob = self.get(key, max_bytes=max_bytes)
        return self.parse(cls, key, blob.data, max_bytes=max_bytes), blob

    def get(self, key: str, *, max_bytes: int) -> Blob:
        """Read one object whole."""
        with _standing_bucket():
            return self.store.get(self.full(key), max_bytes=max_bytes)

    def read_if_changed(
        self, cls: type[T], key: str, etag: str | None, *, max_bytes: int = codec.MAX_MARKER_BYTES
    ) -> tuple[T, Blob] | None:
        """Read one document; None if it still has the tag `etag`. Without a tag, like `read`."""
        if etag is None:
            return self.read(cls, key, max_bytes=max_bytes)
        with _standing_bucket():
            blob = self.store.get_if_changed(self.full(key), etag, max_bytes=max_bytes)
        return None if blob is None else (self.parse(cls, key, blob.data, max_bytes=max_bytes), blob)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read up to `length` bytes from offset `start`."""
        with _standing_bucket():
            return self.store.read_range(self.full(key), start, length)

    def parse(self, cls: type[T], key: str, data: bytes, *, max_bytes: int = codec.MAX_MARKER_BYTES) -> T:
        """Parse the bytes of a document of this job.

        Raises:
            DocumentError: as `read`.
        """
        where = self.full(key)
        body = codec.decode(data, kind=KINDS[cls], key=where, max_bytes=max_bytes)
        document = from_json(cls, body, key=where, exact=cls in REWRITTEN)
        found = getattr(document, "job", self.job)
        if found != self.job:
            raise DocumentError("the document belongs to another job", key=where, expected=self.job, found=found)
        return document

    def create(self, key: str, document: object) -> Written | ConditionFailed:
        """Create a document that never changes (semantics W4: the head decides whether it counts).

        Raises:
            InvalidStateError: the document is too large to be read back.
            OutcomeUnknownError: all answers were lost; delete nothing.
        """
        data = encode(document)
        if len(data) > codec.MAX_MARKER_BYTES:
            raise InvalidStateError(
                "the document is larger than may be read back; put the bulk into files and name those",
                key=self.full(key),
                size_bytes=len(data),
                limit_bytes=codec.MAX_MARKER_BYTES,
                largest=codec.largest_in(to_json(document)),
            )
        return self.create_bytes(key, data)

    def replace(self, key: str, document: object, *, expected_etag: str) -> Written | ConditionFailed:
        """Replace a document if it is still as it was read.

        Raises:
            ConflictError: the store refused until the tries ran out; nothing landed.
            OutcomeUnknownError: the answer was lost; the write may have landed.
        """
        with _standing_bucket():
            return self.store.replace(self.full(key), encode(document), expected_etag=expected_etag)

    def create_bytes(self, key: str, data: bytes) -> Written | ConditionFailed:
        """Create an object; after a lost answer, an object with the same content counts as written.

        Raises:
            OutcomeUnknownError: all answers were lost; delete nothing.
        """
        unknown: OutcomeUnknownError | None = None
        for _ in range(CREATE_TRIES):
            try:
                with _standing_bucket():
                    answer = self.store.create(self.full(key), data)
            except OutcomeUnknownError as error:
                unknown = error
            else:
                if unknown is None or isinstance(answer, Written):
                    return answer
                # The object may be ours: the create whose answer was lost may have landed after our look.
            standing = self._settle(key, data, unknown)
            if standing is not None:
                return standing
        raise OutcomeUnknownError(
            "the answers of a create were lost again and again; whether it landed is not known. Delete nothing",
            key=self.full(key),
            store=self.store.describe(),
        )

    def create_from(self, ref: DocumentRef, source: IO[bytes]) -> bool:
        """Create an object from a file; True if the object at `ref.key` is now the one that `ref` describes.

        Args:
            ref: key, size and hash of the content.
            source: seekable; read piece by piece, so that it need not fit into memory.

        Raises:
            OutcomeUnknownError: all answers were lost; delete nothing.
        """
        for _ in range(CREATE_TRIES):
            try:
                with _standing_bucket():
                    answer = self.store.create_from(self.full(ref.key), source)
                if isinstance(answer, Written):
                    return True
            except OutcomeUnknownError as error:
                unknown: OutcomeUnknownError | None = error
            else:
                unknown = None
            try:
                return self.stands(ref)
            except GoneError:
                continue  # the create never landed, or a cleaner deleted the object
            except UnavailableError as error:
                raise unknown or error from error
        raise OutcomeUnknownError(
            "the answers of a create were lost again and again; whether it landed is not known. Delete nothing",
            key=self.full(ref.key),
            store=self.store.describe(),
        )

    def stands(self, ref: DocumentRef) -> bool:
        """Tell whether the object at `ref.key` is the one that `ref` describes, reading it piece by piece."""
        digest, size_bytes = hashlib.sha256(), 0
        for piece in pieces(self.read_range, ref.key, READ_BYTES, ref.size_bytes):
            digest.update(piece)
            size_bytes += len(piece)
        return (size_bytes, digest.hexdigest()) == (ref.size_bytes, ref.sha256)

    def _settle(self, key: str, data: bytes, unknown: OutcomeUnknownError) -> Written | ConditionFailed | None:
        """Find out the outcome of a create whose answer was lost; None if no object is there (semantics W2)."""
        try:
            found = self.get(key, max_bytes=len(data))
        except GoneError:
            return None
        except DocumentError:
            return ConditionFailed(None)  # larger than ours, so not ours
        except UnavailableError as error:
            raise unknown from error
        return Written(found.etag) if found.data == data else ConditionFailed(found.etag)

    def stat(self, key: str) -> ObjectStat:
        """Give size, tag and checksum of one object."""
        with _standing_bucket():
            found = self.store.stat(self.full(key))
        return replace(found, key=key)

    def has(self, key: str) -> bool:
        """Tell whether there is an object."""
        try:
            self.stat(key)
        except GoneError:
            return False
        return True

    def checksum(
        self, key: str, algorithm: str, seen: Callable[[bytes], None] = lambda _piece: None
    ) -> tuple[int, str]:
        """Read an object and give its size and checksum (`sha256` or `crc64nvme`).

        Args:
            key: of the object.
            algorithm: of the checksum.
            seen: called with each piece that was read.
        """
        hasher, size_bytes = Hasher(algorithm), 0
        for piece in pieces(self.read_range, key, PIECE_BYTES):
            hasher.update(piece)
            seen(piece)
            size_bytes += len(piece)
        return size_bytes, hasher.checksum()

    def listing(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        """Yield objects below `prefix` in key order, with keys relative to the job's prefix."""
        after = None if start_after is None else self.full(start_after)
        with _standing_bucket():
            for found in self.store.list(self.full(prefix), start_after=after):
                yield ObjectStat(key=self.bare(found.key), size_bytes=found.size_bytes, etag=found.etag)

    def uploads(self) -> Iterator[PendingUpload]:
        """Yield the job's pending multipart uploads; their keys are the store's."""
        with _standing_bucket():
            yield from self.store.uploads(self.prefix)

    def delete(self, keys: Iterable[str]) -> list[DeleteFailure]:
        """Delete objects of the job; return those that could not be deleted (semantics W7)."""
        with _standing_bucket():
            return self.store.delete(self.full(key) for key in keys)


def pieces(
    read_range: Callable[[str, int, int], bytes], key: str, at_once: int, size_bytes: int | None = None
) -> Iterator[bytes]:
    """Yield an object's bytes in pieces, until a piece is shorter than requested.

    With `size_bytes`, at most one byte more is requested, so that an object that has grown is noticed.
    """
    offset = 0
    while size_bytes is None or offset <= size_bytes:
        asked = at_once if size_bytes is None else min(at_once, size_bytes - offset + 1)
        piece = read_range(key, offset, asked)
        yield piece
        offset += len(piece)
        if len(piece) < asked:
            return


@contextmanager
def _standing_bucket() -> Iterator[None]:
    """Raise another error for a missing bucket than for a missing object (semantics W3)."""
    try:
        yield
    except GoneError as error:
        if error.code != "bucket_gone":
            raise
        raise UnreachableError(error.message, code="storage_lost", **error.fields) from error
