"""Writes a state beside its Spark server and uploads these very files, so that the next epoch finds them here (V3).

The copy has the bytes that the store has, and the SHA-256 that the acknowledgement names. A state for which there is no
room here is Spark's to write to the store, as it is without a local folder.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ...checkpoint.documents.acknowledgement import Output, StateHandle
from ...checkpoint.documents.attempt import DocumentRef
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.local.files import chunks, tag_of
from ...storage.port import ObjectStat
from ..stored.local_state import Draft, LocalState
from ..stored.outputs import File
from . import empty_files, row_count
from .data_files import part_of

log = logging.getLogger("airflow_cairn")

_AT_ONCE = 8
"""Files that are uploaded at once."""
_ONE_REQUEST_BYTES = 5 << 30
"""The largest file that S3 takes in one request."""
_FULL = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))


def write(
    files: JobFiles,
    local: LocalState,
    output: Output,
    name: str,
    write_to: Callable[[str], None],
    described: Callable[[str, str, str], StateHandle],
) -> list[File] | None:
    """Write a state here and upload it.

    Args:
        files: the job's files.
        local: the folder.
        output: the state; its folder in the store is this driver's own.
        name: of its copies: `Output.id`, or of a run `run_of` it.
        write_to: has Spark write the DataFrame to a URL.
        described: describes an uploaded file, by `Output.id`, its key and its SHA-256.

    Returns:
        Its files; None where there was no room, and nothing was uploaded: write it to the store.

    Raises:
        InvalidStateError: another process writes in the name of this driver.
    """
    draft = local.draft(name)
    if draft is None:
        return None
    with draft:
        try:
            write_to(draft.url)
        except Exception as error:
            if not any(text in str(error) for text in _FULL):
                raise
            draft.give_up(f"the disk of {draft.data} is full")
            return None
        found = _data_of(draft, output)
        sizes = [each.size_bytes for _, each in found]
        if sum(sizes) > local.limit_bytes or max(sizes, default=0) > _ONE_REQUEST_BYTES:
            draft.give_up(f"it has {sum(sizes)} bytes, and local_state_mb allows {local.limit_bytes}")
            return None

        def upload(each: tuple[int, ObjectStat]) -> StateHandle:
            _, file = each
            handle = described(output.id, *_upload(files, output.folder, draft.data / file.key))
            if handle.rows is None:
                handle = replace(handle, rows=row_count.rows_of(_reader_in(draft.data), file.key, file.size_bytes))
            return handle

        with ThreadPoolExecutor(_AT_ONCE, "cairn-upload") as pool:
            handles = list(pool.map(upload, found))
        draft.keep(handles)
        return [File(part, handle) for (part, _), handle in zip(found, handles, strict=True)]


def keep(local: LocalState, handle: StateHandle, name: str, data: bytes) -> None:
    """Keep a copy of a small file that has been written to the store; nothing depends on it.

    Args:
        local: the folder.
        handle: the file.
        name: its name, without its folder.
        data: its content.
    """
    draft = local.draft(handle.output)
    if draft is None:
        return
    with draft:
        try:
            draft.data.mkdir()
            (draft.data / name).write_bytes(data)
        except OSError as error:
            log.warning("no local copy of %s was kept: %s", handle.output, error)
            return
        draft.keep([handle])


def _data_of(draft: Draft, output: Output) -> list[tuple[int, ObjectStat]]:
    """Give what is data, and delete what is not."""
    data: list[tuple[int, ObjectStat]] = []
    for path in sorted(draft.data.iterdir()):
        part = part_of(path.name)
        if part is None:
            path.unlink()  # _SUCCESS, and the checksums of Hadoop's local file system
        else:
            data.append((part, ObjectStat(path.name, path.stat().st_size, None)))

    empty = empty_files.without_rows(_reader_in(draft.data), data, output.schema or "")
    for name in empty:
        (draft.data / name).unlink()
    return [each for each in data if each[1].key not in empty]


def _reader_in(folder: Path) -> Callable[[str, int, int], bytes]:
    def read_range(name: str, start: int, length: int) -> bytes:
        with (folder / name).open("rb") as file:
            file.seek(start)
            return file.read(length)

    return read_range


def _upload(files: JobFiles, folder: str, path: Path) -> tuple[str, str]:
    """Upload one file; gives its key and its SHA-256."""
    key = folder + path.name
    with path.open("rb") as source:
        sha256 = tag_of(chunks(source.fileno()))
        ref = DocumentRef(key, os.fstat(source.fileno()).st_size, sha256.partition(":")[2])
        if not files.create_from(ref, source):
            raise InvalidStateError("a file with this driver's own name is there already", key=files.full(key))
    return key, sha256
