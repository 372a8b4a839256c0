"""Temporary files of writes, invisible until complete; the next writer sweeps those of dead writers.

A writer holds a `flock` on its temporary file for as long as it lives. A sweeper removes a file only while it holds
that lock, so age does not matter: a writer that stalls for an hour keeps its file, and a dead writer loses it at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ..clock import TokenSource
from .folders import HIDDEN, open_folder, opened

# Single files of a local store: their bytes, tags and locks.


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
    """Return the tag of a content by its SHA-256."""
    return f"sha256:{digest.hexdigest()}"


def tag_of(chunks: Iterable[bytes]) -> str:
    """Return the tag of a content: its SHA-256."""
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
    """Take the lock of an open file; False if another process holds it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def leads_to(name: str, parent: int, fd: int) -> bool:
    """Tell whether `name` leads to this open file, and not to one that replaced it."""
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(fd))


_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class TempFile:
    """A file that only its writer knows, locked during the write."""

    fd: int
    name: str
    folder_fd: int
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def write(self, data: bytes) -> None:
        """Append all of `data`."""
        self._digest.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.fd, rest) :]

    def tag(self) -> str:
        """Return the tag of the written data, as readers will see it."""
        return tag_from(self._digest)

    def settle(self) -> None:
        """Wait until the written data are on the disk."""
        os.fsync(self.fd)


@contextmanager
def temp_file(root_fd: int, token: TokenSource) -> Iterator[TempFile]:
    """Make a temporary file; at the block's end, remove its temporary name and the leftovers of dead writers."""
    with opened(open_folder(root_fd, [HIDDEN], make=True)) as folder:
        file = _locked_new_file(folder, token)
        try:
            yield file
        finally:
            with suppress(FileNotFoundError):  # a swap has moved it to its place
                os.unlink(file.name, dir_fd=folder)
            # Unlock explicitly: a forked process may hold the descriptor too, and with it the lock.
            fcntl.flock(file.fd, fcntl.LOCK_UN)
            os.close(file.fd)
            sweep(folder)


def _locked_new_file(folder: int, token: TokenSource) -> TempFile:
    while True:
        name = token()
        fd = os.open(name, _NEW, 0o644, dir_fd=folder)
        fcntl.flock(fd, fcntl.LOCK_EX)
        if os.fstat(fd).st_nlink:
            return TempFile(fd, name, folder)
        # A sweeper came between making and locking, and took the file for a dead writer's.
        os.close(fd)


def sweep(folder: int) -> None:
    """Remove the temporary files of dead writers; those of living writers are locked, and stay."""
    for name in os.listdir(folder):
        try:
            fd = os.open(name, _OLD, dir_fd=folder)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=folder)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except OSError:
            continue
        finally:
            os.close(fd)
