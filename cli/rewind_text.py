"""`cairn rewind`: shows the checkpoints to undo, asks, and rewinds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from ..checkpoint import Coordinator
from ..checkpoint.documents.head import Head
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.documents.run_window import run_of_head
from ..checkpoint.rules.rewinds import Rewound
from .output import text
from .output.text import ask


def rewind(coordinator: Coordinator, options: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Rewind a job to an older checkpoint, after the user at the terminal has agreed.

    Returns:
        Lines and JSON document of the result.

    Raises:
        NoCheckpointError: the checkpoint is not retained, or damaged.
        RefusedError: a checkpoint is pending, the user did not agree, or the job has changed since the question;
            nothing was changed.
    """
    head = coordinator.head()
    if options.yes:
        found = coordinator.rewind(options.to, abort_pending=options.abort_pending)
        return [*_plan(head, found), *_done(found)], _document(coordinator.job, found)
    plan = coordinator.rewind_plan(options.to)
    if plan.undone and (options.abort_pending or not plan.aborted):
        undone = ", ".join(str(each) for each in plan.undone)
        facts: dict[str, Any] = {"job": head.job, "checkpoint": plan.checkpoint, "undone": undone}
        ask(_plan(head, plan), "Rewind?", "rewind_refused", **facts)
    found = coordinator.rewind(options.to, abort_pending=options.abort_pending, agreed=plan)
    # The question listed the undone checkpoints; without a question there is none.
    return [*([] if found.undone else _plan(head, found)), *_done(found)], _document(coordinator.job, found)


def _plan(head: Head, found: Rewound) -> Iterator[str]:
    columns = text.width()
    where = f"checkpoint {found.checkpoint}, which holds everything up to {run_of_head(head, found.epoch)}"
    if not found.undone:
        yield from text.paragraph(f"{head.job} is already at {where}: there is nothing to undo", columns)
        return
    yield from text.paragraph(f"{head.job} goes back to {where}. This undoes {_ids(found.undone)}", columns)
    yield "these DAG runs have to run again, in this order:"
    yield from (f"  {run_of_head(head, epoch)}" for epoch in found.epochs)
    if found.aborted:
        yield f"pending, and aborted: {_ids(found.aborted)}; after the others, these have to run again:"
        yield from (f"  {run_of_head(head, epoch)}" for epoch in found.aborted_epochs)
    said = "what was committed outside for them stays there; listeners are notified once more when they complete"
    yield from text.paragraph(said, columns)


def _done(found: Rewound) -> Iterator[str]:
    if found.undone:
        yield from text.paragraph(
            f"rewound: the next epoch restores checkpoint {found.checkpoint}. Clear those DAG runs one after the "
            "other, the oldest first, before another one starts",
            text.width(),
        )


def _ids(checkpoints: tuple[int, ...]) -> str:
    word = "checkpoint" if len(checkpoints) == 1 else "checkpoints"
    return f"{word} {', '.join(str(each) for each in checkpoints)}"


def _document(job: str, found: Rewound) -> dict[str, Any]:
    return {
        "job": job,
        "checkpoint": found.checkpoint,
        "run_id": run_id_of(found.epoch),
        "undone": list(found.undone),
        "run_again": [run_id_of(epoch) for epoch in (*found.epochs, *found.aborted_epochs)],
        "aborted": list(found.aborted),
    }
