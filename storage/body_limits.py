"""Limits that every store checks alike: ranges, and the size of reads into memory (semantics W5)."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import DocumentError, StorageError


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
    """Read a body that may be longer than announced: at most one chunk beyond the limit.

    Raises:
        DocumentError: the body is larger than `max_bytes`.
    """
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
