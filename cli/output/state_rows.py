"""`cairn state`: the first rows of a state, read from its files by pyarrow; neither Spark nor Java runs."""

from __future__ import annotations

import argparse
import base64
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from itertools import islice
from typing import Any

from ...checkpoint import Coordinator
from ...checkpoint.documents.acknowledgement import Output, StateHandle
from ...checkpoint.documents.entries import CompletedEntry
from ...checkpoint.documents.head import Head
from ...checkpoint.documents.metadata import HandleLine, StageLine
from ...checkpoint.documents.schemas import plain_schema
from ...checkpoint.errors import InvalidConfigError, NoCheckpointError
from ...checkpoint.store import metadata_file
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import DocumentError
from . import merged_rows, text
from .suggestions import meant

HEAD = 20
"""How many rows are shown, unless asked otherwise."""
_CELL = 40
"""Columns of the terminal that a value may take."""
_MANY = 4096
"""Rows that are read at once of a state that has runs."""
_READ_BYTES = 1024 * 1024
"""How much of each column is read at once."""


@dataclass(slots=True)
class StoredState:
    """A state of one checkpoint, with its files by subtask."""

    output: Output
    files: list[tuple[int, StateHandle]] = field(default_factory=list)


def rows(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Give the first rows of a state.

    Args:
        coordinator: of the job.
        options: with `stage`, `name`, `checkpoint` (None: the newest) and `head`.

    Raises:
        NoCheckpointError: none has completed, or the one asked for is not retained or holds no such state.
        InvalidConfigError: pyarrow is not installed.
        DocumentError: the metadata or a file is broken.
    """
    parquet = pyarrow_parquet("cairn state")

    def look(head: Head) -> tuple[int, StoredState, list[dict[str, Any]]]:
        entry = _entry(head, options.checkpoint)
        found = find_state(coordinator.files, entry, options.stage, options.name)
        count = options.head + 1
        return entry.id, found, list(islice(rows_of(parquet, coordinator.files, found, count), count))

    # A newer checkpoint may complete meanwhile, and the one that is read be cleaned: then it looks again.
    checkpoint, found, there = coordinator.observe(look)
    shown, more = there[: options.head], len(there) > options.head
    output, names = found.output, _names(found.output)
    document = {
        "job": coordinator.job,
        "checkpoint": checkpoint,
        "stage": options.stage,
        "name": options.name,
        "url": coordinator.files.spark_url(output.folder),
        "files": [coordinator.files.spark_url(handle.path) for _, handle in found.files],
        "key": list(output.key),
        "key_groups": output.key_groups,
        "runs": len({handle.run for _, handle in found.files if handle.run}),
        "merge": output.merge,
        "columns": names,
        "rows": shown,
        "more": more,
    }
    return list(_lines(document)), document


def _lines(document: dict[str, Any]) -> Iterator[str]:
    keyed = f", by {', '.join(document['key'])}" if document["key"] else ""
    groups = f" in {document['key_groups']} key groups" if document["key_groups"] else ""
    runs = f", {document['runs']} run{'s' if document['runs'] > 1 else ''}" if document["runs"] else ""
    yield f"state {document['name']} of {document['stage']} in checkpoint {document['checkpoint']}{keyed}{groups}{runs}"
    if document["runs"]:
        yield "read it with airflow_cairn.spark.state, which merges the runs with the base"
    else:
        yield f"files: {document['url']}"
    yield ""
    names = document["columns"]
    cells = [[_cell(row[name]) for name in names] for row in document["rows"]]
    numbers = {name for name in names if all(isinstance(row[name], int | float | None) for row in document["rows"])}
    yield from text.table([text.fit(name, _CELL) for name in names], cells, right=numbers)
    if document["more"]:
        yield "… and more rows; raise --head to see them"
    elif not cells:
        yield "no rows"


def _cell(value: Any) -> str:
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False)
    return text.fit(value, _CELL)


def pyarrow_parquet(command: str) -> Any:
    """Give pyarrow's reader of Parquet.

    Raises:
        InvalidConfigError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidConfigError(
            f"{command} reads Parquet by pyarrow, which is not installed. Type: pip install 'airflow-cairn[state]'"
        ) from error
    return pyarrow.parquet


def _entry(head: Head, checkpoint: int | None) -> CompletedEntry:
    if checkpoint is not None:
        return head.retained(checkpoint)
    latest = head.latest_completed()
    if latest is None:
        raise NoCheckpointError("no checkpoint of the job has completed yet, so it has no state", job=head.job)
    return latest


def find_state(files: JobFiles, entry: CompletedEntry, stage: str, name: str) -> StoredState:
    """Find a state and its files; reads all of the metadata, so that it is known to be whole.

    Raises:
        NoCheckpointError: the checkpoint holds no such stage or state.
    """
    there: dict[str, list[str]] = {}
    found: StoredState | None = None
    inside = False
    for line in metadata_file.read(files, entry.metadata):
        if isinstance(line, HandleLine):
            if inside and found is not None and line.handle.output == found.output.id:
                found.files.append((line.subtask, line.handle))
            continue
        inside = isinstance(line, StageLine) and line.stage == stage
        if isinstance(line, StageLine):
            states = {output.name: output for output in line.outputs if output.kind == "state"}
            there[line.stage] = list(states)
            if inside and name in states:
                found = StoredState(states[name])
    if found is not None:
        return found
    where = {"job": files.job, "checkpoint": entry.id}
    if stage not in there:
        said = f"the checkpoint has no stage {stage!r}{meant(stage, there)}"
        raise NoCheckpointError(said, **where, stages=", ".join(there))
    raise NoCheckpointError(
        f"the stage {stage!r} has no state {name!r}{meant(name, there[stage])}. Lists, files and values are no tables: "
        "see cairn show",
        **where,
        states=", ".join(there[stage]) or "none",
    )


def _names(output: Output) -> list[str]:
    """Give the names of the author's columns."""
    if output.schema is None:
        raise DocumentError("the state has no schema", output=output.id, folder=output.folder)
    return [each["name"] for each in plain_schema(output.schema)["fields"]]


def rows_of(parquet: Any, files: JobFiles, found: StoredState, at_once: int = _MANY) -> Iterator[dict[str, Any]]:
    """Yield the rows in the order in which the state is read, as JSON has them.

    Args:
        parquet: pyarrow's reader.
        files: the job's.
        found: the state.
        at_once: how many rows of a state without runs are read at once.

    Raises:
        InvalidConfigError: only Spark can merge what this state consists of.
        DocumentError: a file is broken.
    """
    names = _names(found.output)
    handles = [handle for _, handle in sorted(found.files, key=lambda file: (file[0], file[1].path))]
    size = _MANY if any(handle.run for handle in handles) else at_once

    if found.output.merge and any(handle.run for handle in handles):
        raise InvalidConfigError(
            "this state is aggregated, and what epochs have added is merged by Spark: read it with "
            "airflow_cairn.spark.state(spark, storage, job, stage, name)",
            state=found.output.name,
            merge=", ".join(f"{column}: {how}" for column, how in sorted(found.output.merge.items())),
        )

    def read(handle: StateHandle, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        try:
            # Else the columns' parts of a row group are read whole, and that may be a hundred megabytes for a few rows.
            file = parquet.ParquetFile(_Remote(files, handle), pre_buffer=False, buffer_size=_READ_BYTES)
            for batch in file.iter_batches(batch_size=size, columns=list(columns)):
                yield from batch.to_pylist()
        except (ValueError, KeyError, NotImplementedError, OSError) as error:
            # pyarrow's own errors are such: an ArrowInvalid is a ValueError.
            raise DocumentError(f"the file cannot be read as Parquet: {error}", key=files.full(handle.path)) from error

    rows_ = merged_rows.merged(handles, names, found.output.key, read)
    yield from ({name: _plain(row[name]) for name in names} for row in rows_)


def _plain(value: Any) -> Any:
    """Give a value as JSON has it; what that cannot say becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence):
        return [_plain(inner) for inner in value]
    return str(value)


class _Remote(io.RawIOBase):
    """A stored file that can be read anywhere, a range at a time."""

    def __init__(self, files: JobFiles, handle: StateHandle) -> None:
        self._files = files
        self._handle = handle
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
        data = self._files.read_range(self._handle.path, self._at, len(wanted))
        wanted[: len(data)] = data
        self._at += len(data)
        return len(data)
