"""Plans what a person wants, and does what was planned.

A plan says what would happen now. Who confirms it confirms exactly that: it is planned again before it is done, and if
something else would happen by then, nothing does. What changes the job is one swap of the head, which records who did
it (semantics O1); two who confirm at once race for that swap, and the second is told that the job has changed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...checkpoint import Coordinator
from ...checkpoint.documents.entries import InterventionKind
from ...checkpoint.documents.layout import run_id_of
from ...tasks.reports import notes
from . import of_checkpoints, of_last_run, of_runs, of_savepoints
from .plan import InterventionRefusedError, Kind, Means, Plan, RunKind

NOTED = 20
"""Runs that get a note of a rewind, the newest ones: the person waits meanwhile."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person wants."""

    kind: Kind
    checkpoint: int | None = None
    """The checkpoint or savepoint that it is about; None for what is about the job."""
    stage: str = ""
    """The stage that it is about; empty for what is about none."""
    drain: bool = False
    """Of a stop: whether a last run is to let out first what the stages hold back."""


def plan(coordinator: Coordinator, wanted: Wanted, means: Means) -> Plan:
    """Say what an intervention would do now, and do none of it.

    Args:
        coordinator: of the job.
        wanted: what is wanted.
        means: what is used beside the job.

    Raises:
        InterventionRefusedError: there is nothing to do, or it would be refused.
        NoCheckpointError: there is no such checkpoint, or it is not retained.
        NoSavepointError: there is no such savepoint.
        AirflowApiError: Airflow did not answer, or refuses the person.
        CairnError: the storage or the job's head cannot be read.
    """
    kind, checkpoint = wanted.kind, wanted.checkpoint
    if wanted.drain and kind is not InterventionKind.STOP:
        raise InterventionRefusedError(f"`drain` belongs to `stop`: `{kind}` has none.")
    match kind:
        case InterventionKind.RESUME:
            return of_checkpoints.plan_resume(coordinator.head())
        case InterventionKind.STOP if wanted.drain:
            return of_savepoints.plan_drain(coordinator, means)
        case InterventionKind.SAVEPOINT | InterventionKind.STOP:
            return of_savepoints.plan_taking(coordinator, InterventionKind(kind), means.target)
        case RunKind.CHECKPOINT:
            return of_runs.plan_checkpoint(coordinator.head(), means.api, means.dag_id)
    if checkpoint is None:
        raise InterventionRefusedError("Say which one: `checkpoint` is missing.")
    match kind:
        case InterventionKind.GIVE_UP:
            return of_checkpoints.plan_give_up(coordinator.head(), checkpoint)
        case InterventionKind.DISPOSE:
            return of_savepoints.plan_disposal(coordinator, checkpoint, means)
        case RunKind.CLEAR:
            return of_runs.plan_clear(coordinator, checkpoint, wanted.stage, means.region_of, means.api, means.dag_id)
    return of_checkpoints.plan_rewind(coordinator.head(), coordinator.rewind_plan(checkpoint))


def perform(coordinator: Coordinator, agreed: Plan, actor: str, operation: str, means: Means) -> None:
    """Do what was agreed to, and record who wanted it.

    Args:
        coordinator: of the job.
        agreed: as planned just before.
        actor: who wants it.
        operation: of what goes on for some time: the same one begins it once.
        means: what is used beside the job.

    Raises:
        InterventionRefusedError: the job has changed since, or refuses.
        NoCheckpointError: the checkpoint to go back to is damaged, or no longer retained.
        AirflowApiError: Airflow did not answer, or refuses the person.
        CairnError: a storage or the job's head cannot be read or written.
    """
    match agreed.kind:
        case InterventionKind.RESUME:
            return coordinator.resume(actor=actor)
        case InterventionKind.SAVEPOINT | InterventionKind.STOP:
            entry = of_savepoints.open_savepoint(coordinator, agreed, operation, actor, means)
            if agreed.drains:
                of_last_run.begin(coordinator, entry, means)
            return None
        case InterventionKind.DISPOSE:
            return of_savepoints.dispose(coordinator, agreed, actor, means)
        case RunKind.CHECKPOINT:
            return of_runs.make_run(means.api, means.dag_id, operation)
        case RunKind.CLEAR:
            return of_runs.clear(means.api, means.dag_id, agreed, actor)
    assert agreed.checkpoint is not None  # a plan of the others has one
    if agreed.kind is InterventionKind.GIVE_UP:
        return of_checkpoints.give_up(coordinator, agreed.checkpoint, actor)
    return of_checkpoints.rewind(coordinator, agreed.checkpoint, agreed.rewound, actor)


def note(job: str, done: Plan, actor: str, means: Means) -> None:
    """Say on the runs that it concerns what was done; it needs nothing of the job, so that none who looks at it waits.

    Args:
        job: the job's name.
        done: what was done.
        actor: who wanted it.
        means: what is used beside the job.
    """
    if done.rewound is None or done.checkpoint is None:
        return
    said = notes.rewound(done.checkpoint, actor)
    for epoch in done.rewound.epochs[-NOTED:]:
        if not notes.put(means.api, means.dag_id, run_id_of(epoch), job, said):
            break  # the rewind is done, and Airflow's API may be away: no person waits for twenty tries
