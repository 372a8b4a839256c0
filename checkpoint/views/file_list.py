"""The files that a retained checkpoint names, some at a time, and which of them are damaged (semantics R1, O2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice

from ..coordinator import Coordinator
from ..documents.acknowledgement import StateHandle
from ..documents.entries import CompletedEntry
from ..documents.head import Head
from ..documents.metadata import HandleLine, InFlightLine, StageLine
from ..documents.strict_json import Json
from ..store import metadata_file
from ..store.file_check import FileCheck
from ..store.job_files import JobFiles


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
    """What is wrong with it; None: it is there, as it was written."""


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
        """Give it as plain JSON values."""
        rows: list[Json] = [asdict(each) for each in self.rows]
        return {"checkpoint": self.checkpoint, "first": self.first, "files_in_all": self.files, "files": rows}


def files(
    coordinator: Coordinator, checkpoint: int, *, stage: str | None = None, first: int = 0, limit: int = 100
) -> FilePage:
    """Give some files of a checkpoint, each checked as a restore checks it: those, and no others.

    Args:
        coordinator: of the job.
        checkpoint: its id.
        stage: whose files to give; None for all.
        first: where to begin, from 0.
        limit: how many to give.

    Raises:
        NoCheckpointError: it is not retained.
        GoneError: its metadata is gone.
        DocumentError: it is broken, or the head is.
        UnavailableError: the store did not answer.
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
