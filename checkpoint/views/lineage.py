"""What an epoch reads and writes, as data sets with names that stay the same from epoch to epoch.

Found by what the stages acknowledged. Which of its upstreams' outputs an application has really read is not recorded:
all that it may read counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from ...storage.errors import GoneError
from ..coordinator import Coordinator
from ..documents import layout
from ..documents.acknowledgement import AckDocument
from ..documents.attempt import Execution, Handover, Slice
from ..documents.metadata import MetadataHeader, StageLine
from ..store import acks, metadata_file
from ..store.job_files import JobFiles
from .state_list import StateRow, row_of

TABLE = "table"
"""The kind of outputs that a completed checkpoint publishes."""


@dataclass(frozen=True, slots=True)
class SourceSlice:
    """What an epoch reads of one source."""

    name: str
    uri: str = ""
    """The folder of a source of files; empty for any other."""
    files: int | None = None
    """None: not known without a look at a long list."""
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """What went in and out."""

    sources: tuple[SourceSlice, ...] = ()
    restored: tuple[StateRow, ...] = ()
    """States and tables of the stage as the restored checkpoint has them."""
    upstream: tuple[StateRow, ...] = ()
    """What the stages before have written in this epoch."""
    written: tuple[StateRow, ...] = ()
    """What was written now, with the files and bytes of that; what was taken over unchanged is not among it."""
    published: tuple[StateRow, ...] = ()
    """Tables that readers see, without their files: also those that the epoch did not touch."""


def of_stage(files: JobFiles, handover: Handover) -> Flow:
    """Give what a stage read and wrote in one execution.

    Args:
        files: of the job.
        handover: of the execution.

    Raises:
        DocumentError: an acknowledgement, or the metadata of the restored checkpoint, is broken.
        UnavailableError: the store did not answer.
    """
    own = layout.execution_folder(handover.checkpoint, handover.stage, handover.attempt, handover.token)
    written = [row for row in _acknowledged(files, handover.stage, handover.execution, own) if row.files]
    upstream = [_acknowledged(files, stage, execution) for stage, execution in sorted(handover.upstream.items())]
    # A stage that reads from others gets its rows from them.
    sources = () if handover.upstream else sources_of(handover.slice)
    return Flow(sources, tuple(_restored(files, handover)), tuple(chain(*upstream)), tuple(written))


def of_checkpoint(coordinator: Coordinator, checkpoint: int) -> tuple[Slice, Flow] | None:
    """Give what a completed checkpoint's epoch reads, and the tables that it published; None if it is not retained.

    Args:
        coordinator: of the job.
        checkpoint: its id.

    Raises:
        GoneError: its metadata is gone.
        DocumentError: it is broken, or the head is.
        UnavailableError: the store did not answer.
    """
    entry = coordinator.head().completed_by_id(checkpoint)
    if entry is None:
        return None
    read, tables = Slice(), []
    for line in metadata_file.read(coordinator.files, entry.metadata):
        if isinstance(line, MetadataHeader):
            read = line.slice
        elif isinstance(line, StageLine):
            tables += [row_of(line.stage, output) for output in line.outputs if output.kind == TABLE]
    return read, Flow(sources_of(read), published=tuple(tables))


def sources_of(read: Slice) -> tuple[SourceSlice, ...]:
    """Give what an epoch reads of each of its sources."""
    return tuple(_source(name, part) for name, part in sorted((read.sources or {}).items()))


def _source(name: str, part: object) -> SourceSlice:
    """Say it of a `FileSource`; the parts of an author's own sources are not known."""
    if not isinstance(part, Mapping) or not isinstance(uri := part.get("uri"), str):
        return SourceSlice(name)
    if isinstance(part.get("list"), Mapping):  # so many files that they are listed elsewhere
        return SourceSlice(name, uri)
    sizes = [each.get("size_bytes") if isinstance(each, Mapping) else None for each in part.get("files") or ("",)]
    whole = [size for size in sizes if isinstance(size, int)]
    return SourceSlice(name, uri, len(whole), sum(whole)) if len(whole) == len(sizes) else SourceSlice(name)


def _acknowledged(files: JobFiles, stage: str, execution: Execution, below: str = "") -> list[StateRow]:
    """Give the outputs that an execution acknowledged, with its files below a folder; none where it did not."""
    try:
        ack = acks.read_ack(files, stage, execution)
        return list(_counted(files, ack, below))
    except GoneError:  # it declined, or a cleaner came by
        return []


def _counted(files: JobFiles, ack: AckDocument, below: str) -> Iterable[StateRow]:
    found = {output.id: row_of(ack.stage, output) for output in ack.outputs}
    for subtask in acks.subtasks_of(files, ack):
        for handle in subtask.handles:
            row = found.get(handle.output)
            if row is not None and handle.path.startswith(below):
                found[handle.output] = replace(row, files=row.files + 1, size_bytes=row.size_bytes + handle.size_bytes)
    return found.values()


def _restored(files: JobFiles, handover: Handover) -> Iterator[StateRow]:
    if handover.restore is None:
        return
    for line in metadata_file.read(files, handover.restore.metadata):
        if isinstance(line, StageLine) and line.stage == handover.stage:
            yield from (row_of(line.stage, output) for output in line.outputs)
