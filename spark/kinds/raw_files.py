"""Raw files as state: a model, an index, the checkpoint folder of a Structured Streaming query (semantics A4, R4).

A folder is copied into the checkpoint file by file, by Hadoop's file systems inside the JVM, so it may lie wherever
Spark reads and writes: on the driver's disk, in S3, in HDFS. It is looked at before and after: one that is written
to meanwhile is refused, and not half of it kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoint.documents.acknowledgement import Output
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.store.job_files import JobFiles
from ...storage.names import check_key
from ..output.writer import Writer
from ..stored.outputs import File, Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "files"
_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]+:/")


def snapshot(
    spark: SparkSession, files: JobFiles, writer: Writer, output_id: str, folder: str | os.PathLike[str]
) -> Stored:
    """Copy a folder into the checkpoint, with all that lies below it; folders without files are not kept.

    Args:
        spark: the session whose JVM copies.
        files: the job's files.
        writer: of this driver.
        output_id: `files.<name>`.
        folder: a path on the driver's disk, or a URL that Spark can read.

    Raises:
        InvalidStateError: there is no such folder, a file has a backslash in its name, or the files changed while they
            were copied.
        InvalidKeyError: a file has a name that no store can hold.
    """
    source = _Place(spark, folder)
    before = source.files()
    own = writer.folder_of(output_id)
    _check_names(own, before)
    target = _Place(spark, files.spark_url(own.rstrip("/")))
    with writer.waiting():
        for name in before:
            source.copy(name, target)
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
    target = _Place(spark, into)
    target.make_empty()
    source = _Place(spark, files.spark_url(stored.output.folder.rstrip("/")))
    for file in stored.files:
        source.copy(file.handle.path.removeprefix(f"{stored.output.folder.rstrip('/')}/"), target)


def _check_names(own: str, names: Iterable[str]) -> None:
    for name in names:
        check_key(own + name)
        if "\\" in name:
            raise InvalidStateError(
                "a file has a backslash in its name, which is a slash to some stores. Give it another name", file=name
            )


class _Place:
    """A folder as Hadoop sees it."""

    def __init__(self, spark: SparkSession, where: str | os.PathLike[str]) -> None:
        text = os.fspath(where)
        if _SCHEME.match(text):
            # Spark knows S3 by the scheme s3a only.
            self.url = re.sub(r"\As3:/", "s3a:/", text).rstrip("/")
        else:
            self.url = f"file://{Path(text).absolute()}"
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        self._hadoop = jvm.org.apache.hadoop.fs
        self._conf = jsc.hadoopConfiguration()
        self._root = self._hadoop.Path(self.url)
        self._fs = self._root.getFileSystem(self._conf)

    def files(self) -> dict[str, tuple[int, int]]:
        """Give each file below by its path relative to the folder: its bytes, and when it was written last.

        Raises:
            InvalidStateError: there is no such folder.
        """
        if not self._fs.exists(self._root) or not self._fs.getFileStatus(self._root).isDirectory():
            raise InvalidStateError("there is no such folder to keep as raw files", folder=self.url)
        # The root as the file system writes it: what it lists begins with that.
        root = self._fs.getFileStatus(self._root).getPath().toString().rstrip("/") + "/"
        found: dict[str, tuple[int, int]] = {}
        listing = self._fs.listFiles(self._root, True)
        while listing.hasNext():
            status = listing.next()
            found[status.getPath().toString().removeprefix(root)] = status.getLen(), status.getModificationTime()
        return found

    def make_empty(self) -> None:
        """Make the folder, which may be there and empty.

        Raises:
            InvalidStateError: something lies there already.
        """
        if self._fs.exists(self._root):
            status = self._fs.getFileStatus(self._root)
            if not status.isDirectory() or len(self._fs.listStatus(self._root)):
                raise InvalidStateError(
                    "raw files are restored into an empty folder only, and something lies there. Give a new one",
                    folder=self.url,
                )
        self._fs.mkdirs(self._root)

    def copy(self, name: str, target: _Place) -> None:
        """Copy one file."""
        paths = [self._hadoop.Path(f"{place.url}/{name}") for place in (self, target)]
        raw = target._fs
        if target.url.startswith("file:"):
            # Without the checksum files that Hadoop puts beside what it writes to a local disk.
            raw = raw.getRawFileSystem()
        self._hadoop.FileUtil.copy(self._fs, paths[0], raw, paths[1], False, True, self._conf)
