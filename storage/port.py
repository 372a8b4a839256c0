"""The object-store port: Cairn's requests to a store, and the guarantees that Cairn relies on.

Keys are relative to the store's root, use `/`, and every segment matches the grammar of semantics W1. A conditional
write has two results, `Written` and `ConditionFailed`. The adapter settles a lost answer by a write id that travels
with the object; where this is impossible it raises `OutcomeUnknownError`: then nothing may be deleted (semantics W2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import IO

from .checksums import SHA256
from .errors import DocumentError, StorageError
from .records import dataclass


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """An enabled lifecycle rule that may apply to the objects below a root."""

    name: str
    prefix: str
    """Prefix of keys in the bucket; empty for the whole bucket."""
    expires: str = ""
    """When the rule deletes an object, such as `after 30 days`; empty if it does not."""
    archives: str = ""
    """The storage class to which the rule moves objects, which delays reads; empty if it moves none."""
    ends_old_versions: bool = False
    """True if the rule deletes versions that have been replaced or deleted."""


@dataclass(frozen=True, slots=True)
class BucketRules:
    """The rules of a root's bucket."""

    bucket: str
    lifecycle: tuple[LifecycleRule, ...] = ()
    versioned: bool = False
    """True if a delete keeps the object as an old version."""
    kept_for: str = ""
    """Rule that keeps each deleted or replaced object for a time, such as `soft delete, 7 days`; empty if none does."""
    retention: str = ""
    """Time that Object Lock keeps every new object, such as `GOVERNANCE, 30 days`; empty if it does not."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Rules that could not be read (`lifecycle`, `versioning`, `object-lock`), with the reason."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One object's entry in a listing or a stat."""

    key: str
    size_bytes: int
    etag: str | None
    """Opaque content tag, only ever compared (semantics W3). None in listings of stores where it costs a read."""
    checksum: str | None = None
    """Checksum of the whole content with its algorithm (`checksums.py`), as the store recorded it at the write; it
    survives a copy (semantics W9). None in listings, and if the store has none."""
    modified_ms: int | None = field(default=None, compare=False)
    """Time of the last write by the store's clock; in listings only."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A whole object."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Written:
    """The conditional write happened once, and was ours."""

    etag: str


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """The condition did not hold: another object is there, or (for a swap) none."""

    etag: str | None
    """Tag of the current object; None if there is none or its tag is unknown."""


WriteResult = Written | ConditionFailed
"""Result of a conditional write; an unknown outcome is an `OutcomeUnknownError`."""


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """One object that a batched delete could not remove (Object Lock, a missing right: semantics W7)."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload that was neither completed nor aborted; no listing shows it (semantics W7)."""

    key: str
    upload_id: str
    initiated_ms: int


DeleteFailures = list[DeleteFailure]
"""Objects that a batched delete could not remove; empty if all are gone."""


class ObjectStore(ABC):
    """A root in an object store. Safe to use from several threads and processes at once.

    Besides its documented errors, every method may raise `InvalidKeyError` (bad key), `ForbiddenError` (credentials
    refused) and `UnavailableError` (no answer within the bounded retries).
    """

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root as given by the user, normalised, without a trailing slash: `s3://bucket/prefix`, `file:///dir`."""

    @abstractmethod
    def below(self, folder: str) -> ObjectStore:
        """Return a store rooted at a folder of this one; a symlink on the way is refused at the first use.

        Args:
            folder: the folder's key, without a trailing slash.
        """

    def at_once(self) -> ObjectStore:
        """Return this store without waits for a refusal to pass: for optional requests."""
        return self

    @abstractmethod
    def describe(self) -> str:
        """Describe the store for error messages (scheme, endpoint, root; no credentials). Cannot fail."""

    @abstractmethod
    def spark_url(self, key: str) -> str:
        """Return the URL by which Spark reads or writes `key` (a folder or an object): `s3a://…`, `file:///…`."""

    def check_root(self) -> None:  # noqa: B027 - by default there is nothing to check
        """Check that the root exists, in a store with folders; in others a root without objects exists.

        Raises:
            GoneError: the folder does not exist.
        """

    @abstractmethod
    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        """Read a whole object.

        Args:
            key: the object.
            max_bytes: refuse a larger object before its body is read (semantics W5).

        Raises:
            GoneError: there is no such object.
            DocumentError: the object is larger than `max_bytes`.
        """

    def get_if_changed(self, key: str, etag: str, *, max_bytes: int | None = None) -> Blob | None:
        """Read a whole object unless its tag is unchanged (`If-None-Match`): one request, without a body if unchanged.

        Args:
            key: the object.
            etag: the object's tag at the last read or write.
            max_bytes: refuse a larger object before its body is read (semantics W5).

        Returns:
            The object; None if its tag is unchanged.

        Raises:
            GoneError: there is no such object.
            DocumentError: the object is larger than `max_bytes`.
        """
        found = self.get(key, max_bytes=max_bytes)
        return None if found.etag == etag else found

    @abstractmethod
    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read up to `length` bytes from 0-based offset `start`; fewer, or none, at the object's end.

        Raises:
            GoneError: there is no such object.
            StorageError: `start` or `length` is negative.
        """

    @abstractmethod
    def create(self, key: str, data: bytes) -> WriteResult:
        """Write an object only if none exists (`If-None-Match: *`).

        Returns `ConditionFailed` if another writer's object exists. A caller whose object's name only that caller uses,
        or whose content is the same from every writer, may compare and take that as success.

        Raises:
            ConflictError: 409 until the retries ran out; nothing landed.
            OutcomeUnknownError: the answer was lost and could not be settled.
        """

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        """Write an object only if none exists, as `create` does, from a file that need not fit into memory.

        Args:
            key: the object.
            source: seekable; written whole, from its first byte, and again if a request is repeated.

        Raises:
            ConflictError: 409 until the retries ran out; nothing landed.
            OutcomeUnknownError: the answer was lost and could not be settled.
        """
        source.seek(0)
        return self.create(key, source.read())

    @abstractmethod
    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        """Replace an object only if it still has `expected_etag` (`If-Match`).

        Returns `ConditionFailed` if not (with `etag=None` if the object is gone: semantics W3).

        Raises:
            ConflictError: 409 until the retries ran out; nothing landed.
            OutcomeUnknownError: the answer was lost, and the current object does not tell whether our write came
                between.
        """

    def keeps_write_ids(self, key: str) -> bool:  # noqa: ARG002
        """Tell whether a lost answer can be settled: whether an object's write id can be read back.

        True for stores whose answers cannot be lost.

        Args:
            key: an object that this store created or replaced.

        Raises:
            GoneError: there is no such object.
        """
        return True

    @abstractmethod
    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        """Yield the objects under `prefix` in key order (UTF-8 bytes), page by page, after `start_after` if given.

        Args:
            prefix: empty, or ending in `/` (semantics W1: `job-1/` never shows `job-10/`).
            start_after: a whole key; listing begins with the first key greater than it.
        """

    @abstractmethod
    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the bare names directly under `prefix` (empty or ending in `/`) that hold objects, in order."""

    @abstractmethod
    def stat(self, key: str) -> ObjectStat:
        """Return size, etag and checksum of one object; for local files this reads the file.

        Raises:
            GoneError: there is no such object.
        """

    @abstractmethod
    def copy(self, source: str, target: str) -> WriteResult:
        """Copy an object within the store, only if `target` does not exist.

        Raises:
            GoneError: `source` does not exist.
        """

    def copy_from(
        self,
        source: ObjectStore,  # noqa: ARG002
        source_key: str,  # noqa: ARG002
        key: str,  # noqa: ARG002
        *,
        etag: str,  # noqa: ARG002
        algorithms: Sequence[str] = (SHA256,),  # noqa: ARG002
        content: str | None = None,  # noqa: ARG002
    ) -> tuple[str, ...] | None:
        """Copy an object from another store on the same server, without its bytes passing through here.

        For content that is the same from every writer: an object at `key` may be overwritten.

        Args:
            source: the other store.
            source_key: the object's key there.
            key: the object's new key.
            etag: the object's tag at its source.
            algorithms: the checksums to return (`checksums.py`); the server copies once for each.
            content: the checksum that the writer of the object with this tag recorded. A store whose tag names one
                content for ever returns it, if the server itself compares the copy with its source.

        Returns:
            The checksums, computed by the server from the bytes that it copied, or `content`. None if they are not
            available: the stores have no server in common, the server does not copy or compute, or the object has
            another tag. Then nothing is known about the object at `key`.

        Raises:
            GoneError: there is no such object.
        """
        return None

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        """Delete objects in batches; return those that could not be deleted. Missing objects count as deleted."""

    def sync(self, keys: Iterable[str]) -> None:  # noqa: ARG002
        """Wait until objects written by another process, and the folders that lead to them, are on the disk.

        This store's own writes are durable on return. Spark writes local files without waiting for the disk.

        Args:
            keys: the objects.

        Raises:
            GoneError: there is no such object.
        """
        return

    def make_folder(self, prefix: str) -> None:  # noqa: ARG002
        """Make a folder, in stores with folders: Hadoop starts a process for each folder that it makes itself.

        Args:
            prefix: ends in `/`.

        Raises:
            InvalidKeyError: an object or a symlink is on the way.
        """
        return

    @abstractmethod
    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """Yield the pending multipart uploads under `prefix` (empty or ending in `/`); none for local files."""

    @abstractmethod
    def abort_upload(self, upload: PendingUpload) -> None:
        """Abort a pending upload; a missing one counts as aborted."""

    def now_ms(self) -> int | None:
        """Return the time by the store's own clock, to the second; None if the store has none."""
        return None

    def bucket_rules(self) -> BucketRules | None:
        """Return the rules by which the store itself deletes, moves or keeps objects; None if it has none."""
        return None


def check_range(key: str, start: int, length: int) -> None:
    """Check a byte range.

    Raises:
        StorageError: `start` or `length` is negative.
    """
    if start < 0 or length < 0:
        raise StorageError(
            "a range starts at 0 or later and is not negative",
            code="invalid_request",
            key=key,
            start=start,
            length=length,
        )


def check_size(store: str, key: str, size_bytes: int, max_bytes: int | None) -> None:
    """Check the size of an object before it is read into memory.

    Raises:
        DocumentError: the object is larger than `max_bytes`.
    """
    if max_bytes is not None and size_bytes > max_bytes:
        raise DocumentError(
            "the object is larger than it may be, so it was not read. Look at what is there",
            store=store,
            key=key,
            size_bytes=size_bytes,
            max_bytes=max_bytes,
        )


def gather(store: str, key: str, chunks: Iterator[bytes], max_bytes: int | None) -> bytes:
    """Read a body that may be longer than announced: at most one chunk beyond the limit."""
    found = bytearray()
    for chunk in chunks:
        found += chunk
        check_size(store, key, len(found), max_bytes)
    return bytes(found)


def first(chunks: Iterator[bytes], length: int) -> bytes:
    """Read the first `length` bytes of a body, and no chunk beyond, even if the store sends more."""
    found = bytearray()
    for chunk in chunks:
        found += chunk
        if len(found) >= length:
            break
    del found[length:]
    return bytes(found)
