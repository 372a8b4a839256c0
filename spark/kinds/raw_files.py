"""Raw files as state: a model, an index, the checkpoint folder of a Structured Streaming query (semantics A4, R4).

A folder is copied into the checkpoint file by file, and checked before and after: a folder that changes during the copy
is refused, never kept half. If the Spark Connect server keeps copies (semantics V3), its client first copies the folder
to the server's machine, uploads that copy, and later restores from it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from ...checkpoint.documents.acknowledgement import Output, StateHandle
from ...checkpoint.errors import InvalidStateError
from ...checkpoint.sources import file_names
from ...checkpoint.store.job_files import JobFiles
from ...storage.names import check_key
from ...storage.port import ConditionFailed
from ...storage.records import dataclass
from ..execution.transport import is_remote
from ..output.writer import Writer
from ..stored.local_state import LocalState, name_in_copy
from ..stored.outputs import File, Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND = "files"


def snapshot(
    spark: SparkSession, files: JobFiles, writer: Writer, output_id: str, folder: str | os.PathLike[str]
) -> Stored:
    """Copy a folder with all files below it into the checkpoint; empty folders are not kept.

    A session with its own driver copies by its JVM. The folder is a path on the driver's disk, or a URL; see `place`.
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
    """Copy a folder by way of a copy beside the server. If there is no such place, do nothing and return None."""
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

    A session with its own driver copies by its JVM. Copies beside the server are used if they are whole (semantics V3).
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


# Places of files outside of the checkpoint. A classic application copies by Hadoop's file systems inside its JVM, so
# a folder may lie wherever Spark reads and writes: on the driver's disk, in S3, in HDFS. A client of a Spark Connect
# server has no JVM: it copies files of its own disk through the storage port. The server's disk may be another
# machine's.


_SCHEME = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]+:/")
_CHUNK_BYTES = 8 * 1024 * 1024
_AT_ONCE = 8
"""Files looked at side by side."""


@dataclass(frozen=True, slots=True)
class FileStatus:
    """A file's status, which tells its contents apart without reading them."""

    size_bytes: int
    etag: str | None
    modified_ms: int | None

    def is_like(self, other: FileStatus) -> bool:
        """Compare contents: by the tags, or by the time of the last change if one has no tag."""
        if self.size_bytes != other.size_bytes:
            return False
        tags = [(each.etag or "").strip('"') for each in (self, other)]
        if all(tags):
            return tags[0] == tags[1]
        times = [each.modified_ms for each in (self, other) if each.modified_ms is not None]
        # An S3 server may list milliseconds, but return seconds for the object itself.
        precision = 1000 if any(each % 1000 == 0 for each in times) else 1
        return len({each // precision for each in times}) < 2


def look(spark: SparkSession, urls: Sequence[str]) -> list[FileStatus | None]:
    """Look at files as Spark sees them, with Spark's credentials; on S3 one request per file.

    Over Spark Connect tags are unknown, and a missing file is Spark's own error, which names it.

    The URLs are literal names, not patterns.

    Returns:
        The status of each; None if the file is missing.
    """
    if not urls:
        return []
    if is_remote(spark):
        return _looked_remotely(spark, urls)
    with ThreadPoolExecutor(_AT_ONCE, "cairn-look") as pool:
        return list(pool.map(partial(_looked, spark), urls))


def _looked(spark: SparkSession, url: str) -> FileStatus | None:
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    jsc: Any = spark._jsc
    path = jvm.org.apache.hadoop.fs.Path(url)
    try:
        status = path.getFileSystem(jsc.hadoopConfiguration()).getFileStatus(path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName() == "java.io.FileNotFoundException":
            return None
        raise
    etag = status.getEtag() if url.startswith("s3a:") else None
    return FileStatus(status.getLen(), etag, status.getModificationTime())


def _looked_remotely(spark: SparkSession, urls: Sequence[str]) -> list[FileStatus | None]:
    # These columns come from the listing; only `content`, which is not asked for, would read the files.
    found = spark.read.format("binaryFile").load([file_names.literal(url) for url in urls])
    rows = found.selectExpr("path", "length", "unix_millis(modificationTime) AS modified_ms").collect()
    by_path = {row.path: FileStatus(row.length, None, row.modified_ms) for row in rows}
    return [by_path.get(url.replace("file:///", "file:/", 1)) for url in urls]


class Place(Protocol):
    """A folder outside of the checkpoint."""

    url: str
    """For error messages."""

    def files(self) -> dict[str, tuple[int, int]]:
        """Return each file below, by its path relative to the folder: its bytes, and the time of the last change."""

    def make_empty(self) -> None:
        """Make the folder, which may exist and be empty."""

    def keep(self, name: str, folder: str) -> None:
        """Copy one file into a folder of the job; `folder` ends in `/`."""

    def bring(self, name: str, folder: str) -> None:
        """Copy one file out of a folder of the job; `folder` ends in `/`."""


def place(spark: SparkSession, files: JobFiles, where: str | os.PathLike[str]) -> Place:
    """Return the folder that an application names.

    It is a path on the disk of the application's process, or a URL; over Spark Connect only `file:`.

    Raises:
        InvalidStateError: this application has no JVM that could read the URL.
    """
    if not is_remote(spark):
        return _ByHadoop(spark, files, where)
    text = os.fspath(where)
    if _SCHEME.match(text) and not text.startswith("file:/"):
        raise InvalidStateError(
            "over Spark Connect raw files are copied by the application's own process, which reads and writes its own "
            "disk only. Copy them there first, or submit this stage with spark-submit",
            folder=text,
        )
    return OnDisk(files, Path(re.sub(r"\Afile:/+", "/", text)))


def _occupied(url: str) -> InvalidStateError:
    return InvalidStateError(
        "raw files are restored into an empty folder only, and something lies there. Give a new one", folder=url
    )


def _missing(url: str) -> InvalidStateError:
    return InvalidStateError("there is no such folder to keep as raw files", folder=url)


class OnDisk:
    """A folder on the disk of this process, copied through the storage port."""

    def __init__(self, files: JobFiles, root: Path) -> None:
        self._files = files
        self._root = root.absolute()
        self.url = f"file://{self._root}"

    def files(self) -> dict[str, tuple[int, int]]:
        """See `Place`.

        Raises:
            InvalidStateError: there is no such folder.
        """
        if not self._root.is_dir():
            raise _missing(self.url)
        found = ((each, each.stat()) for each in sorted(self._root.rglob("*")) if each.is_file())
        return {
            each.relative_to(self._root).as_posix(): (stat.st_size, stat.st_mtime_ns // 1_000_000)
            for each, stat in found
        }

    def make_empty(self) -> None:
        """See `Place`.

        Raises:
            InvalidStateError: the folder is not empty.
        """
        if self._root.exists() and (not self._root.is_dir() or any(self._root.iterdir())):
            raise _occupied(self.url)
        self._root.mkdir(parents=True, exist_ok=True)

    def keep(self, name: str, folder: str) -> None:
        """See `Place`.

        Raises:
            InvalidStateError: another process writes in this driver's name.
        """
        key = self._files.full(folder + name)
        with (self._root / name).open("rb") as source:
            if isinstance(self._files.store.create_from(key, source), ConditionFailed):
                raise InvalidStateError("a file with this driver's own name is there already", key=key)

    def copy_to(self, path: Path, name: str) -> None:
        with (self._root / name).open("rb") as source, path.open("xb") as into:
            shutil.copyfileobj(source, into, _CHUNK_BYTES)

    def bring(self, name: str, folder: str) -> None:
        at = 0
        with self._new(name) as into:
            while chunk := self._files.read_range(folder + name, at, _CHUNK_BYTES):
                into.write(chunk)
                at += len(chunk)

    def bring_from(self, path: Path, name: str) -> None:
        """Copy one file from another path; no link, since the application may write into it."""
        with path.open("rb") as source, self._new(name) as into:
            shutil.copyfileobj(source, into, _CHUNK_BYTES)

    def _new(self, name: str) -> BinaryIO:
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target.open("xb")


class _ByHadoop:
    """A folder in Hadoop's file systems, copied inside the JVM."""

    def __init__(self, spark: SparkSession, files: JobFiles, where: str | os.PathLike[str]) -> None:
        text = os.fspath(where)
        if _SCHEME.match(text):
            # Spark knows S3 by the scheme s3a only.
            self.url = re.sub(r"\As3:/", "s3a:/", text).rstrip("/")
        else:
            self.url = f"file://{Path(text).absolute()}"
        jvm: Any = spark._jvm
        jsc: Any = spark._jsc
        self._files = files
        self._hadoop = jvm.org.apache.hadoop.fs
        self._conf = jsc.hadoopConfiguration()
        self._root = self._hadoop.Path(self.url)
        self._fs = self._root.getFileSystem(self._conf)

    def files(self) -> dict[str, tuple[int, int]]:
        if not self._fs.exists(self._root) or not self._fs.getFileStatus(self._root).isDirectory():
            raise _missing(self.url)
        # Use the root as the file system writes it: listed paths begin with that.
        root = self._fs.getFileStatus(self._root).getPath().toString().rstrip("/") + "/"
        found: dict[str, tuple[int, int]] = {}
        listing = self._fs.listFiles(self._root, True)
        while listing.hasNext():
            status = listing.next()
            found[status.getPath().toString().removeprefix(root)] = status.getLen(), status.getModificationTime()
        return found

    def make_empty(self) -> None:
        if self._fs.exists(self._root):
            status = self._fs.getFileStatus(self._root)
            if not status.isDirectory() or len(self._fs.listStatus(self._root)):
                raise _occupied(self.url)
        self._fs.mkdirs(self._root)

    def keep(self, name: str, folder: str) -> None:
        self._copy(f"{self.url}/{name}", self._stored(name, folder))

    def bring(self, name: str, folder: str) -> None:
        self._copy(self._stored(name, folder), f"{self.url}/{name}")

    def _stored(self, name: str, folder: str) -> str:
        return f"{self._files.spark_url(folder.rstrip('/'))}/{name}"

    def _copy(self, source: str, target: str) -> None:
        paths = [self._hadoop.Path(url) for url in (source, target)]
        systems = [path.getFileSystem(self._conf) for path in paths]
        if target.startswith("file:"):
            # Without the checksum files that Hadoop writes beside files on a local disk.
            systems[1] = systems[1].getRawFileSystem()
        self._hadoop.FileUtil.copy(systems[0], paths[0], systems[1], paths[1], False, True, self._conf)
