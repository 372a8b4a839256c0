"""Going back to an older checkpoint, going on where a job was stopped, and giving up a pending attempt."""

from __future__ import annotations

from ...checkpoint import Coordinator
from ...checkpoint.decisions.rewinds import Rewound
from ...checkpoint.documents.entries import InterventionKind
from ...checkpoint.documents.head import Head
from ...checkpoint.documents.run_window import run_of_head
from ...checkpoint.errors import NoCheckpointError, RewindRefusedError
from ...checkpoint.reasons import Reason
from ...checkpoint.views import wording
from .plan import InterventionRefusedError, Plan, changed

RUNS = 20
"""DAG runs that a plan names."""


def plan_resume(head: Head) -> Plan:
    """Say what letting the job go on would do.

    Raises:
        InterventionRefusedError: it is not stopped.
    """
    stopping, latest = head.stopping(), head.latest_id()
    if head.stopped is None and stopping is None:
        raise InterventionRefusedError("The job is not stopped: there is nothing to resume.")
    effects = []
    if head.stopped is not None:
        effects.append(f"The job is {wording.how_stopped(head.stopped)}. It takes requests again.")
    if stopping is not None:
        effects.append(f"The job is being stopped with savepoint {stopping.id}. The savepoint is cancelled.")
    goes_on = f"The next run restores checkpoint {latest}." if latest else "The next run starts empty."
    return Plan(InterventionKind.RESUME, None, "Let the job go on", (*effects, goes_on))


def plan_give_up(head: Head, checkpoint: int) -> Plan:
    """Say what giving up a pending checkpoint would do.

    Raises:
        NoCheckpointError: it is not pending.
    """
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
            "The next try of a stage has the task that triggers run again, which opens another attempt.",
        ),
    )


def give_up(coordinator: Coordinator, checkpoint: int, actor: str) -> None:
    """Give up a pending checkpoint.

    Raises:
        InterventionRefusedError: it has ended since.
    """
    reason = Reason.CHECKPOINT_COORDINATOR_SUSPEND
    if not coordinator.abort(checkpoint, reason, f"{actor} gave it up", actor=actor):
        raise changed()


def plan_rewind(head: Head, found: Rewound) -> Plan:
    """Say what going back would do.

    Args:
        head: the job's.
        found: the same as a value.

    Raises:
        InterventionRefusedError: the job is at that checkpoint.
    """
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


def rewind(coordinator: Coordinator, checkpoint: int, agreed: Rewound | None, actor: str) -> None:
    """Go back to an older checkpoint.

    Raises:
        InterventionRefusedError: the job has changed since.
        NoCheckpointError: the checkpoint is damaged, or no longer retained.
    """
    try:
        coordinator.rewind(checkpoint, abort_pending=True, agreed=agreed, actor=actor)
    except RewindRefusedError as error:
        raise changed() from error


def _runs(head: Head, epochs: tuple[str, ...]) -> str:
    return wording.some([run_of_head(head, epoch) for epoch in epochs], RUNS) or "none"
