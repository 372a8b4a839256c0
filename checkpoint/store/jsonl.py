"""Large documents of JSON lines, read as a stream and checked against their reference on the way (semantics W5)."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

from ..documents import codec
from ..documents.attempt import DocumentRef
from ..errors import DocumentError
from .job_files import READ_BYTES, JobFiles, pieces

MAX_LINE_BYTES = 2 * codec.MAX_MARKER_BYTES
"""Longest line: a stage's line in the metadata holds its marker's content, and a little more."""


class Reference(Protocol):
    """Key, size and hash of another document."""

    @property
    def key(self) -> str:
        """The document's key, relative to the job's prefix."""

    @property
    def size_bytes(self) -> int:
        """The document's length."""

    @property
    def sha256(self) -> str:
        """SHA-256 of the document's bytes, in hexadecimal."""


def read(files: JobFiles, ref: Reference, what: str) -> Iterator[bytes]:
    """Stream the lines of the document at `ref`, without line breaks.

    Args:
        files: the job's files.
        ref: of the document.
        what: the document's name in error texts, such as "the metadata".

    Raises:
        DocumentError: the document differs from `ref`, or a line is too long. The content is certain only once the
            iteration has ended.
    """
    where = files.full(ref.key)
    digest = hashlib.sha256()
    rest = b""
    offset = 0
    for chunk in pieces(files.read_range, ref.key, READ_BYTES, ref.size_bytes):
        digest.update(chunk)
        offset += len(chunk)
        if offset > ref.size_bytes:
            raise DocumentError(f"{what} is longer than it was", key=where, expected_bytes=ref.size_bytes)
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise DocumentError(f"{what} has a line that is too long", key=where, limit_bytes=MAX_LINE_BYTES)
        yield from whole
    if rest or offset != ref.size_bytes:
        raise DocumentError(f"{what} is truncated", key=where, expected_bytes=ref.size_bytes, found_bytes=offset)
    if digest.hexdigest() != ref.sha256:
        raise DocumentError(
            f"{what} has been altered", key=where, expected=f"sha256:{ref.sha256}", found=digest.hexdigest()
        )


SPOOL_BYTES = 1024 * 1024
"""Bytes of one spool that are kept in memory."""


class Spool:
    """Collects, counts and hashes bytes, with at most `SPOOL_BYTES` of them in memory; use in a `with`."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115  (closed by `__exit__`)
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def put(self, data: bytes) -> None:
        """Append bytes."""
        self._file.write(data)
        self._digest.update(data)
        self.size_bytes += len(data)

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes so far, piece by piece; do not call `put` during the iteration."""
        self._file.seek(0)
        while piece := self._file.read(SPOOL_BYTES):
            yield piece
        self._file.seek(0, os.SEEK_END)

    def reference(self, key: str) -> DocumentRef:
        """Make a reference to the bytes so far, as a document at `key`."""
        return DocumentRef(key=key, size_bytes=self.size_bytes, sha256=self._digest.hexdigest())

    def create(self, files: JobFiles, key: str) -> bool:
        """Create the object at `key`; True if it has this content now, by any writer (semantics W2).

        Raises:
            OutcomeUnknownError: all answers were lost; delete nothing.
        """
        return files.create_from(self.reference(key), self._file)
