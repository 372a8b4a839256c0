"""Local files as an object store: safe between processes, consistent after a crash at any step (semantics W2, W3).

*Create*: write a hidden temporary file, fsync it, `link` it to its name, which fails if the name is taken, fsync the
folder. *Swap*: lock the existing file, check that the name still leads to it, compare its content, write a temporary
file, fsync, `rename` it over, fsync the folder. Every step before the `link` or `rename` is invisible; every step after
it only adds durability. A delete takes the same lock as a swap. A lock is a `flock`: the system drops it when its
holder dies, and no lock file exists that could be left over or differ between two roots.

Use this store on one machine's disk. Over NFS `flock` and `link` may lie; with several machines, use an object store.
"""

from __future__ import annotations

import copy
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TypeVar

from ..clock import Fraction, Sleeper, TokenSource, new_token, system_fraction, system_sleep
from ..errors import GoneError, InvalidKeyError, OutcomeUnknownError, UnavailableError, UnsupportedStorageError
from ..names import StorageUri, check_key, check_prefix, order, shorten
from ..port import (
    Blob,
    ConditionFailed,
    DeleteFailure,
    DeleteFailures,
    ObjectStat,
    ObjectStore,
    PendingUpload,
    WriteResult,
    Written,
    check_range,
    check_size,
)
from ..records import dataclass
from .files import (
    HIDDEN,
    NoSuchFileError,
    Root,
    TempFile,
    chunks,
    explained,
    is_folder,
    leads_to,
    open_file,
    open_folder,
    open_root,
    opened,
    prune,
    tag_from,
    tag_of,
    temp_file,
    try_lock,
)

# Listing a local store: lazily, in S3's order, which is that of the whole key's UTF-8 bytes. A folder sorts as its name
# with a slash, so `a-b` comes before `a/b` (`-` < `/`). Each folder is read and closed before its entries are yielded;
# entries that vanish in between are left out.


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    is_folder: bool = False
    size_bytes: int = 0
    modified_ms: int | None = None


def keys_below(root: Root, prefix: str, start_after: str | None = None) -> Iterator[ObjectStat]:
    """Yield the objects under `prefix` (empty or ending in `/`), after `start_after` if given."""
    bound = None if start_after is None else order(start_after)
    for entry in _entries(root, prefix):
        path = order(entry.path)
        if bound is not None and path <= bound and not (entry.is_folder and bound.startswith(path)):
            continue
        if entry.is_folder:
            yield from keys_below(root, entry.path, start_after)
        else:
            yield ObjectStat(entry.path, entry.size_bytes, None, modified_ms=entry.modified_ms)


def folders_below(root: Root, prefix: str) -> Iterator[str]:
    """Yield the bare names of the folders directly under `prefix` that hold an object at any depth."""
    for entry in _entries(root, prefix):
        if entry.is_folder and next(keys_below(root, entry.path), None) is not None:
            yield entry.path[len(prefix) : -1]


def _entries(root: Root, prefix: str) -> list[_Entry]:
    try:
        with opened(open_root(root)) as top, opened(open_folder(top, prefix.split("/")[:-1])) as folder:
            found = [_entry(name, folder, prefix) for name in os.listdir(folder) if name != HIDDEN]
    except NoSuchFileError:
        return []
    return sorted((entry for entry in found if entry), key=lambda entry: order(entry.path))


def _entry(name: str, folder_fd: int, prefix: str) -> _Entry | None:
    try:
        status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise InvalidKeyError(
            "there is a symlink in the store, and Cairn follows none. Remove it", key=f"{prefix}{name}"
        )
    if stat.S_ISDIR(status.st_mode):
        return _Entry(f"{prefix}{name}/", is_folder=True)
    if not stat.S_ISREG(status.st_mode):
        return None
    return _Entry(f"{prefix}{name}", size_bytes=status.st_size, modified_ms=status.st_mtime_ns // 1_000_000)


_T = TypeVar("_T")
_PIECE = 1 << 20
_LINK_TRIES = 100
_LOCK_TRIES = 2000
_LOCK_WAIT_S = 0.02
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


class LocalStore(ObjectStore):
    """A folder of the local file system.

    The first write makes the folder, with those above it. `step` is called with the name of each finished step of a
    write; tests stop and kill a process there.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        token: TokenSource = new_token,
        sleep: Sleeper = system_sleep,
        fraction: Fraction = system_fraction,
        step: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._root = Root(os.path.normpath(root))
        if not os.path.isabs(self._root.path) or self._root.path == "/":
            raise InvalidKeyError("the root of a local store is an absolute folder below /", root=shorten(str(root)))
        self._token = token
        self._sleep = sleep
        self._fraction = fraction
        self._step = step

    @property
    def uri(self) -> str:
        """The root: `file:///folder`."""
        return str(StorageUri("file", "", "/".join((self._root.path, *self._root.below))))

    def below(self, folder: str) -> LocalStore:
        found = copy.copy(self)
        found._root = replace(self._root, below=(*self._root.below, *_segments(folder)))
        return found

    def describe(self) -> str:
        return f"{self.uri} (local files)"

    def spark_url(self, key: str) -> str:
        """Return the `file:///…` URL of a key or folder; of the root if `key` is empty."""
        return f"{self.uri}/{check_key(key, marker=True)}" if key else self.uri

    def check_root(self) -> None:
        """Check that the folder exists.

        Raises:
            GoneError: the folder does not exist.
        """
        try:
            with explained(self.describe(), ""):
                os.close(open_root(self._root))
        except NoSuchFileError:
            raise GoneError("there is no such folder", store=self.describe()) from None

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        """Read a whole object; its tag is the SHA-256 of its content."""
        with self._reading(key) as fd:
            check_size(self.describe(), key, os.fstat(fd).st_size, max_bytes)
            data = b"".join(chunks(fd))
        return Blob(data, tag_of([data]))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        with self._reading(key) as fd:
            return b"".join(chunks(fd, start, length))

    def create(self, key: str, data: bytes) -> WriteResult:
        """Write an object only if none exists.

        Raises:
            InvalidKeyError: a folder has the name, or an object has the name of a needed folder.
            OutcomeUnknownError: the object exists, but the disk failed before it was durable.
        """
        return self._publish(key, lambda temp: temp.write(data))

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        def fill(temp: TempFile) -> None:
            source.seek(0)
            while piece := source.read(_PIECE):
                temp.write(piece)

        return self._publish(key, fill)

    def copy(self, source: str, target: str) -> WriteResult:
        def fill(temp: TempFile) -> None:
            for chunk in chunks(origin):
                temp.write(chunk)

        _segments(target)
        with self._reading(source) as origin:
            return self._publish(target, fill)

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        """Replace an object only if its content still has the tag `expected_etag`.

        Raises:
            UnavailableError: another process held the object's lock until the retries ran out; nothing was written.
            OutcomeUnknownError: the new object is there, but the disk failed before it was durable.
        """
        *folders, name = _segments(key)
        with explained(self.describe(), key):
            try:
                with (
                    opened(open_root(self._root)) as root,
                    opened(open_folder(root, folders)) as parent,
                    self._locked(name, parent, key) as present,
                ):
                    found = tag_of(chunks(present))
                    if found != expected_etag:
                        return ConditionFailed(found)
                    self._step("compared")
                    with temp_file(root, self._token) as temp:
                        self._fill(temp, lambda file: file.write(data))
                        os.rename(temp.name, name, src_dir_fd=temp.folder_fd, dst_dir_fd=parent)
                        self._step("renamed")
                    self._make_durable(parent, key)
                    return Written(tag_of([data]))
            except NoSuchFileError:
                return ConditionFailed(None)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        """Yield the objects under `prefix` in the order of their UTF-8 bytes; without tags, which would cost a read.

        Raises:
            InvalidKeyError: there is a symlink under the prefix.
        """
        check_prefix(prefix)
        if start_after is not None:
            check_key(start_after, marker=True)
        return self._explained_each(prefix, keys_below(self._root, prefix, start_after))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self._explained_each(prefix, folders_below(self._root, check_prefix(prefix)))

    def stat(self, key: str) -> ObjectStat:
        with self._reading(key) as fd:
            digest, size = hashlib.sha256(), 0
            for chunk in chunks(fd):
                digest.update(chunk)
                size += len(chunk)
        tag = tag_from(digest)
        return ObjectStat(key, size, tag, tag)

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        """Delete objects and, by a key that ends in `/`, empty folders; then folders that became empty, up to the root.

        Raises:
            InvalidKeyError: a key is invalid, and nothing was deleted; or there is a symlink.
        """
        paths = {key: _segments(key, marker=True) for key in keys}
        failures: DeleteFailures = []
        try:
            with explained(self.describe(), ""):
                root = open_root(self._root)
        except NoSuchFileError:
            return failures
        with opened(root):
            for key, segments in paths.items():
                try:
                    self._delete_one(root, key, segments)
                except OSError as error:
                    failures.append(DeleteFailure(key, error.strerror or str(error)))
                except UnavailableError as error:
                    failures.append(DeleteFailure(key, error.message))
            folders = {tuple(path if key.endswith("/") else path[:-1]) for key, path in paths.items()}
            for folder in sorted(folders, key=len, reverse=True):
                prune(root, folder)
        return failures

    def sync(self, keys: Iterable[str]) -> None:
        """Wait until files written by Spark, and every folder from their own up to the root, are on the disk.

        Raises:
            GoneError: a file does not exist.
            UnavailableError: the disk failed; a crash may lose the files, so no caller may rely on them.
        """
        folders: set[tuple[str, ...]] = set()
        for key in keys:
            *above, _ = _segments(key)
            folders |= {tuple(above[:depth]) for depth in range(len(above) + 1)}
            with self._reading(key) as fd, explained(self.describe(), key):
                os.fsync(fd)
        if folders:
            with explained(self.describe(), ""), opened(open_root(self._root)) as root:
                for folder in sorted(folders, key=len, reverse=True):
                    with opened(open_folder(root, folder)) as fd:
                        os.fsync(fd)

    def make_folder(self, prefix: str) -> None:
        with explained(self.describe(), prefix), opened(open_root(self._root, make=True)) as root:
            os.close(open_folder(root, _segments(prefix, marker=True), make=True))

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """Yield nothing: local files have no multipart uploads."""
        check_prefix(prefix)
        return iter(())

    def abort_upload(self, upload: PendingUpload) -> None:
        """Do nothing: local files have no multipart uploads."""
        check_key(upload.key, marker=True)

    def _delete_one(self, root: int, key: str, segments: Sequence[str]) -> None:
        if key.endswith("/"):
            return  # a folder: pruned afterwards, if it is empty
        *folders, name = segments
        try:
            with opened(open_folder(root, folders)) as parent, self._locked(name, parent, key):
                os.unlink(name, dir_fd=parent)
        except NoSuchFileError:
            return

    def _publish(self, key: str, write: Callable[[TempFile], None]) -> WriteResult:
        *folders, name = _segments(key)
        with explained(self.describe(), key), opened(open_root(self._root, make=True)) as root:
            standing = self._standing(root, folders, name, key)
            if standing is not None:
                return standing
            with temp_file(root, self._token) as temp:
                tag = self._fill(temp, write)
                for _ in range(_LINK_TRIES):
                    try:
                        with opened(open_folder(root, folders, make=True)) as parent:
                            self._link(temp, name, parent, key)
                            self._step("linked")
                            self._make_durable(parent, key)
                        return Written(tag)
                    except FileNotFoundError:
                        continue  # another process removed the folder before the link
                    except FileExistsError:
                        standing = self._standing(root, folders, name, key)
                        return ConditionFailed(None) if standing is None else standing
        raise UnavailableError(
            "the folder of this object was removed each time it was made. Try again", store=self.describe(), key=key
        )

    def _standing(self, root: int, folders: Sequence[str], name: str, key: str) -> ConditionFailed | None:
        """Find the object or reason that prevents a create: `ConditionFailed` for an object, None if nothing does."""
        try:
            with opened(open_folder(root, folders)) as parent:
                if is_folder(name, parent):
                    raise InvalidKeyError("a folder of other objects is there. Choose another key", key=key)
                with opened(open_file(name, parent, key)) as fd:
                    return ConditionFailed(tag_of(chunks(fd)))
        except NoSuchFileError:
            return None

    def _link(self, temp: TempFile, name: str, parent: int, key: str) -> None:
        try:
            os.link(temp.name, name, src_dir_fd=temp.folder_fd, dst_dir_fd=parent, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise UnsupportedStorageError(
                "this file system has no hard links, and without them no write can be exclusive. Use another folder",
                store=self.describe(),
                key=key,
            ) from error

    def _fill(self, temp: TempFile, write: Callable[[TempFile], None]) -> str:
        self._step("temp made")
        write(temp)
        self._step("temp written")
        temp.settle()
        self._step("temp durable")
        return temp.tag()

    def _make_durable(self, parent: int, key: str) -> None:
        try:
            os.fsync(parent)
        except OSError as error:
            raise OutcomeUnknownError(
                "the object is there, but the disk failed before it was durable. Delete nothing, check the disk",
                store=self.describe(),
                key=key,
                reason=error.strerror,
            ) from error
        self._step("folder durable")

    @contextmanager
    def _locked(self, name: str, parent: int, key: str) -> Iterator[int]:
        """Hold the lock of the file that `name` leads to now, so that the name cannot lead elsewhere."""
        for attempt in range(_LOCK_TRIES):
            fd = open_file(name, parent, key)
            try:
                self._step("opened")
                if try_lock(fd):
                    if leads_to(name, parent, fd):
                        yield fd
                        return
                    continue
            finally:
                # Unlock explicitly: a forked process may hold the descriptor too, and with it the lock.
                fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)
            self._sleep(self._fraction() * min(_LOCK_WAIT_S, 0.0005 * (attempt + 1)))
        raise UnavailableError(
            "another process holds the lock of this object and does not release it. Look for a stopped process",
            store=self.describe(),
            key=key,
        )

    @contextmanager
    def _reading(self, key: str) -> Iterator[int]:
        *folders, name = _segments(key)
        with explained(self.describe(), key):
            try:
                with opened(open_root(self._root)) as root, opened(open_folder(root, folders)) as parent:
                    fd = open_file(name, parent, key)
            except NoSuchFileError:
                raise GoneError("there is no such object", store=self.describe(), key=key) from None
            with opened(fd):
                yield fd

    def _explained_each(self, prefix: str, items: Iterator[_T]) -> Iterator[_T]:
        with explained(self.describe(), prefix):
            yield from items


def _segments(key: str, *, marker: bool = False) -> list[str]:
    segments = check_key(key, marker=marker).rstrip("/").split("/")
    if HIDDEN in segments:
        raise InvalidKeyError(f"{HIDDEN} is where this store keeps files that are being written", key=shorten(key))
    return segments
