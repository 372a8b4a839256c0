"""The staged files of a table, as the sink reads and deletes them with the format's own file system."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import MANIFEST, Manifest, StagedFile, StagedRows
from ..checkpoint.errors import DamagedError
from ..storage.records import dataclass

_Made = TypeVar("_Made")
_AT_ONCE = 8
"""Footers read, or files deleted, at once."""


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """The files below one table's location.

    Args:
        filesystem: a file system of pyarrow.
        root: the location as the file system names it.
        url: the location as the table names it.
    """

    filesystem: Any
    root: str
    url: str

    def manifest(self, staged: StagedRows) -> Manifest | None:
        """Read the manifest of a driver's staged rows; None if it was deleted, as after a commit.

        Raises:
            DamagedError: the manifest is not what the driver acknowledged.
        """
        import pyarrow.parquet as pq

        self._path(staged.folder)
        where, text = f"the acknowledgement of {staged.folder}", staged_tables.unpacked(staged.manifest)
        if not staged.manifest:
            paths = self._below(f"{staged.folder}/{MANIFEST}")
            where = next((each for each in paths if each.endswith(".parquet")), "")
            if not where:
                return None
            try:
                with self.filesystem.open_input_file(where) as source:
                    [text] = pq.read_table(source)["manifest"].to_pylist()
            except FileNotFoundError:
                return None  # another process has committed, and deletes
        if staged_tables.digest(text) != staged.sha256:
            way_out = "Restore the checkpoint's metadata from a copy" if staged.manifest else "Put the file back"
            raise DamagedError(
                f"a manifest of staged rows was altered after the stage acknowledged. {way_out}",
                code="staged_rows",
                file=where,
            )
        return staged_tables.manifest_of(text, where=where)

    def each_footer(
        self, files: Mapping[str, StagedFile], use: Callable[[str, StagedFile, Any], _Made]
    ) -> Iterator[_Made]:
        """Read footers of staged Parquet files, some at once, and yield what is made of each, in order.

        Args:
            files: by their URLs; their sizes save asking for them.
            use: makes something of URL, file and footer.

        Raises:
            FileNotFoundError: one is gone.
        """
        from pyarrow.dataset import ParquetFileFormat

        def read(listed: tuple[str, StagedFile]) -> _Made:
            url, file = listed
            path = self._path(url)
            try:
                footer = ParquetFileFormat().make_fragment(path, self.filesystem, file_size=file.size_bytes).metadata
            except OSError as error:  # of whatever class, where the size is not asked for first
                if not self.are_there([url]):
                    raise FileNotFoundError(f"a staged file is gone: {url}") from error
                raise
            return use(url, file, footer)

        with ThreadPoolExecutor(_AT_ONCE, "cairn-footers") as pool:
            yield from pool.map(read, files.items())

    def are_there(self, urls: Sequence[str]) -> bool:
        """Tell whether all of these staged files exist."""
        from pyarrow.fs import FileType

        found = self.filesystem.get_file_info([self._path(each) for each in urls])
        return all(each.type == FileType.File for each in found)

    def batches(self, url: str, columns: Sequence[str]) -> Iterator[Any]:
        """Read the rows of a staged Parquet file, some thousands at a time, with its columns in this order."""
        import pyarrow.parquet as pq

        with self.filesystem.open_input_file(self._path(url)) as source:
            for batch in pq.ParquetFile(source).iter_batches():
                yield batch.select(list(columns))

    def write(self, url: str, rows: Any) -> None:
        """Write a table of Arrow as a Parquet file."""
        import pyarrow.parquet as pq

        with self.filesystem.open_output_stream(self._path(url)) as into:
            pq.write_table(rows, into)

    def probe(self, name: str) -> None:
        """Write a file of this name below the location, and delete it again."""
        import pyarrow
        import pyarrow.parquet as pq

        path = f"{self.root}/{name}" if self.root else name
        if self.filesystem.type_name == "local":
            self.filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(path) as into:
            pq.write_table(pyarrow.table({"probe": [1]}), into)
        self.filesystem.delete_file(path)

    def delete(self, folder: str, *, but: Collection[str] = ()) -> None:
        """Delete the files below a folder.

        Args:
            folder: its URL.
            but: URLs of files, or of folders, that stay.
        """
        stay = tuple(map(self._path, but))
        gone = (path for path in self._below(folder) if not any(path == at or path.startswith(f"{at}/") for at in stay))
        with ThreadPoolExecutor(_AT_ONCE, "cairn-deletes") as pool:
            for _ in pool.map(self._delete_file, gone):
                pass

    def _delete_file(self, path: str) -> None:
        with suppress(FileNotFoundError):  # two listeners may run at once: the other one has deleted it
            self.filesystem.delete_file(path)

    def _below(self, folder: str) -> Iterator[str]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        for found in self.filesystem.get_file_info(selector):
            if found.type == FileType.File:
                yield found.path

    def _path(self, url: str) -> str:
        # The store names these places, and who writes it may be a stranger (decision 0030).
        if not url.startswith(f"{self.url}/{staged_tables.HIDDEN}/") or ".." in url.split("/"):
            raise DamagedError("staged rows lie outside of their table's folder", code="staged_rows", found=url)
        below = url.removeprefix(self.url)
        return f"{self.root}{below}" if self.root else below[1:]


def filesystem_of(url: str, options: Mapping[str, str]) -> tuple[Any, str]:
    """Give the file system of a URL, and the folder as it names it.

    Args:
        url: of the folder.
        options: the access to S3, by the names of an environment; empty: pyarrow finds it by itself.
    """
    from pyarrow.fs import FileSystem, S3FileSystem

    if not options:
        filesystem, root = FileSystem.from_uri(url)
        return filesystem, root
    named = {
        "access_key": "AWS_ACCESS_KEY_ID",
        "secret_key": "AWS_SECRET_ACCESS_KEY",
        "session_token": "AWS_SESSION_TOKEN",
        "region": "AWS_REGION",
        "endpoint_override": "AWS_ENDPOINT_URL",
    }
    given = {name: options[key] for name, key in named.items() if key in options}
    return S3FileSystem(**given), url.partition("://")[2]


def listed(files: Iterable[tuple[str, Mapping[str, str | None]]]) -> Any:
    """Give a list of data files as a table of Arrow."""
    import pyarrow

    found = [(url, list(given.items())) for url, given in files]
    schema = pyarrow.schema([("path", pyarrow.string()), ("given", pyarrow.map_(pyarrow.string(), pyarrow.string()))])
    return pyarrow.table([[each[0] for each in found], [each[1] for each in found]], schema=schema)


class FooterAlone:
    """The footer of a Parquet file, in place of the file and of the file system in which a library looks for it.

    Args:
        size: of the file, in bytes.
        footer: as pyarrow reads it.
    """

    def __init__(self, size: int, footer: Any) -> None:
        self._size, self._footer = size, footer

    def new_input(self, url: str) -> FooterAlone:  # noqa: ARG002 - the library's
        """Give the file."""
        return self

    def open(self) -> io.BytesIO:
        """Open the footer."""
        found = io.BytesIO()
        self._footer.write_metadata_file(found)
        found.seek(0)
        return found

    def __len__(self) -> int:
        return self._size
