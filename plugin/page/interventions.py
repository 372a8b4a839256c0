"""What a person may have a job do from a page: what it would do, in words, and doing it.

A plan says what would happen now. Who confirms it confirms exactly that: it is planned again before it is done, and if
something else would happen by then, nothing does. What is done is one swap of the head, which records who did it
(semantics O1); two who confirm at once race for that swap, and the second is told that the job has changed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from ...checkpoint import Coordinator
from ...checkpoint.decisions.rewinds import Rewound
from ...checkpoint.documents.entries import InterventionKind
from ...checkpoint.documents.head import Head
from ...checkpoint.documents.run_window import run_of_head
from ...checkpoint.documents.strict_json import Json
from ...checkpoint.errors import NoCheckpointError, RewindRefusedError
from ...checkpoint.reasons import Reason
from ...checkpoint.views.wording import how_stopped
from .problems import InterventionRefusedError, changed

RUNS = 20
"""DAG runs that a plan names."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an intervention would do."""

    kind: InterventionKind
    checkpoint: int | None
    title: str
    """What is wanted, as an order."""
    effects: tuple[str, ...]
    """What it would do, one sentence each."""
    rewound: Rewound | None = None
    """Of a rewind: the same as a value."""

    @property
    def digest(self) -> str:
        """What differs whenever something else would be done."""
        return hashlib.sha256(json.dumps([self.kind, self.checkpoint, self.effects]).encode()).hexdigest()[:32]

    def as_json(self) -> dict[str, Json]:
        """Give it as plain JSON values."""
        effects: list[Json] = list(self.effects)
        return {"kind": self.kind, "checkpoint": self.checkpoint, "effects": effects, "agreed": self.digest}


def plan(coordinator: Coordinator, kind: InterventionKind, checkpoint: int | None) -> Plan:
    """Say what an intervention would do now, and do none of it.

    Args:
        coordinator: of the job.
        kind: what is wanted.
        checkpoint: the one that it is about; None for one that is about the job.

    Raises:
        InterventionRefusedError: there is nothing to do.
        NoCheckpointError: there is no such checkpoint, or it is not retained.
        CairnError: the storage or the job's head cannot be read.
    """
    if kind is InterventionKind.RESUME:
        return _resume(coordinator.head())
    if checkpoint is None:
        raise InterventionRefusedError("Say which checkpoint: `checkpoint` is missing.")
    if kind is InterventionKind.GIVE_UP:
        return _give_up(coordinator.head(), checkpoint)
    return _rewind(coordinator.head(), coordinator.rewind_plan(checkpoint))


def perform(coordinator: Coordinator, agreed: Plan, actor: str) -> None:
    """Do what was agreed to, and record who wanted it.

    Args:
        coordinator: of the job.
        agreed: as planned just before.
        actor: who wants it.

    Raises:
        InterventionRefusedError: the job has changed since.
        NoCheckpointError: the checkpoint to go back to is damaged, or no longer retained.
        CairnError: the storage or the job's head cannot be read or written.
    """
    if agreed.kind is InterventionKind.RESUME:
        coordinator.resume(actor=actor)
        return
    assert agreed.checkpoint is not None  # a plan of the others has one
    if agreed.kind is InterventionKind.GIVE_UP:
        reason = Reason.CHECKPOINT_COORDINATOR_SUSPEND
        if not coordinator.abort(agreed.checkpoint, reason, f"{actor} gave it up", actor=actor):
            raise changed()
        return
    try:
        coordinator.rewind(agreed.checkpoint, abort_pending=True, agreed=agreed.rewound, actor=actor)
    except RewindRefusedError as error:
        raise changed() from error


def _resume(head: Head) -> Plan:
    stopping, latest = head.stopping(), head.latest_id()
    if head.stopped is None and stopping is None:
        raise InterventionRefusedError("The job is not stopped: there is nothing to resume.")
    effects = []
    if head.stopped is not None:
        effects.append(f"The job is {how_stopped(head.stopped)}. It takes requests again.")
    if stopping is not None:
        effects.append(f"The job is being stopped with savepoint {stopping.id}. The savepoint is cancelled.")
    goes_on = f"The next run restores checkpoint {latest}." if latest else "The next run starts empty."
    return Plan(InterventionKind.RESUME, None, "Let the job go on", (*effects, goes_on))


def _give_up(head: Head, checkpoint: int) -> Plan:
    entry = head.pending_by_id(checkpoint)
    if entry is None:
        raise NoCheckpointError("the checkpoint is not pending: it has ended", job=head.job, checkpoint=checkpoint)
    return Plan(
        InterventionKind.GIVE_UP,
        checkpoint,
        f"Give up checkpoint {checkpoint}",
        (
            f"Attempt {entry.attempt} of {run_of_head(head, entry.epoch)} ends as failed.",
            "What its stages still write is thrown away, and the task that waits for it fails.",
            "Nothing of the job's state changes.",
            "The next try of a stage opens another attempt: by Airflow's retries, or once you clear the DAG run.",
        ),
    )


def _rewind(head: Head, found: Rewound) -> Plan:
    if not found.undone:
        raise InterventionRefusedError(f"The job is at checkpoint {found.checkpoint} already: nothing comes after it.")
    undone = ", ".join(str(each) for each in found.undone)
    holds = f"which holds everything up to {run_of_head(head, found.epoch)}"
    effects = [
        f"The next run restores checkpoint {found.checkpoint}, {holds}.",
        f"Undone: {undone}. Their files are deleted.",
        f"To be run again, in this order: {_runs(head, found.epochs)}.",
    ]
    if found.aborted:
        effects.append(
            f"Pending, and ended: {', '.join(map(str, found.aborted))}; after the others, run again "
            f"{_runs(head, found.aborted_epochs)}."
        )
    effects.append("What sinks have committed outside stays there.")
    title = f"Go back to checkpoint {found.checkpoint}"
    return Plan(InterventionKind.REWIND, found.checkpoint, title, tuple(effects), found)


def _runs(head: Head, epochs: tuple[str, ...]) -> str:
    shown = ", ".join(run_of_head(head, epoch) for epoch in epochs[:RUNS]) or "none"
    return shown + (f" and {len(epochs) - RUNS} more" if len(epochs) > RUNS else "")
