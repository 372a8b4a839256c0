"""Checks that the files of a checkpoint exist and are unaltered (semantics R1, W9).

The store's etag is the fast path: a listing shows it, for a thousand files a request. A copy may have another etag, so
a different one proves nothing: the checksum that was recorded when the file was written decides. The store's checksum
is compared first; if that differs too, or the store has none, the file is read. So a file is called altered only after
its bytes were read, except a file of version 0.1, of which only the etag is known.

A byte that flips on the medium changes no etag; only reading the file shows it (`deep`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from ...storage.checksums import algorithm_of, is_checksum
from ...storage.errors import GoneError
from ...storage.port import ObjectStat
from ..documents.acknowledgement import StateHandle
from .job_files import JobFiles

THREADS = 8
"""Files that are looked up, or read, at once."""

FOLDERS = 8
"""Folders that are listed one by one; for files in more folders one listing covers all keys from first to last."""

PAGE = 1_000
"""Objects that one request lists."""

GONE = "it is gone"


class FileCheck:
    """Checks files of one job.

    Args:
        files: the job's.
        deep: read every file, not only those whose etag has changed.
        on_checked: called with each file that has been checked.
    """

    def __init__(
        self, files: JobFiles, *, deep: bool = False, on_checked: Callable[[StateHandle], None] = lambda _: None
    ) -> None:
        self._files = files
        self._deep = deep
        self._on_checked = on_checked
        self.unknown = 0
        """Files of a deep check without a known checksum: a byte that flipped on the medium is not found in them."""

    def damaged(self, handles: Iterable[StateHandle]) -> Iterator[tuple[StateHandle, str]]:
        """Yield the files that are gone or altered, each with its problem.

        Files are looked up by listing their checkpoint folders, or all folders of the job in one go if the files are in
        many: one request for a thousand objects. A file that the listing lacks is looked up once more by name
        (semantics R1: a 404 that a listing confirms).
        """
        by_folder: dict[str, list[StateHandle]] = {}
        for handle in handles:
            by_folder.setdefault("/".join(handle.path.split("/")[:3]) + "/", []).append(handle)
        if self._deep:
            for _, expected in sorted(by_folder.items()):
                yield from self._each(self._read_through, expected)
            return
        spread = len(by_folder) > FOLDERS
        listings = [sorted(by_folder)] if spread else [[folder] for folder in sorted(by_folder)]
        for folders in listings:
            expected = [handle for folder in folders for handle in by_folder[folder]]
            named = {handle.path for handle in expected}
            present = {found.key: found for found in self._listed(folders) if found.key in named}
            doubtful: list[StateHandle] = []
            for handle in expected:
                found = present.get(handle.path)
                if found is None or (found.etag is None and found.size_bytes == handle.size_bytes):
                    try:
                        found = self._files.stat(handle.path)
                    except GoneError:
                        self._on_checked(handle)
                        yield handle, GONE
                        continue
                if found.size_bytes == handle.size_bytes and found.etag != handle.checksum and known(handle):
                    doubtful.append(handle)  # it may be a copy
                    continue
                self._on_checked(handle)
                if (problem := _differs(handle, found)) is not None:
                    yield handle, problem
            yield from self._each(self._altered, doubtful)

    def _listed(self, folders: list[str]) -> Iterator[ObjectStat]:
        """List one folder, or all keys from the first of several folders to the last.

        After as many pages as there are folders, the rest is listed folder by folder.
        """
        if len(folders) == 1:
            yield from self._files.listing(folders[0])
            return
        reached, left = "", PAGE * len(folders)
        for found in self._files.listing("", start_after=folders[0]):
            if found.key > folders[-1] and not found.key.startswith(folders[-1]):
                return
            yield found
            reached, left = found.key, left - 1
            if not left:
                break
        for folder in folders if not left else ():
            if folder > reached or reached.startswith(folder):
                yield from self._files.listing(folder)

    def _each(
        self, check: Callable[[StateHandle], str | None], handles: list[StateHandle]
    ) -> Iterator[tuple[StateHandle, str]]:
        if not handles:
            return
        with ThreadPoolExecutor(THREADS, "cairn-verify") as pool:
            for handle, problem in zip(handles, pool.map(check, handles), strict=True):
                self._on_checked(handle)
                if problem is not None:
                    yield handle, problem

    def _altered(self, handle: StateHandle) -> str | None:
        """Say how the content of a file with another etag differs; None if it does not."""
        return altered(self._files, handle)

    def _read_through(self, handle: StateHandle) -> str | None:
        try:
            expected = known(handle)
            if expected is None:
                found = self._files.stat(handle.path)
                problem = _differs(handle, found)
                if problem is not None:
                    return problem
                # The etag shows that the file was not written again, so the store's checksum is the original one.
                expected = found.checksum
            if expected is None:
                self.unknown += 1
                return None
            return _read(self._files, handle, expected)
        except GoneError:
            return GONE


def altered(files: JobFiles, handle: StateHandle) -> str | None:
    """Say how a file differs from its written content, whatever its etag is now; None if it does not."""
    try:
        found = files.stat(handle.path)
        expected = known(handle)
        if expected is None or found.etag == handle.checksum or found.size_bytes != handle.size_bytes:
            return _differs(handle, found)
        # A store may have a wrong checksum of a multipart copy (versitygw 1.8: measured), so the file is read, too.
        return None if found.checksum == expected else _read(files, handle, expected)
    except GoneError:
        return GONE


def known(handle: StateHandle) -> str | None:
    """Give the checksum of a file's content; None where only its etag is known (version 0.1)."""
    return handle.content or (handle.checksum if is_checksum(handle.checksum) else None)


def _differs(handle: StateHandle, found: ObjectStat) -> str | None:
    if found.size_bytes != handle.size_bytes:
        return f"its size differs: expected {handle.size_bytes} bytes, found {found.size_bytes}"
    if found.etag != handle.checksum:
        return f"its content differs: expected {handle.checksum}, found {found.etag}"
    return None


def _read(files: JobFiles, handle: StateHandle, expected: str) -> str | None:
    size_bytes, checksum = files.checksum(handle.path, algorithm_of(expected))
    if size_bytes != handle.size_bytes:
        return f"its size differs: expected {handle.size_bytes} bytes, found {size_bytes}"
    return None if checksum == expected else f"its content differs: expected {expected}, found {checksum}"
