"""Inputs and outputs of an epoch, as data sets whose names stay the same from epoch to epoch.

Found by what the stages acknowledged. Which of its upstreams' outputs an application has really read is not recorded:
all that it may read counts. Of a checkpoint's metadata, and of upstreams, no more is read than what is named; each
stage has checked what it restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from itertools import chain
from typing import TypeGuard

from ...storage.errors import GoneError, StorageError
from ...storage.names import parse_storage_uri
from ...storage.records import dataclass
from ..coordinator import Coordinator
from ..documents import layout
from ..documents.acknowledgement import AckDocument, Output, StateHandle
from ..documents.attempt import Execution, Handover, Slice
from ..documents.metadata import HandleLine, MetadataHeader, StageLine
from ..store import acks, metadata_file
from ..store.job_files import JobFiles
from . import wording
from .state_list import StateRow, row_of
from .stats import Tally

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
    """Inputs and outputs."""

    sources: tuple[SourceSlice, ...] = ()
    restored: tuple[StateRow, ...] = ()
    """States and tables of the stage as the restored checkpoint has them."""
    upstream: tuple[StateRow, ...] = ()
    """Outputs of the upstream stages in this epoch."""
    written: tuple[StateRow, ...] = ()
    """Outputs written now, with their files and bytes; outputs taken over unchanged are left out."""
    published: tuple[StateRow, ...] = ()
    """Tables that readers see, without their files: also those that the epoch did not touch."""
    rows: Mapping[StateRow, int] = field(default_factory=dict)
    """Number of rows in the written files, where that is known (semantics A1)."""


def of_stage(files: JobFiles, handover: Handover) -> Flow:
    """Give the data that a stage read and wrote in one execution."""
    own = layout.execution_folder(handover.checkpoint, handover.stage, handover.attempt, handover.token)
    written = _written(files, handover, own)
    upstream = [_named(files, stage, execution) for stage, execution in sorted(handover.upstream.items())]
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
        Rows by table: 0 where the epoch has written nothing to it, None where the number is not known of one of the
        files (semantics A1). None as a whole: the checkpoint is not retained any more.
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

    Small files of a table that grows, which are written anew as one, lie beside its new files in a folder of their own.
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
    """Say of each source of files what it gave an epoch to read."""
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


def _named(files: JobFiles, stage: str, execution: Execution) -> list[StateRow]:
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
    except GoneError:  # it declined, or a cleaner came by
        return None


def _restored(files: JobFiles, handover: Handover) -> Iterator[StateRow]:
    if handover.restore is None:
        return
    for line in metadata_file.read(files, handover.restore.metadata):
        if isinstance(line, StageLine) and line.stage == handover.stage:
            yield from (row_of(line.stage, output) for output in line.outputs)
            return
