"""The stage that acknowledges last completes the checkpoint: the task that waits for it has still to start (C1, D3)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...storage.errors import CairnError

if TYPE_CHECKING:
    from ...checkpoint import Coordinator

log = logging.getLogger(__name__)


def complete_if_last(coordinator: Coordinator, epoch: str, stage: str) -> None:
    """Complete the epoch's checkpoint if every stage has acknowledged; what goes wrong is only logged.

    The stage has done its part. The task that waits for the checkpoint completes it, if it is still pending, and fails
    with the reason if it cannot complete.
    """
    try:
        completed = coordinator.complete_if_last(epoch, stage)
    except CairnError as error:
        log.warning("the checkpoint is left to the task that waits for it: %s", error)
        return
    if completed is not None:
        log.info("checkpoint %d: every stage has acknowledged, the checkpoint is complete", completed.checkpoint)
