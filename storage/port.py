"""The object-store port: what Cairn asks of a store, and the promises it builds on.

Keys are relative to the store's root, use `/`, and every segment matches the grammar of semantics W1. A conditional
write has two answers, `Written` and `ConditionFailed`; a lost answer is settled inside the adapter by a write id that
travels with the object, and where that is impossible `OutcomeUnknownError` says so: then nothing may be deleted
(semantics W2).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from .bucket_rules import BucketRules
from .checksums import SHA256


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One object as a listing or a stat shows it."""

    key: str
    size_bytes: int
    etag: str | None
    """Opaque content tag, only ever compared (semantics W3). None in listings of stores where it costs a read."""
    checksum: str | None = None
    """Of the whole content, with its algorithm (`checksums.py`), as the store recorded it when the object was written;
    it survives a copy (semantics W9). None in listings, and where the store has none."""
    modified_ms: int | None = field(default=None, compare=False)
    """When it was written last, by the store's clock; in listings only."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A whole object."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Written:
    """The conditional write happened, once, and was ours."""

    etag: str


@dataclass(frozen=True, slots=True)
class ConditionFailed:
    """The condition did not hold: another object is there, or (for a swap) none at all."""

    etag: str | None
    """Tag of the object there now, None where there is none or it is not known."""


WriteResult = Written | ConditionFailed
"""How a conditional write ended; an outcome that is not known is an `OutcomeUnknownError`."""


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """One object that a batched delete could not remove (Object Lock, a missing right: semantics W7)."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class PendingUpload:
    """A multipart upload that was begun and neither completed nor aborted; no listing shows it (semantics W7)."""

    key: str
    upload_id: str
    initiated_ms: int


DeleteFailures = list[DeleteFailure]
"""What a batched delete could not remove; empty if all of it is gone."""


class ObjectStore(ABC):
    """A root in an object store. Safe to use from several threads and processes at once.

    Every method may raise `InvalidKeyError` (bad key), `ForbiddenError` (credentials refused) and `UnavailableError`
    (no answer within the bounded retries) besides what its own docstring names.
    """

    @property
    @abstractmethod
    def uri(self) -> str:
        """The root as given by the user, normalised, without a trailing slash: `s3://bucket/prefix`, `file:///dir`."""

    @abstractmethod
    def below(self, folder: str) -> ObjectStore:
        """Give a store that is rooted at a folder of this one; a symlink on the way there is refused when it is used.

        Args:
            folder: its key, without a slash at the end.
        """

    @abstractmethod
    def describe(self) -> str:
        """Name the store for error messages (scheme, endpoint, root; no credentials). Cannot fail."""

    @abstractmethod
    def spark_url(self, key: str) -> str:
        """Give the URL by which Spark reads or writes `key` (a folder or an object): `s3a://…` or `file:///…`."""

    def check_root(self) -> None:  # noqa: B027 - by default there is nothing to check
        """Check that the root is there, in a store that has folders; in others a root without objects is there.

        Raises:
            GoneError: there is no such folder.
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
        """Read a whole object unless it still has a tag (`If-None-Match`): one request, and no body where it has.

        Args:
            key: the object.
            etag: the tag that it had when it was last read or written.
            max_bytes: refuse a larger object before its body is read (semantics W5).

        Returns:
            The object, or None where it still has this tag.

        Raises:
            GoneError: there is no such object.
            DocumentError: the object is larger than `max_bytes`.
        """
        found = self.get(key, max_bytes=max_bytes)
        return None if found.etag == etag else found

    @abstractmethod
    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read up to `length` bytes from 0-based offset `start`; fewer, or none, at the end of the object.

        Raises:
            GoneError: there is no such object.
            InvalidRequestError: `start` or `length` is negative.
        """

    @abstractmethod
    def create(self, key: str, data: bytes) -> WriteResult:
        """Write an object only if none is there (`If-None-Match: *`).

        Returns `ConditionFailed` if another writer's object is there. A caller whose object has a name that only it
        uses, or whose content is the same from every writer, may take that as done after comparing.

        Raises:
            ConflictError: 409 until the tries ran out; nothing landed.
            OutcomeUnknownError: the answer was lost and could not be settled.
        """

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        """Write an object only if none is there, as `create` does, from a file that need not fit into memory.

        Args:
            key: the object.
            source: seekable; all of it is written, from its first byte, and again where a request is repeated.

        Raises:
            ConflictError: 409 until the tries ran out; nothing landed.
            OutcomeUnknownError: the answer was lost and could not be settled.
        """
        source.seek(0)
        return self.create(key, source.read())

    @abstractmethod
    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        """Swap an object only if it still has `expected_etag` (`If-Match`).

        Returns `ConditionFailed` (with `etag=None` if the object is gone: semantics W3) if it has not.

        Raises:
            ConflictError: 409 until the tries ran out; nothing landed.
            OutcomeUnknownError: the answer was lost, and the object there now does not tell whether ours came between.
        """

    def keeps_write_ids(self, key: str) -> bool:  # noqa: ARG002
        """Tell whether a lost answer can be settled: whether the write id of an object can be read back.

        True for stores whose answers cannot be lost.

        Args:
            key: an object that was created or swapped by this store.

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
        """Yield the names directly under `prefix` (empty or ending in `/`) that hold objects, in order, bare."""

    @abstractmethod
    def stat(self, key: str) -> ObjectStat:
        """Give size, etag and checksum of one object; for local files this reads it.

        Raises:
            GoneError: there is no such object.
        """

    @abstractmethod
    def copy(self, source: str, target: str) -> WriteResult:
        """Copy an object within the store, only if `target` does not exist yet.

        Raises:
            GoneError: there is no `source`.
        """

    def copy_from(
        self,
        source: ObjectStore,  # noqa: ARG002
        source_key: str,  # noqa: ARG002
        key: str,  # noqa: ARG002
        *,
        etag: str,  # noqa: ARG002
        algorithms: Sequence[str] = (SHA256,),  # noqa: ARG002
    ) -> tuple[str, ...] | None:
        """Copy an object of another store on the server that both have, so that no byte of it passes through here.

        For content that is the same from every writer: an object at `key` may be written over.

        Args:
            source: where it is.
            source_key: its key there.
            key: its key.
            etag: the tag that it has at its source.
            algorithms: of the checksums to be given (`checksums.py`); the server copies once for each.

        Returns:
            The checksums, as the server computed them from the bytes that it copied. None where they cannot be had so:
            the stores have no server in common, the server does not copy or compute, or the object has another tag.
            Then nothing is known of the object at `key`.

        Raises:
            GoneError: there is no such object.
        """
        return None

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        """Delete objects in batches; one that is not there counts as deleted. Returns what could not be deleted."""

    def sync(self, keys: Iterable[str]) -> None:  # noqa: ARG002
        """Wait until objects that another process has written are on the disk, and the folders that lead to them.

        What this store writes itself is durable when the call returns. Spark writes to local files and does not wait.

        Args:
            keys: the objects.

        Raises:
            GoneError: there is no such object.
        """
        return

    def make_folder(self, prefix: str) -> None:  # noqa: ARG002
        """Make a folder, where a store has folders: Hadoop starts a process for each folder that it makes itself.

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
        """Abort a pending upload; one that is gone counts as aborted."""

    def now_ms(self) -> int | None:
        """Give the time by the store's own clock, to the second; None where it has none of its own."""
        return None

    def bucket_rules(self) -> BucketRules | None:
        """Give the rules by which the store itself deletes, moves or keeps objects; None where it has none."""
        return None
