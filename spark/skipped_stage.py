"""The acknowledgement of a stage that was skipped: that of an application which opens its epoch and does nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ..checkpoint.documents.acknowledgement import AckMetrics
from ..checkpoint.documents.layout import run_id_of
from ..checkpoint.errors import CheckpointFailedError
from ..checkpoint.reasons import AckAnswer
from .acknowledging import acknowledgement
from .input.backlog import Backlog
from .input.restored import RestoredState

if TYPE_CHECKING:
    from ..checkpoint.coordinator import Coordinator


def acknowledge_skipped(coordinator: Coordinator, epoch: str, stage: str, claimant: str) -> bool:
    """Acknowledge in the place of a stage whose task was skipped; its state and tables go on as they were.

    What it has not read of its upstreams in older epochs, because it did not wait for them, stays in its backlog
    (semantics B2). An older epoch's slice does not: others read that epoch now, and must not see half of it (B1).

    Idempotent: there is one acknowledgement of an execution, and of two at once the first one stays (semantics A2). A
    later try of the stage finds it and submits nothing.

    Returns:
        Whether this call acknowledged; False where there was nothing to do.

    Raises:
        CheckpointFailedError: it must not be skipped, because it has to read older epochs' input, which would be lost.
        InvalidConfigError: the pending checkpoint does not expect the stage.
    """
    handover = coordinator.stand_in(epoch, stage, claimant)
    if handover is None:
        return False
    older = {each.epoch for each in handover.replay} | {each.epoch for each in handover.backlog if each.slice}
    if older:
        raise CheckpointFailedError(
            f"the task of stage {stage} was skipped, but the stage has to read older epochs in this one, and they "
            "would be missing from its state and could not come back. Clear the task, and let it run",
            job=handover.job,
            checkpoint=handover.checkpoint,
            epochs=", ".join(sorted(run_id_of(each) for each in older)),
        )
    carried = RestoredState(stage)
    carried.load(coordinator.files, handover.restore, Backlog(()))
    ack = acknowledgement(handover, handover.token, carried.outputs, carried.values, AckMetrics())
    return coordinator.acknowledge(replace(ack, skipped=True)) is AckAnswer.SUCCESS
