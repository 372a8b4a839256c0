"""One checkpoint, stage by stage and subtask by subtask, slowest first (semantics O1, O2).

A stage's subtasks acknowledge together, in one marker (A6), so only the stage's time is known; the largest subtask
comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field, replace

from ...storage.errors import DocumentError, GoneError
from ...storage.records import dataclass
from ..coordinator import Coordinator
from ..documents import layout
from ..documents.acknowledgement import AckMetrics
from ..documents.attempt import BacklogEpoch, Execution, PendingDocument, Slice, run_text
from ..documents.entries import CompletedEntry, EndedEntry, SavepointEntry, Slowest
from ..documents.head import MAX_RECORDED, Head
from ..documents.layout import run_id_of
from ..documents.metadata import (
    CHECKS,
    EXAMPLES,
    HandedOn,
    HandleLine,
    HookLine,
    InFlightLine,
    MetadataHeader,
    StageLine,
)
from ..documents.read_windows import Overlap, WindowText
from ..documents.strict_json import Json
from ..reasons import Reason, Status
from ..store import acks, metadata_file
from ..store.job_files import JobFiles
from . import data_sets
from .checkpoint_list import CheckpointRow, Entry, entry_of, newest_of, row_of, said_of, window_json
from .drawn_stages import DrawnStage, drawn
from .next_step import FollowedBy, ReadBy, failure_text, next_step
from .stats import OutputRow, SubtaskRow, Tally
from .table_changes import TableChange, changes_of

SUBTASKS = 3
"""Default number of subtasks that are described of each stage."""


@dataclass(frozen=True, slots=True)
class StageRow:
    """One stage of a checkpoint."""

    stage: str
    execution: str
    """Token of the stage's execution."""
    home: int
    """The checkpoint in whose folder the stage writes; an older one if its execution was carried over."""
    attempt: int
    acknowledged: bool
    begun: bool = False
    """Whether a task try has claimed the execution; always False for a stage that a completed checkpoint left out."""
    carried: bool = False
    """Whether the execution was taken over from an earlier attempt, and not run in this one (semantics F2)."""
    owes: tuple[str, ...] = ()
    """Run ids of the epochs whose input the stage has still to read, oldest first. If the checkpoint completed without
    this stage, the stage's other fields come from the checkpoint before (semantics B3, F6). If the stage acknowledged,
    it has still to read the output of upstreams in these epochs (B2)."""
    skipped: bool = False
    """Whether its task was skipped: another task acknowledged for it, and its state did not change."""
    late: bool = False
    """Whether the stage acknowledged after the checkpoint had failed; `metrics` has the time, the files are deleted."""
    declined: str | None = None
    """Reason why the stage declined."""
    problem: str | None = None
    """Reason why the acknowledgement cannot be read."""
    parallelism: int | None = None
    """Number of its subtasks; None until it acknowledges, unless the job fixes the number."""
    acked_subtasks: int = 0
    files: int = 0
    size_bytes: int = 0
    new_bytes: int = 0
    """Bytes of the files that this execution wrote; the rest is referred to (incremental size)."""
    outputs: tuple[OutputRow, ...] = ()
    handed_on: HandedOn | None = None
    """Exchanges of the stage in a completed checkpoint; while it is pending, they are in `outputs`."""
    values: tuple[str, ...] = ()
    """Names of its small JSON state."""
    failed_checks: tuple[str, ...] = ()
    """Failed data checks that only warn, each with examples of rows."""
    metrics: AckMetrics | None = None
    subtasks: tuple[SubtaskRow, ...] = ()
    """The largest ones, largest first; empty before it has acknowledged."""

    @property
    def subtasks_left_out(self) -> int:
        """Subtasks that have acknowledged and have no row."""
        return self.acked_subtasks - len(self.subtasks)

    @property
    def rows(self) -> int | None:
        """Number of rows in the files of its outputs; None if no output has rows, or if one has an unknown number."""
        found = [each.rows for each in self.outputs if each.of_rows]
        known = [each for each in found if each is not None]
        return sum(known) if known and len(known) == len(found) else None

    @property
    def took_ms(self) -> int | None:
        """Time from the trigger to the acknowledgement, by its metrics; None before the acknowledgement."""
        if self.metrics is None:
            return None
        return max(self.metrics.end_to_end_ms, self.metrics.start_delay_ms + self.metrics.sync_ms)

    def without_examples(self) -> StageRow:
        """Give the stage without the rows that break a check; the check's name and their number stay."""

        def shorter(text: str) -> str:
            before, found, _ = text.partition(EXAMPLES)
            return f"{before} it" if found else text

        return replace(self, failed_checks=tuple(map(shorter, self.failed_checks)))


@dataclass(frozen=True, slots=True)
class CheckpointDetails:
    """One checkpoint."""

    row: CheckpointRow
    job: str
    stages: tuple[StageRow, ...] = ()
    """Stages in this order: not acknowledged, then slowest first, then carried over. Empty for a past checkpoint whose
    files are deleted."""
    slowest: Slowest | None = None
    """None where no stage has acknowledged in this checkpoint."""
    slice: Slice | None = None
    replay: tuple[str, ...] = ()
    """Run ids of older epochs whose input is read again."""
    cause: str = ""
    """Why the attempt was opened, if it is not the first."""
    tables: tuple[str, ...] = ()
    """Names of the published tables."""
    changes: tuple[TableChange, ...] = ()
    """Changes that it makes to tables outside of the storage; empty unless it is retained."""
    inputs: Mapping[str, WindowText] = field(default_factory=dict)
    """By run id, the windows of time that the runs in `replay` and in a stage's `owes` read, as far as known."""
    followed_by: FollowedBy | None = None
    """The newest later checkpoint of the same DAG run; None if the history has no later one."""
    read_by: ReadBy | None = None
    """The checkpoint of another DAG run that has read all of its window since it failed (semantics T8); None also if
    the run has `read_again`."""
    lost: bool = False
    """Whether only a new trigger can open the epoch's next attempt, because the record of the stages is gone or
    broken, or the job was rewound since. The failure's reason does not show this."""
    damages: tuple[str, ...] = ()
    """Damaged files that restores found, so that they used an older checkpoint (semantics R1)."""
    drawn: tuple[DrawnStage, ...] = ()
    """The stages in the DAG's layout at the trigger; empty if the attempt's document is deleted."""

    @property
    def files_read(self) -> list[str]:
        """Input from each file source, as text."""
        return data_sets.files_read(self.slice) if self.slice else []

    @property
    def acked_subtasks(self) -> int:
        """Subtasks that have acknowledged."""
        return sum(stage.acked_subtasks for stage in self.stages)

    @property
    def acknowledged_since(self) -> int:
        """Stages that have acknowledged since it failed: an execution that the next attempt keeps goes on (F2)."""
        if self.row.status is not Status.FAILED:
            return 0
        return max(sum(stage.acknowledged for stage in self.stages) - self.row.acks, 0)

    @property
    def expected_subtasks(self) -> int | None:
        """Number of subtasks that must acknowledge; None while a stage's parallelism is unknown."""
        known = [stage.parallelism for stage in self.stages if stage.parallelism is not None]
        return sum(known) if len(known) == len(self.stages) else None

    @property
    def failed_stages(self) -> frozenset[str]:
        """The stages whose failure ended it, as its detail names them; empty while it is pending or has completed."""
        if self.row.status is not Status.FAILED:
            return frozenset()
        causes = (self.row.detail, *self.row.others)
        # Without a restart, the text begins with the reason: "NoRestart allows no restart: routes: ValueError".
        said = tuple(part for cause in causes for part in (cause, cause.partition(": ")[2]))
        names = (stage.stage for stage in self.stages if not stage.acknowledged)
        return frozenset(name for name in names if any(part.startswith(f"{name}: ") for part in said))

    @property
    def why_no_stages(self) -> str:
        """Say why the checkpoint's stages are not known."""
        if self.row.status is Status.FAILED:
            return (
                f"The store no longer has the record of its stages: it keeps those of the last {MAX_RECORDED} failures."
            )
        return "The checkpoint's files were deleted, because newer checkpoints are retained."

    def how_far(self, stage: StageRow) -> str:
        """Return a stage's short status."""
        if stage.problem or stage.declined:
            return "broken" if stage.problem else "declined"
        if stage.stage in self.failed_stages:
            return "failed"
        if stage.skipped or stage.late:
            return "skipped" if stage.skipped else "late"
        if stage.acknowledged:
            return f"{stage.acked_subtasks}/{stage.parallelism}"
        if self.row.status is Status.COMPLETED:
            return "left out"
        return "begun" if stage.begun else "not begun"

    def without_examples(self) -> CheckpointDetails:
        """Give the view without the rows that break checks of data, for a person who may not see the state."""
        return replace(self, stages=tuple(stage.without_examples() for stage in self.stages))

    def run_text(self, run_id: str) -> str:
        """Name a run of `replay` or of a stage's `owes`, with what it reads where that is known."""
        return run_text(run_id, self.inputs.get(run_id))

    @property
    def why(self) -> str:
        """Why the checkpoint failed, in plain words; empty unless it did."""
        return failure_text(self.row)

    def next_step(self, storage: str) -> str:
        """Say a person's next step about the checkpoint, with the exact command."""
        return next_step(self.row, self.job, storage, self.followed_by, self.read_by, lost=self.lost)

    def as_json(self, *, storage: str, stages: int | None = None) -> dict[str, Json]:
        """Return the JSON of `cairn show`; a value that is unknown is None.

        Args:
            storage: the job's, for the command to type.
            stages: number of stages to give, from the first; all by default.
        """
        shown = self.stages[:stages]
        described = [
            {
                **asdict(stage),
                "rows": stage.rows,
                "took_ms": stage.took_ms,
                "subtasks_left_out": stage.subtasks_left_out,
            }
            for stage in shown
        ]
        return {
            "checkpoint": self.row.as_json(),
            "stages": described,
            "stages_left_out": len(self.stages) - len(shown),
            "acked_subtasks": self.acked_subtasks,
            "expected_subtasks": self.expected_subtasks,
            "slowest": asdict(self.slowest) if self.slowest else None,
            "slice": asdict(self.slice) if self.slice else None,
            "replay": list(self.replay),
            "cause": self.cause,
            "tables": list(self.tables),
            "changes": [each.as_json() for each in self.changes],
            "damages": list(self.damages),
            "followed_by": self.followed_by.id if self.followed_by else None,
            "next_step": self.next_step(storage),
        }


def details(coordinator: Coordinator, checkpoint: int | None = None, *, subtasks: int = SUBTASKS) -> CheckpointDetails:
    """Describe a pending, retained or past checkpoint (semantics O2).

    Args:
        coordinator: of the job.
        checkpoint: its id; None for the newest.
        subtasks: maximum number of subtasks of each stage that get a row, at least 1.
    """

    def look(head: Head) -> CheckpointDetails:
        entry = entry_of(head, checkpoint)
        found = CheckpointDetails(
            row_of(coordinator, head, entry),
            head.job,
            followed_by=_followed_by(head, entry),
            damages=_damages(head, entry.id),
        )
        retained = head.completed_by_id(entry.id)
        if retained is not None:
            return _in_order(_with_inputs(_of_metadata(coordinator.files, found, head, retained, subtasks), head))
        document = None if isinstance(entry, CompletedEntry) else coordinator.pending_document(entry)
        if isinstance(entry, EndedEntry) and entry.status is Status.FAILED:
            taken_up = head.unfinished(entry.epoch) if document is not None else None
            stopped = entry.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND and not entry.paused
            found = replace(found, lost=taken_up is None and not stopped)
        if document is None:
            return found
        if not document.slice.again:
            found = replace(found, read_by=_read_by(head, found.row))
        return _in_order(_with_inputs(_of_document(coordinator.files, found, document, subtasks), head))

    return coordinator.observe(look)


def _followed_by(head: Head, entry: Entry) -> FollowedBy | None:
    newest = newest_of(head, entry.epoch, after=entry.id)
    return None if newest is None else FollowedBy(newest, said_of(entry_of(head, newest)))


def _with_inputs(found: CheckpointDetails, head: Head) -> CheckpointDetails:
    runs = {*found.replay, *(run for stage in found.stages for run in stage.owes)}
    windows = {run: head.window_of(layout.epoch_name(run)) for run in runs}
    return replace(found, inputs={run: window for run, window in windows.items() if window is not None})


def _read_by(head: Head, row: CheckpointRow) -> ReadBy | None:
    """Find the oldest retained checkpoint whose state holds all of a failed checkpoint's window."""
    latest = head.latest_completed()
    if row.status is not Status.FAILED or row.input is None or latest is None:
        return None
    window = row.input.window
    if latest.read.overlap(window) is not Overlap.ALL:
        return None
    held = next(each for each in head.completed if each.read.overlap(window) is Overlap.ALL)
    return ReadBy(held.id, layout.run_id_of(held.epoch))


def _damages(head: Head, checkpoint: int) -> tuple[str, ...]:
    of_it = f"checkpoint {checkpoint}: "
    said = (damage for record in head.restores for damage in record.damages if damage.startswith(of_it))
    return tuple(dict.fromkeys(damage.removeprefix(of_it) for damage in said))


def _in_order(found: CheckpointDetails) -> CheckpointDetails:
    def place(stage: StageRow) -> tuple[bool, bool, int]:
        return (stage.carried and stage.acknowledged, stage.acknowledged, -(stage.took_ms or 0))

    stages = tuple(sorted(found.stages, key=place))
    own = next((stage for stage in stages if stage.acknowledged and not stage.carried and stage.subtasks), None)
    slowest = Slowest(own.stage, own.took_ms or 0, own.subtasks[0].index) if own else None
    return replace(found, stages=stages, slowest=slowest)


def _of_metadata(
    files: JobFiles, found: CheckpointDetails, head: Head, entry: CompletedEntry, keep: int
) -> CheckpointDetails:
    stages: list[StageRow] = []
    lines: list[HookLine | StageLine] = []
    header: MetadataHeader | None = None
    line_of: StageLine | None = None
    tally: Tally | None = None

    def close() -> Iterator[StageRow]:
        if line_of is not None and tally is not None:
            row = _row(found, line_of.stage, line_of.execution)
            row = _filled(_with_values(row, line_of.values), tally, line_of.parallelism)
            row = replace(row, owes=_runs(line_of.owes), skipped=line_of.skipped, handed_on=line_of.handed_on)
            if line_of.left_out:
                yield replace(row, acknowledged=False, begun=False, acked_subtasks=0, failed_checks=())
            else:
                yield replace(row, metrics=line_of.metrics)

    for line in metadata_file.read(files, entry.metadata):
        if isinstance(line, HookLine | StageLine):
            lines.append(line)
        if isinstance(line, MetadataHeader):
            header = line
        elif isinstance(line, StageLine):
            stages.extend(close())
            line_of, tally = line, Tally(line.outputs, _folder(line.stage, line.execution), keep)
        elif isinstance(line, InFlightLine):
            stages.extend(close())
            line_of = tally = None
        elif isinstance(line, HandleLine) and tally is not None:
            tally.add(line.subtask, line.handle)
    stages.extend(close())
    return replace(
        found,
        stages=tuple(stages),
        slice=header.slice if header else None,
        replay=tuple(layout.run_id_of(epoch) for epoch in entry.replayed),
        tables=tuple(sorted(entry.tables)),
        changes=tuple(changes_of(lines, head, entry.id, files.store.uri)),
    )


def _of_document(files: JobFiles, found: CheckpointDetails, document: PendingDocument, keep: int) -> CheckpointDetails:
    acknowledged = acks.marked(files, document.executions, "acks")
    declined = acks.marked(files, document.executions, "declines")
    begun = acks.marked(files, document.executions, "handover") | acknowledged
    late = {each.stage: each.metrics for each in found.row.late}
    stages = []
    for spec in document.stages:
        execution = document.executions[spec.uid]
        row = _row(found, spec.uid, execution, acknowledged=spec.uid in acknowledged)
        row = replace(row, parallelism=spec.parallelism, owes=_runs(document.backlogs.get(spec.uid, ())))
        row = replace(row, begun=spec.uid in begun)
        if spec.uid in acknowledged:
            row = _of_ack(files, row, execution, keep)
        elif spec.uid in declined:
            why = acks.why_declined(files, spec.uid, execution)
            row = replace(row, declined=why[1] if why else None)
        elif spec.uid in late:
            row = replace(row, late=True, metrics=late[spec.uid])
        stages.append(row)
    return replace(
        found,
        stages=tuple(stages),
        slice=document.slice,
        replay=tuple(layout.run_id_of(each.epoch) for each in document.replay),
        cause=document.cause,
        drawn=drawn(document.stages, {}),
    )


def _of_ack(files: JobFiles, row: StageRow, execution: Execution, keep: int) -> StageRow:
    try:
        ack = acks.read_ack(files, row.stage, execution)
        tally = Tally(ack.outputs, _folder(row.stage, execution), keep)
        for subtask in acks.subtasks_of(files, ack):
            for handle in subtask.handles:
                tally.add(subtask.index, handle)
    except (GoneError, DocumentError) as error:
        return replace(row, problem=str(error))
    row = replace(row, skipped=ack.skipped)
    return _filled(_with_values(replace(row, metrics=ack.metrics), ack.values), tally, ack.parallelism)


def _with_values(row: StageRow, values: Mapping[str, Json]) -> StageRow:
    """Name a stage's values, and what this execution has noted; an older one's note may have been carried over."""
    noted = values.get(CHECKS)
    texts = noted.get("failed") if isinstance(noted, dict) and noted.get("execution") == row.execution else ()
    return replace(
        row,
        values=tuple(sorted(values.keys() - {CHECKS})),
        failed_checks=tuple(str(each) for each in texts) if isinstance(texts, list) else (),
    )


def _row(found: CheckpointDetails, stage: str, execution: Execution, *, acknowledged: bool = True) -> StageRow:
    carried = execution.home != found.row.id
    return StageRow(stage, execution.token, execution.home, execution.attempt, acknowledged, acknowledged, carried)


def _runs(unread: Iterable[BacklogEpoch]) -> tuple[str, ...]:
    return tuple(layout.run_id_of(each.epoch) for each in unread)


def _folder(stage: str, execution: Execution) -> str:
    return layout.execution_folder(execution.home, stage, execution.attempt, execution.token)


def _filled(row: StageRow, tally: Tally, parallelism: int) -> StageRow:
    outputs = tally.outputs()
    return replace(
        row,
        parallelism=parallelism,
        acked_subtasks=parallelism,
        files=sum(each.files for each in outputs),
        size_bytes=sum(each.size_bytes for each in outputs),
        new_bytes=tally.new_bytes,
        outputs=outputs,
        subtasks=tally.subtasks(parallelism),
    )


# The savepoints that a job remembers, for programs (semantics P3).


def savepoint_json(entry: SavepointEntry) -> dict[str, Json]:
    """Give a savepoint as plain JSON values."""
    return {
        "savepoint": entry.uri,
        "id": entry.id,
        "request": entry.request,
        "status": entry.status,
        "checkpoint": entry.source.checkpoint if entry.source else None,
        "run_id": run_id_of(entry.epoch),
        "input": window_json(entry.window),
        "requested_at_ms": entry.requested_at_ms,
        "ended_at_ms": entry.ended_at_ms or None,
        "files": entry.files,
        "size_bytes": entry.size_bytes,
        "reason": entry.reason,
        "detail": entry.detail,
        "owing": list(entry.owing),
    }
