"""How long each stage of a checkpoint waited, ran and wrote, as lengths to draw; pure."""

from __future__ import annotations

from dataclasses import dataclass

from ...checkpoint.views.details import CheckpointDetails, StageRow

WIDTH = 1_000
"""Of the longest stage."""


@dataclass(frozen=True, slots=True)
class StageBar:
    """A stage's time from the trigger on, in parts of `WIDTH`."""

    waited: int
    """Before it started."""
    ran: int
    wrote: int
    """While it wrote its state."""


def bars_of(found: CheckpointDetails) -> dict[str, StageBar]:
    """Give the bars of the stages that ran in a checkpoint and have acknowledged, by the stage's uid."""
    ran = [stage for stage in found.stages if not stage.carried and stage.metrics is not None]
    longest = max((stage.took_ms or 0 for stage in ran), default=0)
    return {stage.stage: _bar(stage, longest) for stage in ran} if longest else {}


def _bar(stage: StageRow, longest: int) -> StageBar:
    assert stage.metrics is not None  # only those come here
    took = stage.took_ms or 0
    waited = min(stage.metrics.start_delay_ms, took)
    wrote = min(stage.metrics.sync_ms + stage.metrics.async_ms, took - waited)
    return StageBar(*(round(WIDTH * each / longest) for each in (waited, took - waited - wrote, wrote)))
