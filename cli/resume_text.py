"""`cairn resume`: starts a job from a savepoint, or lets a stopped one go on."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Iterator
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.documents.entries import CompletedEntry
from ..checkpoint.documents.head import Head
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.documents.run_window import run_of_head
from ..checkpoint.savepoints.savepoint_request import OpenFolder
from ..checkpoint.savepoints.start_plan import ImportOptions, Started, StartPlan
from ..checkpoint.views import wording
from ..storage import ensure_probed
from ..storage.port import ObjectStore
from .output import text
from .output.text import ProgressLine, ask


def resume(
    coordinator: Coordinator, savepoint: ObjectStore, options: argparse.Namespace, opened: OpenFolder
) -> tuple[list[str], dict[str, Any]]:
    """Start a job from a savepoint, after the user at the terminal has agreed to the loss.

    Args:
        coordinator: the job's coordinator.
        savepoint: a store rooted at the savepoint's folder.
        options: the command's arguments: `yes`, `again`, `claim`, `allow_non_restored_state`.
        opened: opens the folders above the savepoint's.

    Returns:
        Lines and JSON document of the result.

    Raises:
        NoSavepointError: there is no savepoint, or only a part of one.
        RefusedError: the user did not agree, or the job has changed since the question; nothing was lost.
    """
    ensure_probed(coordinator.files.store, nonce=secrets.token_hex(8))
    plan, head = coordinator.start_plan(savepoint), coordinator.head()
    goes_back = plan.standing is None or options.again
    if goes_back and plan.gives_up.anything and not options.yes:
        facts = {"job": head.job, "savepoint": plan.origin.uri, "gives_up": plan.gives_up.said}
        ask(_plan(head, plan), "Start from it?", "resume_refused", **facts)
    how = ImportOptions(options.allow_non_restored_state, options.claim, options.again)
    with ProgressLine("copied") as bar:
        found = coordinator.start_from(
            savepoint, how, agreed=plan if goes_back else None, on_progress=bar.show, open_folder=opened
        )
    lines = [*_said(head, savepoint, plan, found), *_next_start(coordinator.head().latest_completed())]
    return lines, _document(coordinator.job, found)


def go_on(coordinator: Coordinator) -> tuple[list[str], dict[str, Any]]:
    """Let a job that is stopped, or is being stopped, go on from its newest checkpoint (semantics S1, P2).

    Returns:
        Lines and JSON document of the result.
    """
    head = coordinator.head()
    coordinator.resume()
    latest, stopping = head.latest_id(), head.stopping()
    where = f"the next epoch restores checkpoint {latest}" if latest else "it has no checkpoint and starts empty"
    was = f"{wording.how_stopped(head.stopped)} and goes on" if head.stopped else "not stopped"
    if stopping is not None:
        was = f"being stopped with savepoint {stopping.id}, which is cancelled"
    lines = text.paragraph(f"{coordinator.job} was {was}: {where}", text.width())
    lines += _next_start(head.latest_completed())
    gave_up = stopping.id if stopping else None
    document = {"job": coordinator.job, "checkpoint": latest, "was_stopped": head.stopped, "gave_up_stop": gave_up}
    return lines, document


def _next_start(latest: CompletedEntry | None) -> list[str]:
    """Say where the job's input continues: a run's id names the end of its interval, not the start (semantics T8)."""
    newest = latest.read.newest if latest is not None else None
    if newest is None:
        return []
    return text.paragraph(
        f"its input is read up to {newest:%Y-%m-%d %H:%M:%SZ}: the next run's data interval has to start there "
        "(start_date of a new DAG)",
        text.width(),
    )


def _plan(head: Head, plan: StartPlan) -> Iterator[str]:
    given_up, columns = plan.gives_up, text.width()
    held = f"everything up to checkpoint {given_up.back_to}" if given_up.back_to else "nothing of what the job has done"
    said = f"the savepoint holds {held}. By starting from it {head.job} loses what it lacks:"
    yield from text.paragraph(said, columns)
    if given_up.checkpoints:
        yield from text.paragraph(
            f"checkpoints {', '.join(map(str, given_up.checkpoints))}, which cannot come back", columns
        )
    if given_up.epochs:
        yield "these DAG runs, which have to run again, in this order:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in given_up.epochs)
    if given_up.pending:
        yield "these, which are under way and end:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in given_up.pending_epochs)


def _said(head: Head, savepoint: ObjectStore, plan: StartPlan, found: Started) -> Iterator[str]:
    columns, job = text.width(), head.job
    if found.allowed:
        yield from text.paragraph(
            f"{job} has started from this savepoint before, as checkpoint {found.checkpoint}; the next epoch, which "
            "restores that, may now leave behind what no stage claims",
            columns,
        )
        return
    if not found.created:
        yield from text.paragraph(
            f"{job} has started from this savepoint before, as checkpoint {found.checkpoint}; nothing was changed. To "
            "go back to it once more, say --again",
            columns,
        )
        return
    yield from text.paragraph(
        f"{job} starts from {savepoint.uri}: {found.files} files, {wording.size(found.size_bytes)}, are now its "
        f"checkpoint {found.checkpoint}, which the next epoch restores",
        columns,
    )
    runs = [*found.gave_up.epochs, *found.gave_up.pending_epochs]
    if runs:
        yield "these DAG runs have to run again; clear one after the other, in this order:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in runs)
    if plan.origin.job != job:
        yield from text.paragraph(
            f"it was taken of {plan.origin.job}, and holds that job's epochs up to {run_id_of(plan.origin.epoch)}; see "
            f"that {job} has no runs of the same input",
            columns,
        )


def _document(job: str, found: Started) -> dict[str, Any]:
    origin = found.origin
    return {
        "job": job,
        "checkpoint": found.checkpoint,
        "created": found.created,
        "allowed": found.allowed,
        "files": found.files,
        "size_bytes": found.size_bytes,
        "gave_up": list(found.gave_up.checkpoints),
        "run_again": [run_id_of(epoch) for epoch in (*found.gave_up.epochs, *found.gave_up.pending_epochs)],
        "aborted": list(found.gave_up.pending),
        "savepoint": origin.uri if origin else None,
        "savepoint_job": origin.job if origin else None,
        "savepoint_checkpoint": origin.checkpoint if origin else None,
    }
