"""Reads the rows of a state or a published table from its files by pyarrow, without Spark or Java."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from ...storage.errors import DocumentError
from ...storage.records import dataclass
from ..documents.acknowledgement import Output, StateHandle
from ..documents.entries import CompletedEntry
from ..documents.metadata import HandleLine, StageLine
from ..documents.schemas import plain_schema
from ..errors import InvalidConfigError, NoCheckpointError
from ..store import metadata_file
from ..store.job_files import JobFiles
from ..validation import did_you_mean
from .values import Column, Kind, same, shown

# The limit on reading where a person only looks at some rows of a state.


class TooMuchToReadError(Exception):
    """A budget is too small for what is to be read next."""


class ReadBudget:
    """Remaining budget for reading a state's files.

    Args:
        size_bytes: number of bytes.
        keys: number of keys of deltas. A few bytes may hold millions of keys, which are all in memory.
    """

    def __init__(self, size_bytes: int, keys: int) -> None:
        self._bytes = size_bytes
        self._keys = keys

    def spend(self, size_bytes: int) -> None:
        """Take some bytes.

        Raises:
            TooMuchToReadError: fewer are left.
        """
        if size_bytes > self._bytes:
            raise TooMuchToReadError
        self._bytes -= size_bytes

    def spend_key(self) -> None:
        """Take one key.

        Raises:
            TooMuchToReadError: none is left.
        """
        if not self._keys:
            raise TooMuchToReadError
        self._keys -= 1


RowsKind = Literal["state", "table"]

_MANY = 4096
"""Rows that are read at once of a state that has deltas."""
_READ_BYTES = 1024 * 1024
"""Bytes of each column that are read at once; a larger page is read whole."""
_FEW_BYTES = 128 * 1024
"""The same under a budget: the first rows need little more than one page."""


class Ranges(Protocol):
    """Reads parts of files."""

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read bytes of an object; fewer where it ends."""

    def full(self, key: str) -> str:
        """Give the key as errors name it."""


@dataclass(slots=True)
class StoredState:
    """A state or a table of one checkpoint, with its files by subtask."""

    output: Output
    files: list[tuple[int, StateHandle]] = field(default_factory=list)
    cut: bool = False
    """Whether the state has further files."""

    def in_order(self) -> list[StateHandle]:
        """Give its files in the order in which they are read."""
        self.files.sort(key=lambda file: (file[0], file[1].path))
        return [handle for _, handle in self.files]

    def cut_to(self, most: int) -> None:
        """Keep only the first files."""
        if len(self.files) > most:
            self.in_order()
            del self.files[most:]
            self.cut = True


def pyarrow_parquet(reader: str) -> Any:
    """Give pyarrow's reader of Parquet.

    Args:
        reader: name of the command or page that reads, for the message.

    Raises:
        InvalidConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidConfigError(
            f"{reader} reads Parquet by pyarrow, which is not installed. Type: pip install 'airflow-cairn[state]'"
        ) from error
    return pyarrow.parquet


def has_int96(schema: Any) -> bool:
    """Tell whether a Parquet file has timestamps of the old type INT96, by its own schema as pyarrow gives it."""
    return any(schema.column(at).physical_type == "INT96" for at in range(len(schema)))


def find_state(
    files: JobFiles, entry: CompletedEntry, stage: str, name: str, kind: RowsKind = "state", most: int = sys.maxsize
) -> StoredState:
    """Find a state or a table and its files; reads all of the metadata, so that it is known to be whole.

    Args:
        files: the job's.
        entry: the checkpoint.
        stage: the stage that wrote it.
        name: its name.
        kind: what it is.
        most: how many of its files are kept in memory.

    Raises:
        NoCheckpointError: the checkpoint holds no such stage, or the stage no such state or table.
    """
    there: dict[str, list[str]] = {}
    found: StoredState | None = None
    inside = False
    lines = metadata_file.read(files, entry.metadata)
    for line in metadata_file.flattened(files, lines) if kind == "table" else lines:
        if isinstance(line, HandleLine):
            if inside and found is not None and line.handle.output == found.output.id:
                found.files.append((line.subtask, line.handle))
                if len(found.files) > 2 * most:
                    found.cut_to(most)
            continue
        inside = isinstance(line, StageLine) and line.stage == stage
        if isinstance(line, StageLine):
            states = {output.name: output for output in line.outputs if output.kind == kind}
            there[line.stage] = list(states)
            if inside and name in states:
                found = StoredState(states[name])
    if found is not None:
        found.cut_to(most)
        return found
    where = {"job": files.job, "checkpoint": entry.id}
    if stage not in there:
        said = f"the checkpoint has no stage {stage!r}{did_you_mean(stage, there)}"
        raise NoCheckpointError(said, **where, stages=", ".join(there))
    others = ". Lists, files and values are not tables: see cairn show" if kind == "state" else ""
    raise NoCheckpointError(
        f"the stage {stage!r} has no {kind} {name!r}{others}{did_you_mean(name, there[stage])}",
        **where,
        **{f"{kind}s": ", ".join(there[stage]) or "none"},
    )


def columns_of(output: Output) -> dict[str, Kind]:
    """Give the author's columns, and their types as the JSON of Spark's schema has them.

    Raises:
        DocumentError: there is no schema.
        InvalidConfigError: the files are not Parquet.
    """
    if output.format:
        raise InvalidConfigError(
            f"the {output.kind} {output.name!r} is of the format {output.format}, and only Parquet is read without "
            "Spark. Read it with airflow_cairn.spark, or its folder by what reads that format",
            folder=output.folder,
        )
    if output.schema is None:
        raise DocumentError(f"the {output.kind} has no schema", output=output.id, folder=output.folder)
    return {each["name"]: each["type"] for each in plain_schema(output.schema)["fields"]}


def rows_of(
    parquet: Any,
    files: Ranges,
    found: StoredState,
    at_once: int = _MANY,
    names: Sequence[str] | None = None,
    budget: ReadBudget | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows in the order in which the state is read, each value as `values.shown` gives it.

    Args:
        parquet: pyarrow's reader.
        files: the job's.
        found: the state or table.
        at_once: how many rows of a state without deltas are read at once.
        names: the columns to read, the key among them; None for all.
        budget: what may be read; None for all.

    Raises:
        InvalidConfigError: only Spark can merge what this state consists of.
        DocumentError: a file is broken.
    """
    kinds = columns_of(found.output)
    names = list(kinds) if names is None else names
    handles = found.in_order()
    size = _MANY if any(handle.delta for handle in handles) else at_once

    if found.output.merge and any(handle.delta for handle in handles):
        raise InvalidConfigError(
            "this state is aggregated, and what epochs have added is merged by Spark: read it with "
            "airflow_cairn.spark.state(spark, storage, job, stage, name)",
            state=found.output.name,
            merge=", ".join(f"{column}: {how}" for column, how in sorted(found.output.merge.items())),
        )

    def read(handle: StateHandle, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        try:
            # With pre_buffer whole column chunks are read, perhaps a hundred megabytes for a few rows.
            file = parquet.ParquetFile(
                RemoteFile(files, handle, budget),
                pre_buffer=False,
                buffer_size=_READ_BYTES if budget is None else _FEW_BYTES,
                coerce_int96_timestamp_unit="us",
            )
            footer, int96 = file.metadata.metadata or {}, has_int96(file.schema)
            read_as = {name: Column(kinds.get(name, "boolean"), footer, int96=int96) for name in columns}
            # By one thread: each reserves memory of its own, and a bounded process has no room for that.
            for batch in file.iter_batches(batch_size=size, columns=list(columns), use_threads=False):
                there = [name for name in columns if name in batch.schema.names]
                if found.output.kind == "state" and (missing := {*columns} - {*there, DELETED}):
                    raise ValueError(f"it lacks the column {min(missing)!r}")
                read_in = [read_as[name].values(batch.column(name)) for name in there]
                yield from (dict(zip(there, row, strict=True)) for row in zip(*read_in, strict=True))
        except (ValueError, KeyError, NotImplementedError, OSError) as error:
            # These include pyarrow's errors: an ArrowInvalid is a ValueError.
            raise DocumentError(f"the file cannot be read as Parquet: {error}", key=files.full(handle.path)) from error

    rows_ = merged(handles, names, found.output.key, read, budget)
    if found.output.kind == "table":
        # Files from before a column was added lack it.
        yield from ({name: shown(row.get(name), kinds[name]) for name in names} for row in rows_)
    else:
        yield from ({name: shown(row[name], kinds[name]) for name in names} for row in rows_)


class RemoteFile(io.RawIOBase):
    """A stored file that can be read anywhere, a range at a time."""

    def __init__(self, files: Ranges, handle: StateHandle, budget: ReadBudget | None) -> None:
        self._files = files
        self._handle = handle
        self._budget = budget
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._handle.size_bytes}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = memoryview(buffer)
        if self._budget is not None:
            self._budget.spend(len(wanted))
        data = self._files.read_range(self._handle.path, self._at, len(wanted))
        wanted[: len(data)] = data
        self._at += len(data)
        return len(data)


# The rows of a state that has deltas: of each key the newest (semantics K1).
#
# The keys of all deltas are in memory, bounded by a budget; the rows are not.


DELETED = "_cairn_deleted"
"""As `spark/stored/deltas.py` writes it; nothing of Spark's side is imported here."""

Rows = Callable[[StateHandle, Sequence[str]], Iterator[dict[str, Any]]]
"""Reads columns of a file, row by row."""


def merged(
    handles: Sequence[StateHandle],
    names: Sequence[str],
    key: Sequence[str],
    read: Rows,
    budget: ReadBudget | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a state: those of its base that no delta has touched, then the newest of the deltas.

    Args:
        handles: its files, in their order.
        names: its columns.
        key: its key columns.
        read: reads a file.
        budget: how many keys of deltas may be read; None for all.
    """
    newest: dict[Any, int] = {}
    deltas = [handle for handle in handles if handle.delta]
    for handle in deltas:
        for row in read(handle, key):
            if budget is not None:
                budget.spend_key()
            at = _key(row, key)
            newest[at] = max(handle.delta, newest.get(at, 0))
    for handle in handles:
        for row in read(handle, names if not handle.delta else [*names, DELETED]):
            if newest.get(_key(row, key), 0) == handle.delta and not row.pop(DELETED, False):
                yield row


def _key(row: dict[str, Any], key: Sequence[str]) -> Any:
    return tuple(same(row[column]) for column in key)
