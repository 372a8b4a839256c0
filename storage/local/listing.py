"""Listing a local store: lazily, in the order S3 lists in, which is the UTF-8 bytes of the whole key.

A folder sorts as its name with a slash, so `a-b` comes before `a/b` (`-` < `/`). One folder at a time is read and
closed again before anything is yielded; what vanishes meanwhile is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import InvalidKeyError
from ..names import order
from ..port import ObjectStat
from .folders import HIDDEN, NoSuchFileError, Root, open_folder, open_root, opened


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    is_folder: bool = False
    size_bytes: int = 0
    modified_ms: int | None = None


def keys_below(root: Root, prefix: str, start_after: str | None = None) -> Iterator[ObjectStat]:
    """Yield the objects under `prefix` (empty or ending in `/`), after `start_after` if given.

    Raises:
        InvalidKeyError: a symlink is there.
    """
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
    """Yield the bare names of the folders directly under `prefix` that hold an object, however deep."""
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
