"""Data sets of an epoch: states and tables of a checkpoint, by stage, and lineage (semantics O1, O2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, field, replace
from itertools import chain, islice
from typing import Any, TypeGuard

from ...storage.errors import GoneError, StorageError
from ...storage.names import parse_storage_uri
from ...storage.records import dataclass
from ..coordinator import Coordinator
from ..documents import layout
from ..documents.acknowledgement import AckDocument, Output, StateHandle
from ..documents.attempt import Execution, Handover, Slice
from ..documents.entries import CompletedEntry
from ..documents.head import Head
from ..documents.metadata import CHECKS, HandleLine, InFlightLine, MetadataHeader, StageLine
from ..documents.schemas import plain_schema
from ..documents.strict_json import Json
from ..errors import NoCheckpointError
from ..store import acks, metadata_file
from ..store.job_files import FileCheck, JobFiles
from . import wording
from .stats import Tally

NESTED = 60
"""Characters of a type's text that are shown."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a state or a table."""

    name: str
    type: str
    """As Spark writes it; a nested one shortened."""
    nullable: bool


@dataclass(frozen=True, slots=True)
class StateRow:
    """One output, or one small value, of a stage in a checkpoint."""

    stage: str
    kind: str
    """As in `Output`; `json` for a small value, which is in the metadata itself."""
    name: str
    columns: tuple[Column, ...] = ()
    """Empty if the data are not a DataFrame."""
    key: tuple[str, ...] = ()
    """Key columns of a keyed state."""
    key_groups: int | None = None
    mode: str | None = None
    """Redistribution of a list state."""
    files: int = 0
    size_bytes: int = 0
    partition_by: tuple[str, ...] = ()
    """Partition columns of a table."""
    partitions: int = 0
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
            stage = None  # what is in flight is not a state
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
    """The stage that keeps the file; for data in flight, the stage that wrote it."""
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
    """Number of the first one, from 0."""
    files: int
    """Number of files that the checkpoint names, of the stage or of all."""
    rows: tuple[FileRow, ...]

    def as_json(self) -> dict[str, Json]:
        """Give the view as plain JSON values."""
        rows: list[Json] = [asdict(each) for each in self.rows]
        return {"checkpoint": self.checkpoint, "first": self.first, "files_in_all": self.files, "files": rows}


def checkpoint_files(
    coordinator: Coordinator, checkpoint: int, *, stage: str | None = None, first: int = 0, limit: int = 100
) -> FilePage:
    """Give some files of a checkpoint, and check only these, as a restore does.

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


# Lineage: inputs and outputs of an epoch, as data sets whose names stay the same from epoch to epoch. They follow from
# the acknowledgements. Nothing records which of its upstreams' outputs an application has really read, so all that it
# may read counts. Of a checkpoint's metadata, and of upstreams, only the named outputs are read. No file is checked:
# each stage has checked what it restored.


TABLE = "table"
"""The kind of outputs that a completed checkpoint publishes."""


@dataclass(frozen=True, slots=True)
class SourceSlice:
    """An epoch's input from one source."""

    name: str
    uri: str = ""
    """The folder of a source of files; empty for any other."""
    files: int | None = None
    """None: not known without a look at a long list."""
    size_bytes: int | None = None
    left_out: int = 0
    """Files that the pattern left out, on a day on which it took none."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Inputs and outputs of a stage or an epoch."""

    sources: tuple[SourceSlice, ...] = ()
    restored: tuple[StateRow, ...] = ()
    """States and tables of the stage as the restored checkpoint has them."""
    upstream: tuple[StateRow, ...] = ()
    """Outputs of the upstream stages in this epoch."""
    written: tuple[StateRow, ...] = ()
    """Outputs written now, with their files and bytes; outputs taken over unchanged are left out."""
    published: tuple[StateRow, ...] = ()
    """Tables that readers see, without their files; includes tables that the epoch did not change."""
    rows: Mapping[StateRow, int] = field(default_factory=dict)
    """Number of rows in the written files, where that is known (semantics A1)."""


def of_stage(files: JobFiles, handover: Handover) -> Flow:
    """Give the data that a stage read and wrote in one execution."""
    own = layout.execution_folder(handover.checkpoint, handover.stage, handover.attempt, handover.token)
    written = _written(files, handover, own)
    upstream = [_rows_named(files, stage, execution) for stage, execution in sorted(handover.upstream.items())]
    # A stage that reads from others gets its rows from them.
    sources = () if handover.upstream else sources_of(handover.slice)
    restored = tuple(_restored(files, handover))
    known = {row: rows for row, rows in written.items() if rows is not None}
    return Flow(sources, restored, tuple(chain(*upstream)), tuple(written), rows=known)


def of_checkpoint(coordinator: Coordinator, checkpoint: int) -> tuple[Slice, Flow] | None:
    """Give the input of a completed checkpoint's epoch, and its published tables; None if it is not retained."""
    entry = coordinator.head().completed_by_id(checkpoint)
    if entry is None:
        return None
    read, left, tables = Slice(), 1, []
    for line in metadata_file.read(coordinator.files, entry.metadata):
        if isinstance(line, MetadataHeader):
            read, left = line.slice, len(line.stages)
        elif isinstance(line, StageLine):
            tables += [row_of(line.stage, output) for output in line.outputs if output.kind == TABLE]
            left -= 1
        if not left:
            break
    return read, Flow(sources_of(read), published=tuple(tables))


def rows_written(coordinator: Coordinator, checkpoint: int) -> dict[str, int | None] | None:
    """Give how many rows the epoch of a completed checkpoint wrote to each table that the checkpoint publishes.

    Returns:
        Rows by table: 0 if the epoch wrote nothing to it, None if the number of one of its files is unknown (semantics
        A1). None in place of the dictionary: the checkpoint is no longer retained.
    """
    entry = coordinator.head().completed_by_id(checkpoint)
    if entry is None:
        return None
    found: dict[str, int | None] = {}
    outputs, own = dict[str, Output](), ""
    for line in metadata_file.read(coordinator.files, entry.metadata):
        if isinstance(line, StageLine):
            done = line.execution
            own = layout.execution_folder(done.home, line.stage, done.attempt, done.token)
            outputs = {output.id: output for output in line.outputs}
            found |= {output.name: 0 for output in line.outputs if output.kind == TABLE}
        elif isinstance(line, HandleLine):
            handle, output = line.handle, outputs.get(line.handle.output)
            if output is None or output.kind != TABLE or not handle.of_rows:
                continue
            if handle.path.startswith(own) and _is_new(output, handle):
                found[output.name] = handle.rows_with(found[output.name])
    return found


def _is_new(output: Output, handle: StateHandle) -> bool:
    """Tell whether a file that an epoch wrote holds the epoch's own rows.

    Small files of a growing table that were merged into one lie in another folder than its new files.
    """
    return output.kind != TABLE or handle.path.startswith(output.folder)


def sources_of(read: Slice) -> tuple[SourceSlice, ...]:
    """Give the input of an epoch from each of its sources."""
    return tuple(_source(name, part) for name, part in sorted((read.sources or {}).items()))


def _source(name: str, part: object) -> SourceSlice:
    """Give the input from a `FileSource`; the parts of an author's own sources are not known."""
    if not isinstance(part, Mapping) or not _is_folder(uri := part.get("uri")):
        return SourceSlice(name)
    if isinstance(part.get("list"), Mapping):  # so many files that they are listed elsewhere
        return SourceSlice(name, uri)
    files = part.get("files")
    if not isinstance(files, list):
        return SourceSlice(name)
    sizes = [each.get("size_bytes") if isinstance(each, Mapping) else None for each in files]
    whole = [size for size in sizes if isinstance(size, int)]
    if len(whole) != len(sizes):
        return SourceSlice(name)
    left_out = part.get("left_out")
    return SourceSlice(name, uri, len(whole), sum(whole), left_out if isinstance(left_out, int) else 0)


def files_read(read: Slice) -> list[str]:
    """Describe for people what an epoch reads from each source of files."""
    return [_text(each) for each in sources_of(read) if each.uri]


def _text(read: SourceSlice) -> str:
    if read.files is None:
        return f"{read.name}: so many that a list names them"
    count = "1 file" if read.files == 1 else f"{read.files} files"
    left_out = f"; the pattern leaves out {read.left_out} that are there" if read.left_out else ""
    return f"{read.name}: {count}, {wording.size(read.size_bytes or 0)}{left_out}"


def _is_folder(uri: object) -> TypeGuard[str]:
    """Tell whether a part names a folder that a `FileSource` can read; an author's own may have any address."""
    try:
        parse_storage_uri(uri)
    except StorageError:
        return False
    return isinstance(uri, str)


def _rows_named(files: JobFiles, stage: str, execution: Execution) -> list[StateRow]:
    """Give the outputs that an execution acknowledged, without their files; none where it did not."""
    ack = _acknowledged(files, stage, execution)
    return [row_of(stage, output) for output in ack.outputs] if ack is not None else []


def _written(files: JobFiles, handover: Handover, below: str) -> dict[StateRow, int | None]:
    """Give the outputs of an execution with files below a folder, and the number of their rows, where known."""
    ack = _acknowledged(files, handover.stage, handover.execution)
    if ack is None:
        return {}
    tally, outputs = Tally(ack.outputs, below, 0), {output.id: output for output in ack.outputs}
    try:
        for subtask in acks.subtasks_of(files, ack):
            for handle in subtask.handles:
                if handle.path.startswith(below) and _is_new(outputs[handle.output], handle):
                    tally.add(subtask.index, handle)
    except GoneError:
        return {}
    return {
        replace(row_of(ack.stage, output), files=counted.files, size_bytes=counted.size_bytes): counted.rows
        for output, counted in zip(ack.outputs, tally.outputs(), strict=True)
        if counted.files
    }


def _acknowledged(files: JobFiles, stage: str, execution: Execution) -> AckDocument | None:
    try:
        return acks.read_ack(files, stage, execution)
    except GoneError:  # the stage declined, or a cleaner has deleted the acknowledgement
        return None


def _restored(files: JobFiles, handover: Handover) -> Iterator[StateRow]:
    if handover.restore is None:
        return
    for line in metadata_file.read(files, handover.restore.metadata):
        if isinstance(line, StageLine) and line.stage == handover.stage:
            yield from (row_of(line.stage, output) for output in line.outputs)
            return
