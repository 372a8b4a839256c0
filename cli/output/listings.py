"""Jobs, and a job's checkpoints, as text: a row for each, and below it the facts that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...checkpoint import Coordinator
from ...checkpoint.documents.attempt import run_text
from ...checkpoint.documents.entries import JobOwner, SavepointEntry
from ...checkpoint.documents.layout import run_id_of
from ...checkpoint.masking import masked
from ...checkpoint.reasons import Status, cause_first
from ...checkpoint.views import wording
from ...checkpoint.views.checkpoint_list import CheckpointRow, JobRow, Listing
from ...checkpoint.views.overview import ServerRow
from ...checkpoint.views.overview import servers as servers_of
from ...checkpoint.views.stats import Distribution, Failover, JobStats
from ...checkpoint.views.wording import moment
from ...storage.errors import CairnError, ErrorKind
from ...storage.port import ObjectStore
from . import text

_HEADINGS = (
    *("id", "DAG run", "input (UTC)", "kind", "try", "status", "acks", "subtasks", "took", "new", "size", "from"),
    "triggered",
)
_JOB_HEADINGS = ("job", "state", "completed", "DAG run", "input (UTC)", "at", "pending", "succeeded", "owner")
_NUMBERS = frozenset({"try", "acks", "subtasks", "took", "new", "size", "from"})
_SPARE = ("triggered", "subtasks", "from", "kind", "new", "took")
"""Columns that are dropped first in a narrow terminal."""
_RUN = 24
"""Columns for a DAG run's id, if there is no room for all of it."""


def job_lines(found: Sequence[JobRow]) -> list[str]:
    """Return the lines about a storage's jobs; there is at least one."""
    columns = text.width()
    rows = [_job_cells(row, columns) for row in found]
    if text.table_width(_JOB_HEADINGS, rows) > columns:
        rows = [_job_cells(row, _RUN) for row in found]
    kept = text.fitting_columns(_JOB_HEADINGS, rows, columns, ("succeeded", "owner", "at", "DAG run"))
    written = text.table(
        [_JOB_HEADINGS[n] for n in kept], [[row[n] for n in kept] for row in rows], right=("completed",)
    )
    for row in found:
        for each in row.mirrors:
            held = f"checkpoint {each.checkpoint} of {wording.moment(each.completed_at_ms)}"
            at = held if each.checkpoint else "nothing yet"
            written += text.paragraph(f"{row.job}: mirror {each.uri}: {at}, {each.behind} behind")
        if row.moved_to is not None:
            written += text.paragraph(f"{row.job}: has moved to {row.moved_to}")
        elif row.mirror_of is not None:
            written += text.paragraph(f"{row.job}: mirror of {row.mirror_of}")
        if row.problem:
            written += ["", *text.paragraph(f"{row.job}: {row.problem}")]
    return written


def _job_cells(row: JobRow, run: int) -> tuple[str, ...]:
    if row.problem:
        return (row.job, row.state, *("-" for _ in _JOB_HEADINGS[2:]))
    return (
        row.job,
        row.state,
        str(row.latest_completed or "-"),
        text.run_name(row.latest_run_id, run) if row.latest_run_id else "-",
        text.window(row.latest_input),
        wording.moment(row.latest_completed_at_ms),
        ", ".join(str(each) for each in row.pending) or "-",
        f"{row.completed} of {row.triggered}",
        text.fit(_owner(row.owner), run) if row.owner else "-",
    )


def _owner(owner: JobOwner) -> str:
    return f"{owner.dag_id} of {owner.deployment}" if owner.deployment else owner.dag_id


def lines(found: Listing, limit: int) -> list[str]:
    """Return the lines about a job's checkpoints."""
    columns = text.width()
    shown, left_out = found.checkpoints[:limit], len(found.checkpoints) - limit
    written = [f"{found.job} is {wording.how_stopped(found.stopped)}", ""] if found.stopped else []
    if found.stopping is not None:
        after = "its next run" if found.stopping.next_whole else _last_run(found, found.stopping)
        waits = f" after {after}" if found.stopping.waits else ""
        written += [
            *text.paragraph(
                f"{found.job} is being stopped with savepoint {found.stopping.id}{waits}; no other run begins. `cairn "
                f"resume {found.job}` gives that up"
            ),
            "",
        ]
    written += _table(shown, columns)
    if any(row.retained for row in shown):
        written.append("* can be restored")
    if left_out > 0:
        written.append(f"… {left_out:,} more; raise --limit to see them")
    rewound = [row for row in shown if row.rewound_to is not None]
    saved = [row for row in shown if row.savepoints]
    failed = [row for row in shown if row.failed]
    restarted = [row for row in shown if row.status is Status.PENDING and row.restarts]
    if rewound or failed or restarted or saved:
        written.append("")
    for row in restarted:
        written.append(f"{row.id}: {wording.restart(row.restarts, row.restarts_left)}")
    for row in rewound:
        written.append(f"{row.id}: no longer counts, the job was rewound to {row.rewound_to}")
    for row in saved:
        written.append(f"{row.id}: savepoint {', '.join(map(str, row.savepoints))} was taken of it")
    for row in failed:
        written += text.paragraph(f"{row.id}: {cause_first(row.detail, row.reason)}")
        for other in row.others:
            written += text.paragraph(f"  with it: {other}")
        if row.restarted:
            written += text.paragraph(f"  runs again: {', '.join(row.restarted)}")
    if found.waiting:
        written += ["", f"{len(found.waiting):,} requests wait, the next first:", *_waiting(found, limit)]
    if found.declined:
        written += ["", "declined, the last first:"]
    for each in found.declined:
        run = run_text(run_id_of(each.epoch), each.window)
        why = f"{run}, {each.kind}, {wording.moment(each.at_ms)}: {cause_first(each.detail, each.reason)}"
        written += text.paragraph(why)
    return written


def _last_run(found: Listing, stopping: SavepointEntry) -> str:
    """Name the run after which a job stops, with its input if an attempt of it is known."""
    run_id = run_id_of(stopping.epoch)
    reads = (row.input for row in found.checkpoints if row.run_id == run_id)
    return run_text(run_id, stopping.window or next(reads, None))


def _table(shown: Sequence[CheckpointRow], columns: int) -> list[str]:
    rows = [_cells(row, columns) for row in shown]
    kept = text.fitting_columns(_HEADINGS, rows, columns, ())
    if text.table_width(_HEADINGS, rows) > columns:
        rows = [_cells(row, _RUN) for row in shown]
        kept = text.fitting_columns(_HEADINGS, rows, columns, _SPARE)
    return text.table([_HEADINGS[n] for n in kept], [[row[n] for n in kept] for row in rows], right=_NUMBERS)


def _cells(row: CheckpointRow, run: int) -> tuple[str, ...]:
    return (
        f"{row.id}{'*' if row.retained else ''}",
        text.run_name(row.run_id, run),
        text.window(row.input),
        row.kind or "-",
        str(row.attempt),
        row.said,
        f"{row.acks}/{row.stages}",
        "-" if row.subtasks is None else f"{row.subtasks:,}",
        wording.duration(row.duration_ms),
        "-" if row.new_bytes is None else wording.size(row.new_bytes),
        wording.size(row.size_bytes) if row.status is Status.COMPLETED else "-",
        "savepoint" if row.savepoint else str(row.restored_from or "-"),
        wording.moment(row.triggered_at_ms),
    )


def _waiting(found: Listing, limit: int) -> Iterator[str]:
    for request in found.waiting[:limit]:
        run = run_text(run_id_of(request.epoch), request.window)
        yield f"  {run}, {request.kind}, since {wording.moment(request.requested_at_ms)}"
    if len(found.waiting) > limit:
        yield f"  … {len(found.waiting) - limit:,} more"


# `cairn servers`: the Spark servers that the stages of jobs share.


_SERVER_HEADINGS = ("job", "server", "state", "for", "input (UTC)", "where", "started", "lease until")


def servers(store: ObjectStore, jobs: Iterable[str], now_ms: int) -> tuple[list[str], dict[str, Any]]:
    """List the servers of some jobs. A job whose record cannot be read is named, and the others are listed."""
    rows: list[ServerRow] = []
    problems: dict[str, str] = {}
    for job in jobs:
        try:
            rows += servers_of(Coordinator(store, job), now_ms)
        except CairnError as error:
            # As for heads: a broken document, or a folder that is not a job's.
            if error.kind not in (ErrorKind.DATA, ErrorKind.INVALID):
                raise
            problems[job] = masked(str(error))
    lines = text.table(_SERVER_HEADINGS, [_server_cells(row) for row in rows]) if rows else ["no Spark servers"]
    for name, problem in problems.items():
        lines += text.paragraph(f"{name}: its record of servers cannot be read: {problem}")
    found = [{"job": name, "problem": problem} for name, problem in problems.items()]
    return lines, {"servers": [row.as_json() for row in rows], "problems": found}


def _server_cells(row: ServerRow) -> tuple[str, ...]:
    return (
        row.job,
        row.server,
        row.state,
        text.run_name(row.run_id, _RUN) if row.run_id is not None else "the job",
        text.window(row.input),
        row.where or "-",
        moment(row.started_at_ms),
        moment(row.lease_until_ms),
    )


_FAILOVERS = 10


def stats_lines(found: JobStats) -> list[str]:
    """Return the lines about a job."""
    written = [
        f"job {found.job}{f' is {wording.how_stopped(found.stopped)}' if found.stopped else ''}",
        (
            f"  triggered {found.triggered}, in progress {found.in_progress}, completed {found.completed}, "
            f"failed {found.failed}, restored {found.restored}"
        ),
        (
            f"  wrote {wording.size(found.total_bytes)} in all; {found.waiting} requests wait; "
            f"{found.failures_in_a_row} counted failures in a row"
        ),
    ]
    for each in found.restarts:
        counted = wording.restart(each.restarts, each.left)
        said = f"  {run_text(each.run_id, each.input)}, checkpoint {each.checkpoint}: {counted}"
        written += text.paragraph(said)
    written.append("")
    rows = [
        _distribution_cells("duration", found.duration_ms, lambda value: wording.duration(round(value))),
        _distribution_cells("size", found.size_bytes, lambda value: wording.size(round(value))),
        _distribution_cells("new bytes", found.new_bytes, lambda value: wording.size(round(value))),
        _distribution_cells("acks", found.acks, lambda value: f"{value:.3g}"),
    ]
    headings = (f"last {found.history}", "min", "avg", "p50", "p95", "p99", "max")
    written += text.table(headings, rows, right=headings[1:])
    if cost := found.store_cost:
        requests = cost.reads + cost.writes
        written += ["", f"  about {requests} requests to the store an epoch, {cost.writes} of them writes or listings;"]
        written += [
            f"  {cost.epochs_a_month:,} such epochs a month are ${cost.dollars_a_month:,.2f} at S3's list price,",
            "  if triggers go on at this pace: a backfill's is higher",
        ]
    if found.failures:
        written += ["", "failed, by reason:"]
        written += [f"  {count:>3} {reason}" for reason, count in found.failures.items()]
    if found.failovers:
        shown = found.failovers[-_FAILOVERS:]
        written += ["", "failovers:"]
        if len(found.failovers) > len(shown):
            written.append(f"  … {len(found.failovers) - len(shown)} older; --json has them")
        written += [line for each in shown for line in _failover(each)]
    if found.restores:
        written += ["", "restores:"]
        for restore in found.restores:
            into = f" into {restore.into}" if restore.into else ""
            said = f"  {wording.moment(restore.at_ms)}  {restore.checkpoint}{into}, {restore.took_ms} ms: {restore.why}"
            written += text.paragraph(said)
            for damage in restore.damages:
                written += text.paragraph(f"    bypassed: {damage}")
    return written


def _failover(found: Failover) -> Iterator[str]:
    yield from text.paragraph(
        f"  {wording.moment(found.at_ms)}  checkpoint {found.checkpoint} of {run_text(found.run_id, found.input)}, "
        f"attempt {found.attempt}, {found.acks}/{found.stages} acknowledged"
    )
    yield from text.paragraph(f"    {found.root}")
    for other in found.others:
        yield from text.paragraph(f"    with it: {other}")


def _distribution_cells(name: str, found: Distribution | None, say: Callable[[float], str]) -> tuple[str, ...]:
    if found is None:
        return (name, *("-" for _ in range(6)))
    return (name, *(say(each) for each in (found.min, found.avg, found.p50, found.p95, found.p99, found.max)))
