"""What of a job runs again together, as people read it (semantics F1)."""

from __future__ import annotations

from ..checkpoint.model import StageSpec
from ..checkpoint.regions import regions_of

_LINES = 20
"""Regions in a tooltip, at most."""


def ordered(stages: tuple[StageSpec, ...]) -> tuple[tuple[str, ...], ...]:
    """Give the regions of a job, and the stages of each, in the order in which the DAG names the stages.

    Args:
        stages: of the job.
    """
    position = {stage.uid: number for number, stage in enumerate(stages)}
    return tuple(tuple(sorted(region, key=position.__getitem__)) for region in regions_of(stages))


def tooltip_of(stages: tuple[StageSpec, ...]) -> str:
    """Say in a few lines what runs again together.

    Args:
        stages: of the job.
    """
    regions = ordered(stages)
    lines = [f"region {number}: {', '.join(region)}" for number, region in enumerate(regions[:_LINES], 1)]
    if len(regions) > _LINES:
        lines.append(f"and {len(regions) - _LINES} more: cairn regions lists them")
    return "\n".join(lines)
