"""One checkpoint, stage by stage: who has acknowledged, what was written, how long it took (semantics O1, O2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ..storage.errors import DocumentError, GoneError
from . import acks, layout, metadata
from .codec import Json, to_json
from .coordinator import Coordinator
from .head import CompletedEntry, Head
from .job_files import JobFiles
from .metadata import HandleLine, InFlightLine, MetadataHeader, StageLine
from .model import AckMetrics, Execution, Output, PendingDocument, Slice, StateHandle
from .views import CheckpointRow, entry_of, row_of


@dataclass(frozen=True, slots=True)
class OutputRow:
    """One output of a stage."""

    kind: str
    name: str
    folder: str
    """Relative to the job's prefix; an older checkpoint's if the stage left it unchanged."""
    files: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage of a checkpoint."""

    stage: str
    execution: str
    """The token that fences it."""
    home: int
    """The checkpoint in whose folder it writes; an older one if it was carried over."""
    attempt: int
    acknowledged: bool
    declined: str | None = None
    """Why it will not acknowledge."""
    problem: str | None = None
    """Why its acknowledgement cannot be read."""
    parallelism: int | None = None
    files: int = 0
    size_bytes: int = 0
    new_bytes: int = 0
    """Those of its files that this execution wrote; the rest is referred to (incremental size)."""
    outputs: tuple[OutputRow, ...] = ()
    values: tuple[str, ...] = ()
    """Names of its small JSON state."""
    metrics: AckMetrics | None = None


@dataclass(frozen=True, slots=True)
class CheckpointDetails:
    """One checkpoint."""

    row: CheckpointRow
    stages: tuple[StageRow, ...] = ()
    """Empty for a past checkpoint whose files are gone."""
    slice: Slice | None = None
    replay: tuple[str, ...] = ()
    """Run ids of older epochs whose input is read again."""
    cause: str = ""
    """Why the attempt was opened, if it is not the first."""
    tables: tuple[str, ...] = ()
    """Names of the tables it published."""

    def as_json(self) -> Json:
        """Give it as plain JSON values."""
        return to_json(self)


def details(coordinator: Coordinator, checkpoint: int) -> CheckpointDetails:
    """Describe a pending, retained or past checkpoint (semantics O2).

    Args:
        coordinator: of the job.
        checkpoint: its id.

    Raises:
        NoCheckpointError: the head knows nothing of that id.
        GoneError: the metadata of a retained checkpoint is gone.
        DocumentError: it is broken, or the head is.
    """

    def look(head: Head) -> CheckpointDetails:
        entry = entry_of(head, checkpoint)
        found = CheckpointDetails(row_of(coordinator, head, entry))
        retained = head.completed_by_id(checkpoint)
        if retained is not None:
            return _of_metadata(coordinator.files, found, retained)
        document = None if isinstance(entry, CompletedEntry) else coordinator.pending_document(entry)
        return found if document is None else _of_document(coordinator.files, found, document)

    return coordinator.observe(look)


def _of_metadata(files: JobFiles, found: CheckpointDetails, entry: CompletedEntry) -> CheckpointDetails:
    stages: list[StageRow] = []
    header: MetadataHeader | None = None
    open_line: StageLine | None = None
    handles: list[StateHandle] = []

    def close() -> Iterator[StageRow]:
        if open_line is not None:
            row = _row(open_line.stage, open_line.execution)
            filled = _filled(row, open_line.outputs, handles, open_line.parallelism, open_line.metrics)
            yield replace(filled, values=tuple(sorted(open_line.values)))

    for line in metadata.read(files, entry.metadata):
        if isinstance(line, MetadataHeader):
            header = line
        elif isinstance(line, StageLine):
            stages.extend(close())
            open_line, handles = line, []
        elif isinstance(line, InFlightLine):
            stages.extend(close())
            open_line, handles = None, []
        elif isinstance(line, HandleLine):
            handles.append(line.handle)
    stages.extend(close())
    return replace(
        found,
        stages=tuple(stages),
        slice=header.slice if header else None,
        replay=tuple(layout.run_id_of(epoch) for epoch in entry.replayed),
        tables=tuple(sorted(entry.tables)),
    )


def _of_document(files: JobFiles, found: CheckpointDetails, document: PendingDocument) -> CheckpointDetails:
    acknowledged = acks.marked(files, document.executions, "acks")
    declined = acks.marked(files, document.executions, "declines")
    stages = []
    for spec in document.stages:
        execution = document.executions[spec.uid]
        row = replace(_row(spec.uid, execution, acknowledged=spec.uid in acknowledged), parallelism=spec.parallelism)
        if spec.uid in acknowledged:
            row = _of_ack(files, row, execution)
        elif spec.uid in declined:
            why = acks.why_declined(files, spec.uid, execution)
            row = replace(row, declined=why[1] if why else None)
        stages.append(row)
    return replace(
        found,
        stages=tuple(stages),
        slice=document.slice,
        replay=tuple(layout.run_id_of(each.epoch) for each in document.replay),
        cause=document.cause,
    )


def _of_ack(files: JobFiles, row: StageRow, execution: Execution) -> StageRow:
    try:
        ack = acks.read_ack(files, row.stage, execution)
        handles = [handle for subtask in acks.subtasks_of(files, ack) for handle in subtask.handles]
    except (GoneError, DocumentError) as error:
        return replace(row, problem=str(error))
    filled = _filled(row, ack.outputs, handles, ack.parallelism, ack.metrics)
    return replace(filled, values=tuple(sorted(ack.values)))


def _row(stage: str, execution: Execution, *, acknowledged: bool = True) -> StageRow:
    return StageRow(stage, execution.token, execution.home, execution.attempt, acknowledged)


def _filled(
    row: StageRow, outputs: Iterable[Output], handles: Iterable[StateHandle], parallelism: int, metrics: AckMetrics
) -> StageRow:
    rows = {output.id: OutputRow(output.kind, output.name, output.folder) for output in outputs}
    own = layout.execution_folder(row.home, row.stage, row.attempt, row.execution)
    new_bytes = 0
    for handle in handles:
        new_bytes += handle.size_bytes if handle.path.startswith(own) else 0
        before = rows.get(handle.output)
        if before is not None:
            rows[handle.output] = replace(
                before, files=before.files + 1, size_bytes=before.size_bytes + handle.size_bytes
            )
    return replace(
        row,
        parallelism=parallelism,
        files=sum(each.files for each in rows.values()),
        size_bytes=sum(each.size_bytes for each in rows.values()),
        new_bytes=new_bytes,
        outputs=tuple(rows.values()),
        metrics=metrics,
    )
