"""What the handover of a stage's execution says, from what its attempt expects."""

from __future__ import annotations

from dataclasses import replace

from ..documents.attempt import Handover, PendingDocument
from ..stage_graph import members_of


def handover_of(
    document: PendingDocument, stage: str, claimant: str, *, durable: bool = False, try_number: int = 0
) -> Handover:
    """Make the handover of a stage's current execution.

    Args:
        document: what the pending attempt expects.
        stage: the stage's uid.
        claimant: who would submit.
        durable: whether the driver may outlive who submits it.
        try_number: which try of its task the claimant is; 0: not known.
    """
    execution, spec = document.executions[stage], document.stage(stage)
    return Handover(
        job=document.job,
        checkpoint=execution.home,
        epoch=document.epoch,
        attempt=execution.attempt,
        stage=stage,
        token=execution.token,
        claimant=claimant,
        # The positions are no business of the application, and may be large.
        slice=replace(document.slice, positions=None),
        restore=document.restore,
        replay=document.replay,
        upstream={uid: document.executions[uid] for uid in (spec.upstream if spec else ())},
        parallelism=spec.parallelism if spec else None,
        hooks=document.hooks,
        backlog=document.backlogs.get(stage, ()),
        at_least_once=document.limits.at_least_once,
        members=members_of(document.stages, spec.upstream if spec else ()),
        durable=durable,
        draining=document.draining,
        max_parallelism=document.max_parallelism.get(stage),
        try_number=try_number,
    )
