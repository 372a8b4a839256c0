"""Is this driver still wanted? Asked once before work begins, so that a zombie does not compute for an hour (W4, F3).

Only a look: what decides is the acknowledgement, judged by the head afterwards.
"""

from __future__ import annotations

from ..checkpoint import acks, layout
from ..checkpoint.coordinator import Coordinator
from ..checkpoint.errors import FencedError
from ..checkpoint.model import Handover


def check(coordinator: Coordinator, handover: Handover) -> int | None:
    """Check that the execution of a handover may still count.

    Returns:
        When its checkpoint was triggered, milliseconds since 1970, if the head still knows.

    Raises:
        FencedError: the attempt was replaced, its epoch has completed, or another driver has acknowledged it.
    """
    standing = coordinator.standing(handover)
    if standing.completed is not None:
        raise replaced(handover, f"checkpoint {standing.completed} has completed the epoch")
    newer = standing.attempt
    if newer is not None and not standing.current:
        raise replaced(handover, f"attempt {newer.attempt}, checkpoint {newer.id}, runs the stage now")
    if acks.has_acknowledged(coordinator.files, handover.stage, handover.execution):
        raise already_acknowledged(handover)
    return standing.triggered_at_ms


def replaced(handover: Handover, why: str) -> FencedError:
    """Make the error of a driver whose attempt no longer counts."""
    return FencedError(
        f"this attempt has been replaced: {why}. What it wrote is discarded; there is nothing to repair, the current "
        "attempt does the work",
        **_facts(handover),
    )


def already_acknowledged(handover: Handover) -> FencedError:
    """Make the error of the second driver of one execution."""
    return FencedError(
        "this stage has been acknowledged already, by an earlier driver of this attempt or an earlier epoch block of "
        "this application. That result stands, and this one is left to the cleaner; use one block an application",
        **_facts(handover),
    )


def _facts(handover: Handover) -> dict[str, object]:
    return {
        "job": handover.job,
        "epoch": layout.run_id_of(handover.epoch),
        "stage": handover.stage,
        "checkpoint": handover.checkpoint,
        "attempt": handover.attempt,
    }
