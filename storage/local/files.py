"""Single files of a local store: their bytes, their tags and their locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator

CHUNK = 1 << 20


def chunks(fd: int, start: int = 0, length: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of an open file from offset `start`, at most `length` of them, a mebibyte at a time."""
    position, end = start, None if length is None else start + length
    while end is None or position < end:
        chunk = os.pread(fd, CHUNK if end is None else min(CHUNK, end - position), position)
        if not chunk:
            return
        position += len(chunk)
        yield chunk


def tag_from(digest: hashlib._Hash) -> str:
    """Give the tag of a content whose SHA-256 this is."""
    return f"sha256:{digest.hexdigest()}"


def tag_of(chunks: Iterable[bytes]) -> str:
    """Give the tag of a content: its SHA-256."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return tag_from(digest)


def is_folder(name: str, parent: int) -> bool:
    """Tell whether `parent` has a folder of that name."""
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def try_lock(fd: int) -> bool:
    """Take the lock of an open file; False if another holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def leads_to(name: str, parent: int, fd: int) -> bool:
    """Tell whether `name` leads to the very file that is open, and not to one that replaced it."""
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(fd))
