"""What each command looks up, and how it says it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..checkpoint import Coordinator, views
from ..checkpoint.details import details
from ..checkpoint.errors import NoCheckpointError
from ..checkpoint.reasons import Status
from ..checkpoint.restore import Verification
from ..checkpoint.stats import Distribution
from ..checkpoint.stats import stats as stats_of
from ..checkpoint.views import CheckpointRow
from ..storage.port import ObjectStore
from . import showing
from .text import duration, moment, size, table


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command found, for people and for programs."""

    lines: list[str]
    document: dict[str, Any]
    damaged: bool = False
    over: bool = False
    """Whether a later look would find the same."""


def jobs(store: ObjectStore, _options: argparse.Namespace) -> Outcome:
    """List the jobs of a storage."""
    found = list(views.jobs(store))
    rows = [
        (
            row.job,
            str(row.latest_completed or "-"),
            row.latest_run_id or "-",
            moment(row.latest_completed_at_ms),
            ", ".join(str(each) for each in row.pending) or "-",
            f"{row.completed} of {row.triggered}",
            row.problem or "",
        )
        for row in found
    ]
    headings = ("job", "completed", "DAG run", "at", "pending", "succeeded", "")
    lines = table(headings, rows) if found else [f"no jobs in {store.uri}"]
    return Outcome(lines, {"jobs": [asdict(row) for row in found]}, damaged=any(row.problem for row in found))


def checkpoints(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """List a job's checkpoints."""
    found = views.checkpoints(_job(store, options.job))
    rows = [_checkpoint_cells(row) for row in found]
    headings = ("id", "DAG run", "attempt", "status", "acks", "size", "triggered", "took", "restored from", "")
    lines = table(headings, rows)
    lines += [f"{row.id}: {row.reason}: {row.detail}" for row in found if row.reason]
    return Outcome(lines, {"job": options.job, "checkpoints": [asdict(row) for row in found]})


def show(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Show one checkpoint."""
    coordinator = _job(store, options.job)
    found = details(coordinator, options.checkpoint, subtasks=options.subtasks)
    document = {"job": options.job, **found.as_json(stages=options.limit)}
    over = found.row.status is not Status.PENDING
    return Outcome(showing.lines(coordinator.files, found, options.limit), document, over=over)


def stats(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Show a job in numbers."""
    found = stats_of(_job(store, options.job).head())
    lines = [
        f"job {found.job}",
        (
            f"  triggered {found.triggered}, in progress {found.in_progress}, completed {found.completed}, "
            f"failed {found.failed}, restored {found.restored}"
        ),
        "",
    ]
    rows = [
        _distribution_cells("duration", found.duration_ms, lambda value: duration(round(value))),
        _distribution_cells("size", found.size_bytes, lambda value: size(round(value))),
        _distribution_cells("new bytes", found.new_bytes, lambda value: size(round(value))),
        _distribution_cells("acks", found.acks, lambda value: f"{value:g}"),
    ]
    lines += table((f"last {found.history}", "min", "avg", "p50", "p95", "p99", "max"), rows)
    if found.failures:
        lines += ["", "failed, by reason:", *(f"  {count:>3} {reason}" for reason, count in found.failures.items())]
    if found.failovers:
        lines += ["", "failovers:"]
        for each in found.failovers:
            lines += [
                (
                    f"  {moment(each.at_ms)}  checkpoint {each.checkpoint} of {each.run_id}, attempt {each.attempt}, "
                    f"{each.acks}/{each.stages} acknowledged"
                ),
                f"    {each.root}",
            ]
    if found.restores:
        lines += ["", "restores:"]
        for restore in found.restores:
            into = f" into {restore.into}" if restore.into else ""
            lines.append(f"  {moment(restore.at_ms)}  {restore.checkpoint}{into}, {restore.took_ms} ms: {restore.why}")
            lines += [f"    bypassed: {damage}" for damage in restore.damages]
    return Outcome(lines, asdict(found))


def job_pulse(store: ObjectStore, options: argparse.Namespace) -> Hashable:
    """Give what differs whenever the job's counts do."""
    return Coordinator(store, options.job).head().revision


def checkpoints_pulse(store: ObjectStore, options: argparse.Namespace) -> Hashable:
    """Give what differs whenever one of the job's checkpoints does."""
    return views.pulse(Coordinator(store, options.job))


def show_pulse(store: ObjectStore, options: argparse.Namespace) -> Hashable:
    """Give what differs whenever the checkpoint does."""
    return views.pulse(Coordinator(store, options.job), options.checkpoint)


def verify(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Check every file of one retained checkpoint, or of all."""
    coordinator = _job(store, options.job)
    found = coordinator.verify(options.checkpoint)
    lines = [line for each in found for line in _verification_lines(each)] or ["no checkpoint is retained"]
    document = {"job": options.job, "checkpoints": [{**asdict(each), "whole": each.whole} for each in found]}
    return Outcome(lines, document, damaged=not all(each.whole for each in found))


def _job(store: ObjectStore, name: str) -> Coordinator:
    coordinator = Coordinator(store, name)
    if coordinator.head().revision == 0:
        known = ", ".join(row.job for row in views.jobs(store)) or "none"
        raise NoCheckpointError("the storage has no such job", job=name, storage=store.uri, jobs=known)
    return coordinator


def _distribution_cells(name: str, found: Distribution | None, say: Callable[[float], str]) -> tuple[str, ...]:
    if found is None:
        return (name, *("-" for _ in range(6)))
    return (name, *(say(each) for each in (found.min, found.avg, found.p50, found.p95, found.p99, found.max)))


def _checkpoint_cells(row: CheckpointRow) -> tuple[str, ...]:
    return (
        str(row.id),
        row.run_id,
        str(row.attempt),
        row.status,
        f"{row.acks}/{row.stages}",
        size(row.size_bytes) if row.size_bytes else "-",
        moment(row.triggered_at_ms),
        duration(row.duration_ms),
        str(row.restored_from or "-"),
        "retained" if row.retained else "",
    )


def _verification_lines(found: Verification) -> Iterator[str]:
    if found.whole:
        yield f"checkpoint {found.checkpoint}: whole, {found.files} files, {size(found.size_bytes)}"
        return
    yield f"checkpoint {found.checkpoint}: DAMAGED, it cannot be restored"
    yield from (f"  {damage.key}: {damage.problem}" for damage in found.damages)
