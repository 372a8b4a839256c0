"""Folders and temporary files of a local store (semantics W5).

Folders are walked by file descriptor, so that no symlink is ever followed. Every step opens one name relative to its
parent folder with `O_NOFOLLOW`: nothing can be swapped in between a check and its use. The path to the root may contain
symlinks (`/tmp` is one on some systems); nothing below the root may.

A file is invisible until it is complete. A writer holds a `flock` on its temporary file for as long as it lives; the
next writer sweeps a file only while it holds that lock. So age does not matter: a writer that stalls for an hour keeps
its file, and a dead writer loses it at once.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field

from ..clock import TokenSource
from ..errors import ForbiddenError, InvalidKeyError, StorageError, UnavailableError, UnsupportedStorageError
from ..records import dataclass

HIDDEN = ".cairn-tmp"
"""The folder for files that are being written; no listing shows it, and no key may name it."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MKDIR_TRIES = 1000


@dataclass(frozen=True, slots=True)
class Root:
    """The root of a local store."""

    path: str
    """Absolute path; it may contain symlinks."""
    below: tuple[str, ...] = ()
    """Names of the folders below that path; none may be a symlink."""


class NoSuchFileError(Exception):
    """There is no file of that name; the caller decides whether that is an error."""


@contextmanager
def opened(fd: int) -> Iterator[int]:
    """Close `fd` at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_root(root: Root, *, make: bool = False) -> int:
    """Open the root folder; with `make`, make it and those above it, if they are missing.

    Raises:
        NoSuchFileError: the root is missing and `make` is off.
    """
    if make:
        _make_durably(root.path)
    try:
        top = os.open(root.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NoSuchFileError(root.path) from None
    if not root.below:
        return top
    with opened(top):
        return open_folder(top, root.below, make=make)


def _make_durably(root: str) -> None:
    """Make a folder, and those above it, if missing; each is on the disk on return."""
    missing = []
    while not os.path.isdir(root):
        missing.append(root)
        root = os.path.dirname(root)
    for path in reversed(missing):
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        # Also if another process was first: it may not have synced the folder yet.
        with opened(os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as above:
            os.fsync(above)


def open_folder(root_fd: int, segments: Sequence[str], *, make: bool = False) -> int:
    """Open a folder below the root.

    No segments open the root itself. With `make`, make missing folders, and make them again if another process removes
    one in between.

    Raises:
        NoSuchFileError: the folder is missing and `make` is off (or the folder kept vanishing).
    """
    for _ in range(_MKDIR_TRIES if make else 1):
        try:
            return _walk(root_fd, segments, make)
        except FileNotFoundError:
            continue
    raise NoSuchFileError("/".join(segments))


def _walk(root_fd: int, segments: Sequence[str], make: bool) -> int:
    current = os.dup(root_fd)
    try:
        for depth, name in enumerate(segments):
            if make:
                _mkdir(name, current)
            try:
                below = os.open(name, _FOLDER, dir_fd=current)
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                    raise
                path = "/".join(segments[: depth + 1])
                refuse_symlink(name, current, path)
                if make:
                    raise InvalidKeyError(
                        "there is an object where this key needs a folder. Choose another key", object=path
                    ) from None
                raise FileNotFoundError(errno.ENOENT, "no such folder", path) from None
            os.close(current)
            current = below
        return os.dup(current)
    finally:
        os.close(current)


def _mkdir(name: str, parent_fd: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent_fd)
    except FileExistsError:
        return
    os.fsync(parent_fd)


def open_file(name: str, parent_fd: int, key: str) -> int:
    """Open a regular file for reading, never through a symlink.

    Raises:
        NoSuchFileError: there is no such file (a folder, a socket or a pipe is none).
    """
    try:
        fd = os.open(name, _FILE, dir_fd=parent_fd)
    except FileNotFoundError:
        raise NoSuchFileError(key) from None
    except OSError as error:
        refuse_symlink(name, parent_fd, key)
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise NoSuchFileError(key) from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NoSuchFileError(key)
    return fd


def refuse_symlink(name: str, parent_fd: int, key: str) -> None:
    """Raise if `name` is a symlink.

    Raises:
        InvalidKeyError: `name` is a symlink.
    """
    try:
        mode = os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise InvalidKeyError("there is a symlink in the store, and Cairn follows none. Remove it", key=key)


def prune(root_fd: int, segments: Sequence[str]) -> None:
    """Remove a folder if it is empty, then those above it, but not the root.

    A folder with only an empty folder for files being written is empty.
    """
    rest = list(segments)
    while rest:
        name = rest.pop()
        try:
            with opened(open_folder(root_fd, rest)) as parent:
                _remove_empty(name, parent)
        except (FileNotFoundError, NoSuchFileError):
            continue
        except OSError:
            return


def _remove_empty(name: str, parent_fd: int) -> None:
    try:
        os.rmdir(name, dir_fd=parent_fd)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    with opened(os.open(name, _FOLDER, dir_fd=parent_fd)) as folder:
        with os.scandir(folder) as found:
            if [each.name for each, _ in zip(found, range(2), strict=False)] != [HIDDEN]:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), name)
        # Refused with its parent if a writer has put a file into it.
        os.rmdir(HIDDEN, dir_fd=folder)
    os.rmdir(name, dir_fd=parent_fd)


@contextmanager
def explained(store: str, key: str) -> Iterator[None]:
    """Turn errors of the operating system into those of `errors.py`.

    Raises:
        ForbiddenError: no permission, or a read-only file system.
        InvalidKeyError: the file system cannot hold such a name.
        UnsupportedStorageError: the root is not a folder.
        UnavailableError: any other error: disk full, disk failure, too many open files.
    """
    try:
        yield
    except OSError as error:
        raise _explanation(error, store, key) from error


def _explanation(error: OSError, store: str, key: str) -> StorageError:
    reason = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ForbiddenError(
            f"the file system refuses access: {reason}. Give this user the right to read and write there",
            code="missing_right",
            store=store,
            key=key,
        )
    if error.errno == errno.ENAMETOOLONG:
        return InvalidKeyError(
            "a part of this key is longer than the file system allows (255 bytes). Choose a shorter name",
            store=store,
            key=key,
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return UnsupportedStorageError(
            "the root of this storage, or a folder above it, is a file. Name a folder", store=store, key=key
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UnavailableError(
            f"the file system is full: {reason}. Make room there, or raise the quota; what waits or is tried again "
            "then goes on",
            store=store,
            key=key,
        )
    return UnavailableError(f"the file system failed: {reason}. Try again later", store=store, key=key)


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
