"""Files being written, invisible until they are whole; those of dead writers are swept by the next writer.

A writer holds a `flock` on its temporary file for as long as it lives. A sweeper removes a file only while it holds
that lock itself, so age plays no part: a writer that stalls for an hour keeps its file, one that died loses it at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from ..clock import TokenSource
from .files import tag_from
from .folders import HIDDEN, open_folder, opened

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class TempFile:
    """A file that only its writer knows, locked while it is being written."""

    fd: int
    name: str
    folder_fd: int
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def write(self, data: bytes) -> None:
        """Append `data`, all of it."""
        self._digest.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.fd, rest) :]

    def tag(self) -> str:
        """Give the tag of what was written, as a reader will find it."""
        return tag_from(self._digest)

    def settle(self) -> None:
        """Wait until what was written is on the disk."""
        os.fsync(self.fd)


@contextmanager
def temp_file(root_fd: int, token: TokenSource) -> Iterator[TempFile]:
    """Make a temporary file; remove its temporary name, and what dead writers left, when the block is left."""
    with opened(open_folder(root_fd, [HIDDEN], make=True)) as folder:
        file = _locked_new_file(folder, token)
        try:
            yield file
        finally:
            with suppress(FileNotFoundError):  # a swap has moved it to its place
                os.unlink(file.name, dir_fd=folder)
            # Said aloud, because a process forked meanwhile holds the descriptor too, and with it the lock.
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
        # A sweeper came between making and locking, and took it for a dead writer's.
        os.close(fd)


def sweep(folder: int) -> None:
    """Remove the temporary files whose writers are dead; those of the living are locked, and stay."""
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
