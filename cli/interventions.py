"""Commands that a person decides on: rewind, resume, adopt, forget-listener, mirror, activate.

Each shows its effect first, and gives the lines and the JSON document to print.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.documents.entries import CompletedEntry, Notice
from ..checkpoint.documents.head import Head, run_of_head
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.mirrors.activation import Activation
from ..checkpoint.rules.admission import describe_owner
from ..checkpoint.rules.rewinds import Rewound
from ..checkpoint.savepoints.savepoint_request import ImportOptions, OpenFolder, Started, StartPlan
from ..checkpoint.views import table_changes, wording
from ..storage import ensure_probed
from ..storage.port import ObjectStore
from .output import text
from .output.text import ProgressLine, ask


def resume(
    coordinator: Coordinator, savepoint: ObjectStore, options: argparse.Namespace, opened: OpenFolder
) -> tuple[list[str], dict[str, Any]]:
    """Start a job from a savepoint's folder, after the user has agreed to the loss; `opened` opens folders above it."""
    ensure_probed(coordinator.files.store, nonce=secrets.token_hex(8))
    plan, head = coordinator.start_plan(savepoint), coordinator.head()
    goes_back = plan.standing is None or options.again
    if goes_back and plan.gives_up.anything and not options.yes:
        facts = {"job": head.job, "savepoint": plan.origin.uri, "gives_up": plan.gives_up.said}
        ask(_start_plan(head, plan), "Start from it?", "resume_refused", **facts)
    how = ImportOptions(options.allow_non_restored_state, options.claim, options.again)
    with ProgressLine("copied") as bar:
        found = coordinator.start_from(
            savepoint, how, agreed=plan if goes_back else None, on_progress=bar.show, open_folder=opened
        )
    lines = [*_started(head, savepoint, plan, found), *_next_start(coordinator.head().latest_completed())]
    return lines, _start_document(coordinator.job, found)


def go_on(coordinator: Coordinator) -> tuple[list[str], dict[str, Any]]:
    """Let a job that is stopped, or is being stopped, go on from its newest checkpoint (semantics S1, P2)."""
    head = coordinator.head()
    coordinator.resume()
    latest, stopping = head.latest_id(), head.stopping()
    where = f"the next epoch restores checkpoint {latest}" if latest else "it has no checkpoint and starts empty"
    was = f"{wording.how_stopped(head.stopped)} and goes on" if head.stopped else "not stopped"
    if stopping is not None:
        was = f"being stopped with savepoint {stopping.id}, which is cancelled"
    lines = text.paragraph(f"{coordinator.job} was {was}: {where}")
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
        "(start_date of a new DAG)"
    )


def _start_plan(head: Head, plan: StartPlan) -> Iterator[str]:
    given_up = plan.gives_up
    held = f"everything up to checkpoint {given_up.back_to}" if given_up.back_to else "nothing of what the job has done"
    said = f"the savepoint holds {held}. By starting from it {head.job} loses what it lacks:"
    yield from text.paragraph(said)
    if given_up.checkpoints:
        yield from text.paragraph(f"checkpoints {', '.join(map(str, given_up.checkpoints))}, which cannot come back")
    if given_up.epochs:
        yield "these DAG runs, which have to run again, in this order:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in given_up.epochs)
    if given_up.pending:
        yield "these, which are under way and end:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in given_up.pending_epochs)


def _started(head: Head, savepoint: ObjectStore, plan: StartPlan, found: Started) -> Iterator[str]:
    job = head.job
    if found.allowed:
        yield from text.paragraph(
            f"{job} has started from this savepoint before, as checkpoint {found.checkpoint}; the next epoch, which "
            "restores that, may now leave behind what no stage claims"
        )
        return
    if not found.created:
        yield from text.paragraph(
            f"{job} has started from this savepoint before, as checkpoint {found.checkpoint}; nothing was changed. To "
            "go back to it once more, give --again"
        )
        return
    yield from text.paragraph(
        f"{job} starts from {savepoint.uri}: {found.files} files, {wording.size(found.size_bytes)}, are now its "
        f"checkpoint {found.checkpoint}, which the next epoch restores"
    )
    runs = [*found.gave_up.epochs, *found.gave_up.pending_epochs]
    if runs:
        yield "these DAG runs have to run again; clear one after the other, in this order:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in runs)
    if plan.origin.job != job:
        yield from text.paragraph(
            f"it was taken of {plan.origin.job}, and holds that job's epochs up to {run_id_of(plan.origin.epoch)}; see "
            f"that {job} has no runs of the same input"
        )


def _start_document(job: str, found: Started) -> dict[str, Any]:
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


def rewind(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Rewind a job to an older checkpoint, after the user at the terminal has agreed."""
    head = coordinator.head()
    changes = table_changes.changes(coordinator.files, head, options.to)
    if options.yes:
        found = coordinator.rewind(options.to, abort_pending=options.abort_pending)
        lines = [*_rewind_plan(head, found, changes), *_rewound(found)]
        return lines, _rewind_document(coordinator.job, found, changes)
    plan = coordinator.rewind_plan(options.to)
    if plan.undone and (options.abort_pending or not plan.aborted):
        undone = ", ".join(str(each) for each in plan.undone)
        facts: dict[str, Any] = {"job": head.job, "checkpoint": plan.checkpoint, "undone": undone}
        ask(_rewind_plan(head, plan, changes), "Rewind?", "rewind_refused", **facts)
    found = coordinator.rewind(options.to, abort_pending=options.abort_pending, agreed=plan)
    # The question listed the undone checkpoints; without a question there is none.
    lines = [*([] if found.undone else _rewind_plan(head, found, changes)), *_rewound(found)]
    return lines, _rewind_document(coordinator.job, found, changes)


def _rewind_plan(head: Head, found: Rewound, changes: list[dict[str, Any]]) -> Iterator[str]:
    where = f"checkpoint {found.checkpoint}, which holds everything up to {run_of_head(head, found.epoch)}"
    if not found.undone:
        yield from text.paragraph(f"{head.job} is already at {where}: there is nothing to undo")
        return
    yield from text.paragraph(f"{head.job} goes back to {where}. This undoes {_ids(found.undone)}")
    yield "these DAG runs have to run again, in this order:"
    yield from (f"  {run_of_head(head, epoch)}" for epoch in found.epochs)
    if found.aborted:
        yield f"pending, and aborted: {_ids(found.aborted)}; after the others, these have to run again:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in found.aborted_epochs)
    if changes:
        yield "tables outside of the storage have this:"
    for each in changes:
        of = f"{each['table']}: " if each["table"] else ""
        yield f"  checkpoint {each['checkpoint']}: {of}{table_changes.what(each)}"
        yield from text.paragraph(f"    {table_changes.said(each)}")
        if each["rolls_back"]:
            continue
        if each["give_up"]:
            yield f"      {each['give_up']}"
        if each["only_if"]:
            yield from text.paragraph(f"    to take back this and what came after: {each['only_if']}")
        if each["roll_back"]:
            yield f"      {each['roll_back']}"
    what = f"what {'else ' if changes else ''}was committed outside for them stays there"
    said = f"{what}; listeners are notified once more when they complete"
    yield from text.paragraph(said)


def _rewound(found: Rewound) -> Iterator[str]:
    if found.undone:
        yield from text.paragraph(
            f"rewound: the next epoch restores checkpoint {found.checkpoint}. Clear those DAG runs one after the "
            "other, the oldest first, before another one starts"
        )


def _ids(checkpoints: tuple[int, ...]) -> str:
    word = "checkpoint" if len(checkpoints) == 1 else "checkpoints"
    return f"{word} {', '.join(str(each) for each in checkpoints)}"


def _rewind_document(job: str, found: Rewound, changes: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "job": job,
        "checkpoint": found.checkpoint,
        "run_id": run_id_of(found.epoch),
        "undone": list(found.undone),
        "run_again": [run_id_of(epoch) for epoch in (*found.epochs, *found.aborted_epochs)],
        "tables": changes,
        "aborted": list(found.aborted),
    }


def forget_listener_of(
    coordinator: Coordinator, job: str, listener: str, checkpoint: int | None, *, yes: bool
) -> tuple[list[str], dict[str, Any]]:
    """Drop a listener's notices, or that of one checkpoint; without `yes` only list them.

    Raises:
        InvalidConfigError: no notice waits for the listener, or none for that checkpoint.
    """
    head = coordinator.head()
    all_notices = head.notices
    own = [each for each in all_notices if listener in each.listeners]
    if not own:
        raise InvalidConfigError(
            "no notice waits for this listener, so there is nothing to drop",
            job=job,
            listener=listener,
            waiting=", ".join(sorted({name for each in all_notices for name in each.listeners})) or "none",
        )
    notices = [each for each in own if checkpoint in (None, each.checkpoint)]
    if not notices:
        raise InvalidConfigError(
            "no notice of this checkpoint waits for the listener, so there is nothing to drop",
            job=job,
            listener=listener,
            checkpoint=checkpoint,
            waiting=", ".join(str(each.checkpoint) for each in own),
        )
    given_up = coordinator.forget_listener(listener, checkpoint=checkpoint) if yes else 0
    document = {
        "job": job,
        "listener": listener,
        "given_up": given_up,
        "notices": [
            {
                "checkpoint": each.checkpoint,
                "run_id": run_id_of(each.epoch),
                "status": each.status,
                "reason": each.reason,
            }
            for each in notices
        ],
    }
    return list(_forgotten_lines(head, listener, notices, yes=yes)), document


def _forgotten_lines(head: Head, listener: str, notices: Iterable[Notice], *, yes: bool) -> Iterator[str]:
    notified = "is never notified" if yes else "would never be notified"
    yield f"{listener} {notified} how these checkpoints ended:"
    for each in notices:
        why = f" ({each.reason})" if each.reason else ""
        yield f"  {each.checkpoint}, {run_of_head(head, each.epoch)}: {each.status}{why}"
    if not yes:
        yield "Nothing was changed. What stages have staged for it would neither be committed nor dropped."
        yield "Give --yes to give these notices up."


# `cairn adopt`: gives a job another owner, after its DAG was renamed or moved to another deployment (W8).


def adopt(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Make a DAG the owner of a job."""
    found = coordinator.ownership.adopt(options.dag, options.deployment, abort_pending=options.abort_pending)
    before = describe_owner(found.before) if found.before else "no recorded owner"
    said = f"{coordinator.job} belongs to {describe_owner(found.after)}"
    said += " as before" if found.before == found.after else f" now; before: {before}"
    lines = text.paragraph(said)
    if found.aborted:
        lines.append(f"ended: checkpoint {', '.join(str(each) for each in found.aborted)}")
    document = {
        "job": coordinator.job,
        "dag_id": found.after.dag_id,
        "deployment": found.after.deployment,
        "before": {"dag_id": found.before.dag_id, "deployment": found.before.deployment} if found.before else None,
        "aborted": list(found.aborted),
    }
    return lines, document


def mirror(coordinator: Coordinator, target: ObjectStore) -> tuple[list[str], dict[str, Any], bool]:
    """Make one pass to a job's mirror; returns lines, JSON document, and whether something could not be deleted."""
    ensure_probed(target, nonce=secrets.token_hex(8))
    with ProgressLine("copied") as line:
        found = coordinator.mirror(target, line.show)
    run = run_of_head(coordinator.head(), found.epoch)
    said = f"{target.uri} holds {coordinator.job} up to checkpoint {found.checkpoint}, {run}: "
    said += f"{found.files} files copied, {wording.size(found.size_bytes)}; {found.deleted} deleted"
    lines = text.paragraph(said)
    lines += [f"not deleted: {failure.key}: {failure.reason}" for failure in found.failures]
    document = {"job": coordinator.job, "mirror": target.uri, **asdict(found), "run_id": run_id_of(found.epoch)}
    del document["epoch"]
    return lines, document, bool(found.failures)


def give_up(coordinator: Coordinator, uri: str, opened: Callable[[], ObjectStore]) -> tuple[list[str], dict[str, Any]]:
    """Have a job forget a mirror."""
    known = coordinator.give_up_mirror(uri, opened)
    said = "is not mirrored there any more; the files stay" if known else "has no mirror there; nothing was changed"
    return [f"{uri}: {coordinator.job} {said}"], {"job": coordinator.job, "mirror": uri, "given_up": known}


def activate(
    coordinator: Coordinator, first: ObjectStore | None, options: argparse.Namespace
) -> tuple[list[str], dict[str, Any]]:
    """Make a mirror the job, after the user at the terminal has agreed."""
    ensure_probed(coordinator.files.store, nonce=secrets.token_hex(8))
    plan = coordinator.activation_plan()
    if not plan.done and not options.yes:
        ask(_lines(coordinator, plan, first), "Activate it?", "mirror_refused", job=coordinator.job)
    with ProgressLine("copied") as line:
        found = coordinator.activate(first, line.show)
    of, latest = found.head.mirror_of, found.head.latest_completed()
    assert of is not None
    assert latest is not None
    before = "was active before" if plan.done else "is active"
    lines = [f"{coordinator.job} {before} in {coordinator.files.store.uri}; unpause its DAG with this storage"]
    document = {
        "job": coordinator.job,
        "activated": not plan.done,
        "first": of.uri,
        "told": first is not None,
        "checkpoint": latest.id,
        "run_id": run_id_of(latest.epoch),
        "run_again": [run_id_of(epoch) for epoch in of.again],
        "staged": [{**asdict(each), "epoch": run_id_of(each.epoch)} for each in found.staged],
    }
    return [*_lines(coordinator, found, first), *lines], document


def _lines(coordinator: Coordinator, found: Activation, first: ObjectStore | None) -> Iterator[str]:
    head = found.head
    of, latest = head.mirror_of, head.latest_completed()
    assert of is not None
    assert latest is not None
    yield from text.paragraph(
        f"{coordinator.files.store.uri} holds {coordinator.job} of {of.uri} up to checkpoint {latest.id}, "
        f"{run_of_head(head, latest.epoch)}, as of {wording.moment(of.at_ms)}. Runs after that have to run again here"
    )
    if of.again:
        yield "these had begun:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in of.again)
    if first is None and not found.done:
        yield from text.paragraph(
            f"{of.uri} is not asked. If it still answers, give --from: the job ends there, and nothing is lost. "
            "Otherwise see that its DAG is paused: what completes there from now on is lost"
        )
    yield from text.paragraph(
        "sinks outside of the storage are as they are: what they have committed since stays, and runs that run again "
        "commit again"
    )
    for each in found.staged:
        what = "its metadata is unreadable" if each.names is None else ", ".join(each.names) or "nothing"
        told = f"; told again: {', '.join(each.undelivered)}" if each.undelivered else ""
        yield from text.paragraph(f"  checkpoint {each.checkpoint} has staged: {what}{told}")
