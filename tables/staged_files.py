"""The staged files of a table, as the sink reads and deletes them with the format's own file system."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..checkpoint.documents import staged_tables
from ..checkpoint.documents.staged_tables import MANIFEST, Manifest, StagedRows
from ..checkpoint.errors import DamagedError
from ..storage.records import dataclass


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

        for path in self._below(f"{staged.folder}/{MANIFEST}"):
            if path.endswith(".parquet"):
                try:
                    with self.filesystem.open_input_file(path) as source:
                        [text] = pq.read_table(source)["manifest"].to_pylist()
                except FileNotFoundError:
                    return None  # another process has committed, and deletes
                if staged_tables.digest(text) != staged.sha256:
                    raise DamagedError(
                        "a manifest of staged rows was altered after the stage acknowledged. Put the file back",
                        code="staged_rows",
                        file=path,
                    )
                return staged_tables.manifest_of(text, where=path)
        return None

    def footer(self, url: str) -> Any:
        """Read the footer of a staged Parquet file."""
        import pyarrow.parquet as pq

        with self.filesystem.open_input_file(self._path(url)) as source:
            return pq.read_metadata(source)

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
        for path in self._below(folder):
            if not any(path == each or path.startswith(f"{each}/") for each in stay):
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
