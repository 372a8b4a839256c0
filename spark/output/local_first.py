"""Writes a state beside its Spark server and uploads these files, so that the next epoch finds them here (V3).

The copy has the store's bytes, and the SHA-256 that the acknowledgement names. If a state has no room here, Spark
writes it to the store, as it does without a local folder. Raw files are copied here, not linked, since the application
may write into them later.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ...checkpoint.documents.acknowledgement import Output, StateHandle
from ...checkpoint.documents.attempt import DocumentRef
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.local.files import chunks, tag_of
from ...storage.port import ObjectStat
from ..stored.local_state import Draft, LocalState, name_in_copy
from ..stored.outputs import File
from . import row_count
from .row_count import part_of

log = logging.getLogger("airflow_cairn")

_AT_ONCE = 8
"""Files uploaded at once."""
_ONE_REQUEST_BYTES = 5 << 30
"""The largest file that S3 takes in one request."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXTS = tuple(os.strerror(number) for number in _FULL)

T = TypeVar("T")

Describe = Callable[[str, str, str], StateHandle]
"""Describes an uploaded file, by `Output.id`, its key and its SHA-256."""


def write(
    files: JobFiles,
    local: LocalState,
    output: Output,
    name: str,
    write_to: Callable[[str], None],
    described: Describe,
) -> list[File] | None:
    """Write a state here, and upload it.

    Args:
        files: the job's files.
        local: the folder.
        output: the state; its folder in the store is this driver's.
        name: the name of its copies: `Output.id`, or for a delta `delta_of` it.
        write_to: makes Spark write the DataFrame to a URL.
        described: describes an uploaded file.

    Returns:
        The files; None if there was no room, and nothing was uploaded: write to the store.
    """
    draft = local.draft(name)
    if draft is None:
        return None
    with draft:
        try:
            write_to(draft.url)
        except Exception as error:
            if not any(text in str(error) for text in _FULL_TEXTS):
                raise
            draft.give_up(f"the disk of {draft.data} is full")
            return None
        found = _data_of(draft, output)
        if _is_too_large(draft, local, [each.size_bytes for _, each in found]):
            return None

        def upload(each: tuple[int, ObjectStat]) -> StateHandle:
            _, file = each
            handle = described(output.id, *_upload(files, output.folder + file.key, draft.data / file.key))
            if handle.rows is None:
                handle = replace(handle, rows=row_count.rows_of(_reader_in(draft.data), file.key, file.size_bytes))
            return handle

        handles = _kept(draft, upload, found)
        return [File(part, handle) for (part, _), handle in zip(found, handles, strict=True)]


def write_files(
    files: JobFiles,
    local: LocalState,
    output: Output,
    sizes: Mapping[str, int],
    copy: Callable[[Mapping[str, Path]], None],
    described: Describe,
) -> list[StateHandle] | None:
    """Copy raw files here and upload the copies.

    Args:
        files: the job's files.
        local: the folder.
        output: the raw files; their folder in the store is this driver's.
        sizes: bytes of each file, by its path below the output's folder.
        copy: copies each file to the given path, or raises.
        described: describes an uploaded file.

    Returns:
        The files, in the order of `sizes`; None if there was no room, and nothing was uploaded: write to the store.
    """
    draft = local.draft(output.id)
    if draft is None:
        return None
    with draft:
        if _is_too_large(draft, local, sizes.values()):
            return None
        copies = {name: draft.data / name_in_copy(output.id, output.folder + name) for name in sizes}
        try:
            draft.data.mkdir()
            copy(copies)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            draft.give_up(f"the disk of {draft.data} is full")
            return None

        def upload(each: tuple[str, Path]) -> StateHandle:
            name, path = each
            return described(output.id, *_upload(files, output.folder + name, path))

        return _kept(draft, upload, copies.items())


def keep(local: LocalState, handle: StateHandle, name: str, data: bytes) -> None:
    """Keep a copy of a small file of the store, on which nothing depends.

    Args:
        local: the folder.
        handle: the file.
        name: the file's name, without its folder.
        data: the file's content.
    """
    draft = local.draft(handle.output)
    if draft is None:
        return
    with draft:
        try:
            draft.data.mkdir()
            (draft.data / name).write_bytes(data)
        except OSError as error:
            log.warning("No local copy of %s was kept: %s", handle.output, error)
            return
        draft.keep([handle])


def _kept(draft: Draft, upload: Callable[[T], StateHandle], files: Iterable[T]) -> list[StateHandle]:
    """Upload the files of a draft, several at once, and keep the draft as their copy."""
    with ThreadPoolExecutor(_AT_ONCE, "cairn-upload") as pool:
        handles = list(pool.map(upload, files))
    draft.keep(handles)
    return handles


def _is_too_large(draft: Draft, local: LocalState, sizes: Iterable[int]) -> bool:
    """Abandon a draft that is larger than the limit for all copies, or has a file too large for one request to S3."""
    each = [*sizes]
    if sum(each) <= local.limit_bytes and max(each, default=0) <= _ONE_REQUEST_BYTES:
        return False
    draft.give_up(f"it has {sum(each)} bytes, and local_state_mb allows {local.limit_bytes}")
    return True


def _data_of(draft: Draft, output: Output) -> list[tuple[int, ObjectStat]]:
    """Return the data files, and delete the others."""
    data: list[tuple[int, ObjectStat]] = []
    for path in sorted(draft.data.iterdir()):
        part = part_of(path.name)
        if part is None:
            path.unlink()  # _SUCCESS, and the checksums of Hadoop's local file system
        else:
            data.append((part, ObjectStat(path.name, path.stat().st_size, None)))

    empty = row_count.without_rows(_reader_in(draft.data), data, output.schema or "")
    for name in empty:
        (draft.data / name).unlink()
    return [each for each in data if each[1].key not in empty]


def _reader_in(folder: Path) -> Callable[[str, int, int], bytes]:
    def read_range(name: str, start: int, length: int) -> bytes:
        with (folder / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    return read_range


def _upload(files: JobFiles, key: str, path: Path) -> tuple[str, str]:
    """Upload one file; return its key and its SHA-256."""
    with path.open("rb") as source:
        sha256 = tag_of(chunks(source.fileno()))
        ref = DocumentRef(key, os.fstat(source.fileno()).st_size, sha256.partition(":")[2])
        if not files.create_from(ref, source):
            raise InvalidStateError("a file with this driver's own name is there already", key=files.full(key))
    return key, sha256
