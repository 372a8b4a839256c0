"""What each command looks up, and how it says it."""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..checkpoint import Coordinator, views
from ..checkpoint.details import details
from ..checkpoint.errors import NoCheckpointError
from ..checkpoint.layout import run_id_of
from ..checkpoint.reasons import Status
from ..checkpoint.restore import Verification
from ..checkpoint.stats import stats as stats_of
from ..storage.port import ObjectStore
from . import forgetting, listing, numbers, rewinding, showing
from .text import size


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
    lines = listing.job_lines(found) if found else [f"no jobs in {store.uri}"]
    return Outcome(lines, {"jobs": [asdict(row) for row in found]}, damaged=any(row.problem for row in found))


def checkpoints(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """List a job's checkpoints, the requests that wait, and whether the job is stopped."""
    found = views.listing(_job(store, options.job))
    shown = found.checkpoints[: options.limit]
    document = {
        "job": options.job,
        "stopped": found.stopped,
        "checkpoints": [{**asdict(row), "duration_ms": row.duration_ms} for row in shown],
        "checkpoints_left_out": len(found.checkpoints) - len(shown),
        "waiting": [
            {"run_id": run_id_of(each.epoch), "kind": each.kind, "requested_at_ms": each.requested_at_ms}
            for each in found.waiting[: options.limit]
        ],
        "waiting_left_out": max(0, len(found.waiting) - options.limit),
        "declined": [
            {
                "run_id": run_id_of(each.epoch),
                "kind": each.kind,
                "declined_at_ms": each.at_ms,
                "reason": each.reason,
                "detail": each.detail,
            }
            for each in found.declined
        ],
    }
    return Outcome(listing.lines(found, options.limit), document)


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
    return Outcome(numbers.lines(found), asdict(found))


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


def forget_listener(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Give up the notices of a listener that no longer exists, or one of them."""
    job = _job(store, options.job)
    return Outcome(*forgetting.forget(job, options.job, options.listener, options.checkpoint, yes=options.yes))


def rewind(store: ObjectStore, options: argparse.Namespace) -> Outcome:
    """Rewind a job to an older checkpoint."""
    lines, document = rewinding.rewind(_job(store, options.job), options)
    return Outcome(lines, document)


def _job(store: ObjectStore, name: str) -> Coordinator:
    coordinator = Coordinator(store, name)
    if coordinator.head().revision == 0:
        known = ", ".join(row.job for row in views.jobs(store)) or "none"
        raise NoCheckpointError("the storage has no such job", job=name, storage=store.uri, jobs=known)
    return coordinator


def _verification_lines(found: Verification) -> Iterator[str]:
    if found.whole:
        yield f"checkpoint {found.checkpoint}: whole, {found.files} files, {size(found.size_bytes)}"
        return
    yield f"checkpoint {found.checkpoint}: DAMAGED, it cannot be restored"
    yield from (f"  {damage.key}: {damage.problem}" for damage in found.damages)
