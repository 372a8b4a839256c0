"""`cairn forget-listener`: drops the notices of a listener that no longer exists, or one of them (semantics C4, D4).

Changes nothing without `--yes`, and lists the notices that it would drop.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.documents.entries import Notice
from ..checkpoint.documents.head import Head
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.documents.run_window import run_of_head
from ..checkpoint.errors import InvalidConfigError
from ..checkpoint.rules.ownership import described
from .output import text


def forget_listener_of(
    coordinator: Coordinator, job: str, listener: str, checkpoint: int | None, *, yes: bool
) -> tuple[list[str], dict[str, Any]]:
    """Drop a listener's notices, or list them.

    Args:
        coordinator: the job's coordinator.
        job: its name.
        listener: the listener's name.
        checkpoint: drop only the notice of this checkpoint; None: all waiting notices.
        yes: drop them.

    Returns:
        The lines and the JSON document to print.

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
    """Make a DAG the owner of a job.

    Returns:
        The lines and the JSON document to print.

    Raises:
        RefusedError: a checkpoint is pending; nothing was changed.
        InvalidConfigError: a name is invalid.
    """
    found = coordinator.ownership.adopt(options.dag, options.deployment, abort_pending=options.abort_pending)
    before = described(found.before) if found.before else "no recorded owner"
    said = f"{coordinator.job} belongs to {described(found.after)}"
    said += " as before" if found.before == found.after else f" now; before: {before}"
    lines = list(text.paragraph(said, text.width()))
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
