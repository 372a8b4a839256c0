"""Raw files as state: a model, an index, the checkpoint folder of a Structured Streaming query (semantics A4, R4).

A folder is copied into the checkpoint file by file, and checked before and after: a folder that changes during the copy
is refused, never kept half. `places` says where it may lie. A client of a server that keeps copies (semantics V3)
copies the folder there first, uploads this copy, and restores from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import Output, StateHandle
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.names import check_key
from ..output.writer import Writer
from ..stored.local_state import LocalState, name_in_copy
from ..stored.outputs import File, Stored
from .places import OnDisk, Place, place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "files"


def snapshot(
    spark: SparkSession, files: JobFiles, writer: Writer, output_id: str, folder: str | os.PathLike[str]
) -> Stored:
    """Copy a folder with all files below it into the checkpoint; empty folders are not kept.

    Args:
        spark: the session; a session with its own driver copies by its JVM.
        files: the job's files.
        writer: this driver's.
        output_id: `files.<name>`.
        folder: a path on the driver's disk, or a URL; see `places.place`.
    """
    source = place(spark, files, folder)
    before = source.files()
    output = Output(KIND, output_id.partition(".")[2], writer.folder_of(output_id))
    _check_names(output.folder, before)
    handles = _copied_here(source, before, writer, output)
    if handles is None:
        handles = _copied(source, before, files, writer, output)
    return Stored(output, [File(0, handle) for handle in handles])


def _copied_here(
    source: Place, before: Mapping[str, tuple[int, int]], writer: Writer, output: Output
) -> list[StateHandle] | None:
    """Copy a folder by way of a copy beside the server; None, with nothing done, if there is no such place."""
    if not isinstance(source, OnDisk):
        return None

    def copy(copies: Mapping[str, Path]) -> None:
        for name, path in copies.items():
            source.copy_to(path, name)
        _check_unchanged(source, before, {name: path.stat().st_size for name, path in copies.items()})

    return writer.write_files(output, {name: before[name][0] for name in sorted(before)}, copy)


def _copied(
    source: Place, before: Mapping[str, tuple[int, int]], files: JobFiles, writer: Writer, output: Output
) -> list[StateHandle]:
    """Copy a folder directly into the store."""
    own = output.folder
    with writer.waiting():
        for name in before:
            source.keep(name, own)
    arrived = {found.key.removeprefix(own): found for found in files.listing(own)}
    # Some file systems leave markers for folders.
    writer.delete([own + name for name in arrived.keys() - before.keys()])
    _check_unchanged(source, before, {name: arrived[name].size_bytes for name in before})
    return writer.handles(output.id, [arrived[name] for name in sorted(before)])


def _check_unchanged(source: Place, before: Mapping[str, tuple[int, int]], copied: Mapping[str, int]) -> None:
    """Check that a folder did not change during the copy; `copied` has the bytes of each copy."""
    changed = sorted({name for name, _ in source.files().items() ^ before.items()})
    if changed or any(copied[name] != size for name, (size, _) in before.items()):
        raise InvalidStateError(
            "the folder changed while it was copied, so the copy may be inconsistent. Close what writes to it first",
            folder=source.url,
            changed=", ".join(changed[:10]),
        )


def restore(
    spark: SparkSession,
    files: JobFiles,
    stored: Stored,
    into: str | os.PathLike[str],
    local: LocalState | None = None,
) -> None:
    """Copy raw files out of the checkpoint into an empty or new folder.

    Args:
        spark: the session; a session with its own driver copies by its JVM.
        files: the job's files.
        stored: the raw files.
        into: a path on the driver's disk, or a URL; see `places.place`.
        local: copies beside the server, used if they are whole (semantics V3).
    """
    target = place(spark, files, into)
    target.make_empty()
    own = f"{stored.output.folder.rstrip('/')}/"
    here = None
    if local is not None and isinstance(target, OnDisk):
        here = local.find(stored.output.id, [file.handle for file in stored.files])
    for file in stored.files:
        name = file.handle.path.removeprefix(own)
        if here is not None and isinstance(target, OnDisk):
            target.bring_from(here / name_in_copy(stored.output.id, file.handle.path), name)
        else:
            target.bring(name, own)


def _check_names(own: str, names: Iterable[str]) -> None:
    for name in names:
        check_key(own + name)
        if "\\" in name:
            raise InvalidStateError(
                "a file has a backslash in its name, which is a slash to some stores. Give it another name", file=name
            )
