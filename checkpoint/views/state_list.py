"""Lists the states and tables of a completed checkpoint by stage, with columns and sizes (semantics O1, O2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import islice
from typing import Any

from ...storage.records import dataclass
from ..coordinator import Coordinator
from ..documents.acknowledgement import Output, StateHandle
from ..documents.entries import CompletedEntry
from ..documents.head import Head
from ..documents.metadata import CHECKS, HandleLine, InFlightLine, StageLine
from ..documents.schemas import plain_schema
from ..documents.strict_json import Json
from ..errors import NoCheckpointError
from ..store import metadata_file
from ..store.job_files import FileCheck, JobFiles

NESTED = 60
"""Characters of a nested type that are given."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a state or a table."""

    name: str
    type: str
    """As Spark writes it; a nested one shortened."""
    nullable: bool


@dataclass(frozen=True, slots=True)
class StateRow:
    """One thing that a stage keeps in a checkpoint."""

    stage: str
    kind: str
    """As in `Output`; `json` for a small value, which is in the metadata itself."""
    name: str
    columns: tuple[Column, ...] = ()
    """Empty for what is no DataFrame."""
    key: tuple[str, ...] = ()
    """Key columns of a keyed state."""
    key_groups: int | None = None
    mode: str | None = None
    """Redistribution of a list state."""
    files: int = 0
    size_bytes: int = 0
    partition_by: tuple[str, ...] = ()
    """Columns by which the rows of a table are kept apart."""
    partitions: int = 0
    """Number of different values."""
    folder: str = ""
    """Relative to the job's prefix; an older checkpoint's if the stage left it unchanged. Empty where it has none."""


@dataclass(frozen=True, slots=True)
class CheckpointStates:
    """Content of one completed checkpoint."""

    checkpoint: int
    states: tuple[StateRow, ...]
    """In the order of the stages."""

    def as_json(self) -> dict[str, Json]:
        """Give the view as plain JSON values; every field is there, None where nothing is known."""
        return {"checkpoint": self.checkpoint, "states": [asdict(each) for each in self.states]}


def states(coordinator: Coordinator, checkpoint: int | None = None) -> CheckpointStates:
    """Give the outputs of a retained checkpoint.

    Args:
        coordinator: of the job.
        checkpoint: its id; None for the newest.
    """

    def look(head: Head) -> CheckpointStates:
        entry = _entry(head, checkpoint)
        return CheckpointStates(entry.id, tuple(_rows(coordinator.files, entry)))

    return coordinator.observe(look)


def _entry(head: Head, checkpoint: int | None) -> CompletedEntry:
    if checkpoint is not None:
        return head.retained(checkpoint)
    newest = head.latest_completed()
    if newest is None:
        raise NoCheckpointError("no checkpoint has completed yet", job=head.job)
    return newest


def _rows(files: JobFiles, entry: CompletedEntry) -> list[StateRow]:
    found: dict[tuple[str, str], StateRow] = {}
    partitions: dict[tuple[str, str], set[str]] = {}
    stage: str | None = None
    for line in metadata_file.flattened(files, metadata_file.read(files, entry.metadata)):
        if isinstance(line, StageLine):
            stage = line.stage
            found |= {(stage, output.id): row_of(stage, output) for output in line.outputs}
            found |= {
                (stage, f"json.{name}"): StateRow(stage, "json", name) for name in sorted(line.values.keys() - {CHECKS})
            }
        elif isinstance(line, InFlightLine):
            stage = None  # what is in flight is no state
        elif isinstance(line, HandleLine) and stage is not None and (stage, line.handle.output) in found:
            row = found[stage, line.handle.output]
            size_bytes = row.size_bytes + line.handle.size_bytes
            found[stage, line.handle.output] = replace(row, files=row.files + 1, size_bytes=size_bytes)
            if row.partition_by:
                partitions.setdefault((stage, line.handle.output), set()).add(line.handle.partition)
    return [replace(row, partitions=len(partitions.get(which, ()))) for which, row in found.items()]


def row_of(stage: str, output: Output) -> StateRow:
    """Give an output as a row, without the files that it has."""
    columns = _columns(output.schema) if output.schema else ()
    mode = str(output.mode) if output.mode else None
    by = output.appended.partition_by if output.appended else ()
    return StateRow(
        stage,
        output.kind,
        output.name,
        columns,
        output.key,
        output.key_groups,
        mode,
        partition_by=by,
        folder=output.folder,
    )


def _columns(schema: str) -> tuple[Column, ...]:
    fields = plain_schema(schema)["fields"]
    return tuple(Column(each["name"], _type(each["type"]), each["nullable"]) for each in fields)


def _type(found: str | dict[str, Any]) -> str:
    whole = _nested(found)
    return whole if len(whole) <= NESTED else f"{whole[: NESTED - 1]}…"


def _nested(found: str | dict[str, Any]) -> str:
    if isinstance(found, str):
        return found
    if found["type"] == "array":
        return f"array<{_nested(found['elementType'])}>"
    if found["type"] == "map":
        return f"map<{_nested(found['keyType'])}, {_nested(found['valueType'])}>"
    fields = (f"{each['name']}: {_nested(each['type'])}" for each in found["fields"])
    return f"struct<{', '.join(fields)}>"


# The files that a retained checkpoint names, some at a time, and which of them are damaged (semantics R1, O2).


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file."""

    stage: str
    """The stage that keeps it; of what is in flight, the one that wrote it."""
    output: str
    subtask: int
    path: str
    """Relative to the job's prefix."""
    size_bytes: int
    problem: str | None
    """Damage of the file; None: it exists, as it was written."""


@dataclass(frozen=True, slots=True)
class FilePage:
    """Some of the files of a checkpoint, in the order of its metadata."""

    checkpoint: int
    first: int
    """Where they begin, from 0."""
    files: int
    """All that the checkpoint names of what was asked for."""
    rows: tuple[FileRow, ...]

    def as_json(self) -> dict[str, Json]:
        """Give the view as plain JSON values."""
        rows: list[Json] = [asdict(each) for each in self.rows]
        return {"checkpoint": self.checkpoint, "first": self.first, "files_in_all": self.files, "files": rows}


def checkpoint_files(
    coordinator: Coordinator, checkpoint: int, *, stage: str | None = None, first: int = 0, limit: int = 100
) -> FilePage:
    """Give some files of a checkpoint, each checked as a restore checks it: those, and no others.

    Args:
        coordinator: of the job.
        checkpoint: its id.
        stage: whose files to give; None for all.
        first: where to begin, from 0.
        limit: how many to give.
    """

    def look(head: Head) -> FilePage:
        named = _named(coordinator.files, head.retained(checkpoint), stage)
        passed = sum(1 for _ in islice(named, first))
        shown = list(islice(named, limit))
        damaged = FileCheck(coordinator.files).damaged(handle for _, _, handle in shown)
        problems = {handle.path: problem for handle, problem in damaged}
        rows = tuple(
            FileRow(of, handle.output, subtask, handle.path, handle.size_bytes, problems.get(handle.path))
            for of, subtask, handle in shown
        )
        return FilePage(checkpoint, first, passed + len(shown) + sum(1 for _ in named), rows)

    return coordinator.observe(look)


def _named(job: JobFiles, entry: CompletedEntry, stage: str | None) -> Iterator[tuple[str, int, StateHandle]]:
    of = ""
    for line in metadata_file.flattened(job, metadata_file.read(job, entry.metadata)):
        if isinstance(line, StageLine | InFlightLine):
            of = line.stage
        elif isinstance(line, HandleLine) and stage in (None, of):
            yield of, line.subtask, line.handle
