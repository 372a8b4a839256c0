"""The documents and files of one job in a store: typed, checked, below the job's own prefix."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from os.path import commonpath
from typing import IO, TypeVar

from ...storage.checksums import Hasher, algorithm_of, is_checksum
from ...storage.errors import DocumentError, GoneError, OutcomeUnknownError, UnavailableError
from ...storage.port import Blob, ConditionFailed, DeleteFailure, ObjectStat, ObjectStore, PendingUpload, Written
from ..documents import codec, layout, unread
from ..documents.acknowledgement import (
    AckDocument,
    AckPart,
    CompactionDocument,
    DeclineDocument,
    ManifestDocument,
    StateHandle,
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
from ..documents.strict_json import to_json
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
    try:
        return unread.encode({"format": codec.FORMAT, "kind": kind}, document)
    except DocumentError as error:
        raise InvalidStateError(
            f"a value is nested more than {codec.MAX_DEPTH} deep and could not be read back. Make it flatter",
            kind_of_document=kind,
        ) from error


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
        kind, exact = KINDS[cls], cls in REWRITTEN
        document = unread.read(cls, data, kind=kind, key=where, max_bytes=max_bytes, exact=exact)
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
        raise self._all_answers_lost(key)

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
        raise self._all_answers_lost(ref.key)

    def _all_answers_lost(self, key: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            "the answers of a create were lost again and again; whether it landed is not known. Delete nothing",
            key=self.full(key),
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


# Checks that the files of a checkpoint exist and are unaltered (semantics R1, W9).
#
# The store's etag is the fast path: a listing shows it, for a thousand files a request. A copy may have another etag,
# so a different one proves nothing: the checksum that was recorded when the file was written decides. The store's
# checksum is compared first; if that differs too, or the store has none, the file is read. So a file is called altered
# only after its bytes were read, except a file of version 0.1, of which only the etag is known. A byte that flips on
# the medium changes no etag; only reading the file shows it (`deep`).


THREADS = 8
"""Files that are looked up, or read, at once."""

PAGE = 1_000
"""Objects that one request lists."""

GONE = "it is gone"


class FileCheck:
    """Checks files of one job.

    Args:
        files: the job's.
        deep: read every file, not only those whose etag has changed.
        on_checked: called with each file that has been checked.
    """

    def __init__(
        self, files: JobFiles, *, deep: bool = False, on_checked: Callable[[StateHandle], None] = lambda _: None
    ) -> None:
        self._files = files
        self._deep = deep
        self._on_checked = on_checked
        self.unknown = 0
        """Files of a deep check without a known checksum: a byte that flipped on the medium is not found in them."""

    def damaged(self, handles: Iterable[StateHandle]) -> Iterator[tuple[StateHandle, str]]:
        """Yield the files that are gone or altered, each with its problem.

        One listing goes over all their folders, a request for a thousand objects. A file that the listing lacks is
        looked up by name (R1: a 404 that a listing confirms).
        """
        by_folder: dict[str, list[StateHandle]] = {}
        for handle in handles:
            by_folder.setdefault("/".join(handle.path.split("/")[:3]) + "/", []).append(handle)
        if self._deep:
            for _, expected in sorted(by_folder.items()):
                yield from self._each(self._read_through, expected)
            return
        expected = [handle for folder in sorted(by_folder) for handle in by_folder[folder]]
        named = {handle.path for handle in expected}
        present = {found.key: found for found in self._listed(sorted(by_folder)) if found.key in named}
        doubtful: list[StateHandle] = []
        for handle in expected:
            found = present.get(handle.path)
            if found is None or (found.etag is None and found.size_bytes == handle.size_bytes):
                try:
                    found = self._files.stat(handle.path)
                except GoneError:
                    self._on_checked(handle)
                    yield handle, GONE
                    continue
            if found.size_bytes == handle.size_bytes and found.etag != handle.checksum and known(handle):
                doubtful.append(handle)  # it may be a copy
                continue
            self._on_checked(handle)
            if (problem := _differs(handle, found)) is not None:
                yield handle, problem
        yield from self._each(lambda handle: altered(self._files, handle), doubtful)

    def _listed(self, folders: list[str]) -> Iterator[ObjectStat]:
        """List all keys from the first of some folders to the last.

        After as many pages as there are folders, the rest is listed folder by folder.
        """
        if len(folders) < 2:
            for folder in folders:
                yield from self._files.listing(folder)
            return
        shared = commonpath(folders)
        reached, left = "", PAGE * len(folders)
        for found in self._files.listing(f"{shared}/" if shared else "", start_after=folders[0]):
            if found.key > folders[-1] and not found.key.startswith(folders[-1]):
                return
            yield found
            reached, left = found.key, left - 1
            if not left:
                break
        for folder in folders if not left else ():
            if folder > reached or reached.startswith(folder):
                yield from self._files.listing(folder)

    def _each(
        self, check: Callable[[StateHandle], str | None], handles: list[StateHandle]
    ) -> Iterator[tuple[StateHandle, str]]:
        if not handles:
            return
        with ThreadPoolExecutor(THREADS, "cairn-verify") as pool:
            for handle, problem in zip(handles, pool.map(check, handles), strict=True):
                self._on_checked(handle)
                if problem is not None:
                    yield handle, problem

    def _read_through(self, handle: StateHandle) -> str | None:
        try:
            expected = known(handle)
            if expected is None:
                found = self._files.stat(handle.path)
                problem = _differs(handle, found)
                if problem is not None:
                    return problem
                # The etag shows that the file was not written again, so the store's checksum is the original one.
                expected = found.checksum
            if expected is None:
                self.unknown += 1
                return None
            return _read(self._files, handle, expected)
        except GoneError:
            return GONE


def altered(files: JobFiles, handle: StateHandle) -> str | None:
    """Say how a file differs from its written content, whatever its etag is now; None if it does not."""
    try:
        found = files.stat(handle.path)
        expected = known(handle)
        if expected is None or found.etag == handle.checksum or found.size_bytes != handle.size_bytes:
            return _differs(handle, found)
        # A store may have a wrong checksum of a multipart copy (versitygw 1.8: measured), so the file is read, too.
        return None if found.checksum == expected else _read(files, handle, expected)
    except GoneError:
        return GONE


def known(handle: StateHandle) -> str | None:
    """Give the checksum of a file's content; None where only its etag is known (version 0.1)."""
    return handle.content or (handle.checksum if is_checksum(handle.checksum) else None)


def _differs(handle: StateHandle, found: ObjectStat) -> str | None:
    if found.size_bytes != handle.size_bytes:
        return f"its size differs: expected {handle.size_bytes} bytes, found {found.size_bytes}"
    if found.etag != handle.checksum:
        return f"its content differs: expected {handle.checksum}, found {found.etag}"
    return None


def _read(files: JobFiles, handle: StateHandle, expected: str) -> str | None:
    size_bytes, checksum = files.checksum(handle.path, algorithm_of(expected))
    if size_bytes != handle.size_bytes:
        return f"its size differs: expected {handle.size_bytes} bytes, found {size_bytes}"
    return None if checksum == expected else f"its content differs: expected {expected}, found {checksum}"
