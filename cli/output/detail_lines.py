"""One checkpoint as text: its facts, a bar for each stage, its largest subtasks, its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...checkpoint.reasons import Status
from ...checkpoint.store.job_files import JobFiles
from ...checkpoint.views import wording
from ...checkpoint.views.checkpoint_list import CheckpointRow
from ...checkpoint.views.details import CheckpointDetails, StageRow
from ...checkpoint.views.stats import SubtaskRow
from ...checkpoint.views.table_changes import NEXT
from . import text

_WAITED, _RAN, _WROTE, _SUBTASK = ".", "=", "#", "-"
LEGEND = f"{_WAITED} before it started  {_RAN} running  {_WROTE} writing its state  {_SUBTASK} new bytes of a subtask"
_HEADINGS = ("stage", "acks", "from the trigger on", "took", "new", "size", "rows")
_NUMBERS = frozenset({"acks", "took", "new", "size", "files", "rows"})
_BAR = len(_HEADINGS[2])
_UNKNOWN = "-"


def lines(files: JobFiles, found: CheckpointDetails, limit: int) -> list[str]:
    """Return the lines about a checkpoint, and about its stages up to the limit."""
    columns = text.width()
    written = list(_head(files.job, files.store.uri, found))
    if not found.stages:
        return [*written, "", *text.paragraph(found.why_no_stages)]
    shown, left_out = found.stages[:limit], len(found.stages) - limit
    written += ["", *_stage_table(found, shown, columns)]
    if left_out > 0:
        written.append(f"… {left_out:,} more stages; raise --limit to see them")
    written += ["", LEGEND]
    if any(stage.carried for stage in shown):
        written.append("kept from N: as checkpoint N's attempt left it, not run again")
    if any(stage.skipped for stage in shown):
        written.append("skipped: its task was skipped; state and tables are as the checkpoint before left them")
    for stage in shown:
        if stage.owes:
            did = "reads before its own"
            if found.row.status is Status.COMPLETED:
                did = "has still to read from" if stage.acknowledged else "was left out, and has in its backlog"
            written += [
                "",
                *text.paragraph(f"{stage.stage} {did}: {', '.join(map(found.run_text, stage.owes))}"),
            ]
        if stage.handed_on is not None:
            it = stage.handed_on
            rows = "" if it.rows is None else f", {it.rows:,} rows"
            what = "file" if it.files == 1 else "files"
            said = f"{stage.stage} handed on {it.files:,} {what}, {wording.size(it.size_bytes)}{rows}, deleted since"
            written += ["", *text.paragraph(said)]
        for check in stage.failed_checks:
            written += ["", *text.paragraph(f"{stage.stage} went on although {check}")]
        if stage.problem or stage.declined:
            said = f"BROKEN: {stage.problem}" if stage.problem else f"declined: {stage.declined}"
            written += ["", *text.paragraph(f"{stage.stage} {said}")]
    outputs = list(_outputs(shown, columns))
    if outputs:
        known = any(cells[-1] != _UNKNOWN for cells in outputs)
        headings = ("output", "of", "files", "size", *(("rows",) if known else ()))
        written += ["", *text.table(headings, [cells[: len(headings)] for cells in outputs], right=_NUMBERS)]
    tables = [
        f"  {output.name}  {files.spark_url(output.folder)}"
        for stage in found.stages
        for output in stage.outputs
        if output.kind == "table"
    ]
    if tables:
        written += ["", "tables:", *tables]
    if found.changes:
        written += ["", "tables outside of the storage:"]
    for each in found.changes:
        made = "owed" if each.give_up else "committed"
        written += text.paragraph(f"  {each.table}  {each.title}: {each.what}, {made}")
        if each.give_up:
            written += [*text.paragraph(f"    {NEXT} To give it up:"), f"      {each.give_up}"]
    return written


def _head(job: str, storage: str, found: CheckpointDetails) -> Iterator[str]:
    row = found.row
    in_stages = f" in {', '.join(sorted(found.failed_stages))}" if found.failed_stages else ""
    yield f"checkpoint {row.id} of {job}: {row.said}{in_stages}"
    if row.failed:
        yield from text.labelled("why", found.why)
    for other in row.others:
        yield from text.labelled("with it", other)
    if row.status is Status.FAILED:
        yield from text.labelled("what next", found.next_step(storage))
    yield from text.labelled("epoch", f"{row.run_id}, attempt {row.attempt}")
    if row.input is not None:
        yield from text.labelled("input (UTC)", row.input.window.short)
    for files in found.files_read:
        yield from text.labelled("files", files)
    took = f", took {wording.duration(row.duration_ms)}" if row.duration_ms is not None else ""
    yield f"  triggered      {wording.moment(row.triggered_at_ms)}{took}"
    since = f" when it failed, {found.acknowledged_since} since then" if found.acknowledged_since else ""
    yield f"  acknowledged   {row.acks} of {row.stages} stages{since}{_subtasks(found)}"
    if found.slowest:
        yield from text.labelled("slowest", f"{found.slowest.stage}, {wording.duration(found.slowest.end_to_end_ms)}")
    yield from text.labelled("restored from", _came_from(row))
    if row.status is Status.COMPLETED:
        yield f"  size           {wording.size(row.size_bytes)}"
    yield f"  retained       {'yes' if row.retained else 'no'}"
    for damage in found.damages:
        yield from text.labelled("damaged", damage)
    if row.rewound_to is not None:
        yield f"  rewound to     {row.rewound_to}: it no longer counts"
    if row.restarts or row.restarts_left is not None:
        yield f"  strategy       {wording.restart(row.restarts, row.restarts_left)}"
    if row.for_good:
        yield "  goes on        once you clear what failed"
    if row.reason:
        yield f"  reason         {row.reason}"
    if row.late:
        late = (f"{each.stage}, {wording.duration(each.metrics.end_to_end_ms)} after the trigger" for each in row.late)
        yield from text.labelled("late acks", "; ".join(late))
    if row.restarted:
        yield from text.labelled("runs again", ", ".join(row.restarted))
    if found.cause:
        yield from text.labelled("opened because", found.cause)
    if found.replay:
        yield from text.labelled("reads again", ", ".join(map(found.run_text, found.replay)))


def _came_from(row: CheckpointRow) -> str:
    if row.savepoint is not None:
        return f"the savepoint {row.savepoint}, of checkpoint {row.savepoint_checkpoint} of {row.savepoint_job}"
    return str(row.restored_from or "nothing: it started empty")


def _subtasks(found: CheckpointDetails) -> str:
    if not found.stages:
        return ""
    if found.expected_subtasks is None:
        return f", {found.acked_subtasks:,} subtasks so far"
    return f", {found.acked_subtasks:,} of {found.expected_subtasks:,} subtasks"


def _stage_table(found: CheckpointDetails, stages: Sequence[StageRow], columns: int) -> list[str]:
    longest = max((stage.took_ms or 0 for stage in stages if not stage.carried), default=0)
    largest = max((subtask.new_bytes for stage in stages for subtask in stage.subtasks), default=0)
    measured = [_cells(found, stage, "") for stage in stages]
    measured += [_subtask_cells(subtask, "") for stage in stages for subtask in _several(stage)]
    named = max(len(cells[0]) for cells in measured)
    headings: Sequence[str] = _HEADINGS
    room = _room(headings, measured, columns)
    # Rows are often unknown over S3; and in a narrow terminal the bars say more.
    if all(stage.rows is None for stage in stages) or room - named < 2 * _BAR:
        headings = _HEADINGS[:-1]
        room = _room(headings, measured, columns)
    name = min(named, room - _BAR)
    wide = room - name
    rows = []
    for stage in stages:
        rows.append(_cells(found, stage, _stage_bar(stage, longest, wide)))
        several = _several(stage)
        rows += [_subtask_cells(each, text.bar([(_SUBTASK, each.new_bytes)], largest, wide)) for each in several]
        if several and stage.subtasks_left_out:
            rows.append((f"  … {stage.subtasks_left_out:,} more", "", "", "", "", "", ""))
    fitted = [(text.fit(cells[0], name), *cells[1 : len(headings)]) for cells in rows]
    return text.table(headings, fitted, right=_NUMBERS)


def _room(headings: Sequence[str], measured: Sequence[tuple[str, ...]], columns: int) -> int:
    """Return the columns that remain for names and bars."""
    fixed = sum(
        2 + max(len(heading), *(len(cells[number]) for cells in measured))
        for number, heading in enumerate(headings)
        if number not in (0, 2)
    )
    return columns - fixed - 2


def _several(stage: StageRow) -> tuple[SubtaskRow, ...]:
    """Return the rows of a stage's subtasks; a single one would only repeat the stage's."""
    return stage.subtasks if stage.acked_subtasks > 1 else ()


def _stage_bar(stage: StageRow, longest: int, columns: int) -> str:
    if stage.carried and (stage.acknowledged or stage.owes):
        return f"kept from {stage.home}"
    if stage.metrics is None or stage.took_ms is None:
        return ""
    waited = stage.metrics.start_delay_ms
    wrote = min(stage.metrics.sync_ms + stage.metrics.async_ms, max(0, stage.took_ms - waited))
    return text.bar([(_WAITED, waited), (_RAN, stage.took_ms - waited - wrote), (_WROTE, wrote)], longest, columns)


def _cells(found: CheckpointDetails, stage: StageRow, bar: str) -> tuple[str, ...]:
    known = stage.metrics is not None or bool(stage.outputs)
    took = wording.duration(stage.took_ms) if not stage.carried else "-"
    return (
        stage.stage,
        found.how_far(stage),
        bar,
        took,
        *(wording.size(n) if known else "-" for n in (stage.new_bytes, stage.size_bytes)),
        _rows(stage.rows),
    )


def _subtask_cells(subtask: SubtaskRow, bar: str) -> tuple[str, ...]:
    new, whole = (wording.size(each) for each in (subtask.new_bytes, subtask.size_bytes))
    return (f"  subtask {subtask.index}", "", bar, "", new, whole, _rows(subtask.rows))


def _rows(number: int | None) -> str:
    return _UNKNOWN if number is None else f"{number:,}"


def _outputs(stages: Sequence[StageRow], columns: int) -> Iterator[tuple[str, ...]]:
    room = columns // 2 - 14
    for stage in stages:
        of = text.fit(stage.stage, room)
        for out in stage.outputs:
            rows = _rows(out.rows)
            yield (text.fit(f"{out.kind} {out.name}", room), of, str(out.files), wording.size(out.size_bytes), rows)
        for name in stage.values:
            yield (text.fit(f"value {name}", room), of, "-", "-", "-")
