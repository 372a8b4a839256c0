"""Raw files as state: a model, an index, the checkpoint folder of a Structured Streaming query (semantics A4, R4).

A folder is copied into the checkpoint file by file. It is looked at before and after: one that is written to meanwhile
is refused, and not half of it kept. Where it may lie: `places`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...checkpoint.documents.acknowledgement import Output
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.names import check_key
from ..output.writer import Writer
from ..stored.outputs import File, Stored
from .places import place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "files"


def snapshot(
    spark: SparkSession, files: JobFiles, writer: Writer, output_id: str, folder: str | os.PathLike[str]
) -> Stored:
    """Copy a folder into the checkpoint, with all that lies below it; folders without files are not kept.

    Args:
        spark: the session; one of a driver of its own copies by its JVM.
        files: the job's files.
        writer: of this driver.
        output_id: `files.<name>`.
        folder: a path on the driver's disk, or a URL; see `places.place`.

    Raises:
        InvalidStateError: there is no such folder, a file has a backslash in its name, or the files changed while they
            were copied.
        InvalidKeyError: a file has a name that no store can hold.
    """
    source = place(spark, files, folder)
    before = source.files()
    own = writer.folder_of(output_id)
    _check_names(own, before)
    with writer.waiting():
        for name in before:
            source.keep(name, own)
    arrived = {found.key.removeprefix(own): found for found in files.listing(own)}
    # Some file systems leave markers of folders.
    writer.delete([own + name for name in arrived.keys() - before.keys()])
    now = source.files()
    changed = sorted({name for name, _ in now.items() ^ before.items()})
    if changed or any(arrived[name].size_bytes != size for name, (size, _) in before.items()):
        raise InvalidStateError(
            "the folder changed while it was copied, so the copy may be inconsistent. Close what writes to it first",
            folder=source.url,
            changed=", ".join(changed[:10]),
        )
    handles = writer.handles(output_id, [arrived[name] for name in sorted(before)])
    return Stored(Output(KIND, output_id.partition(".")[2], own), [File(0, handle) for handle in handles])


def restore(spark: SparkSession, files: JobFiles, stored: Stored, into: str | os.PathLike[str]) -> None:
    """Copy raw files out of the checkpoint into a folder that is empty or not there; it is there afterwards.

    Raises:
        InvalidStateError: something lies there already.
    """
    target = place(spark, files, into)
    target.make_empty()
    own = f"{stored.output.folder.rstrip('/')}/"
    for file in stored.files:
        target.bring(file.handle.path.removeprefix(own), own)


def _check_names(own: str, names: Iterable[str]) -> None:
    for name in names:
        check_key(own + name)
        if "\\" in name:
            raise InvalidStateError(
                "a file has a backslash in its name, which is a slash to some stores. Give it another name", file=name
            )
