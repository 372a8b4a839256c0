"""Large documents as lines, read as a stream and checked against their reference on the way (semantics W5)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Protocol

from . import documents
from .errors import DocumentError
from .job_files import READ_BYTES, JobFiles

MAX_LINE_BYTES = 2 * documents.MAX_MARKER_BYTES
"""A stage's line in the metadata holds what its marker held, and a little more."""


class Reference(Protocol):
    """Another document, and how to know that it is still the same."""

    @property
    def key(self) -> str:
        """Where it lies, relative to the job's prefix."""

    @property
    def size_bytes(self) -> int:
        """Its length."""

    @property
    def sha256(self) -> str:
        """Of its bytes, in hexadecimal."""


def read(files: JobFiles, ref: Reference, what: str) -> Iterator[bytes]:
    """Stream the lines of the document that `ref` names, without their ends.

    Args:
        files: the job's files.
        ref: what it must be.
        what: the document's name in error texts, such as "the metadata".

    Raises:
        GoneError: there is no such object.
        DocumentError: it differs from what `ref` says, or a line is too long. The content is certain only once the
            iteration has ended.
    """
    where = files.full(ref.key)
    digest = hashlib.sha256()
    rest = b""
    offset = 0
    at_end = False
    while not at_end:
        # One byte more than there should be, so that an object that has grown is noticed, and its end is seen at once.
        asked = min(READ_BYTES, ref.size_bytes - offset + 1)
        chunk = files.read_range(ref.key, offset, asked)
        at_end = len(chunk) < asked
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
