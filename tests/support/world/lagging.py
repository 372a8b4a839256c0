"""Jobs whose checkpoints may leave stages out, and stages that lag or fail for good (semantics B3, F6)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_cairn.checkpoint import RegionalCheckpoints
from airflow_cairn.checkpoint.answers import AbandonedRegion, EpochCompleted, Failed, Ready
from tests.support.world.world import CONFIG, World

ALIGNMENT = timedelta(minutes=1)
UNALIGNED = replace(CONFIG, unaligned=True, alignment_timeout=ALIGNMENT, max_backlog=2)
REGIONAL = replace(CONFIG, regional=RegionalCheckpoints(0.5, 2))


def run_some(world: World, epoch: str, *stages: str) -> None:
    """Trigger an epoch and let these stages run."""
    world.coordinator().trigger(world.request(epoch))
    for stage in stages:
        world.run_stage(epoch, stage)


def complete_without(world: World, epoch: str, *left_out: str) -> int:
    """Complete an epoch in which these stages lag."""
    checkpoint = world.pending_id(epoch)
    world.clock.advance(ALIGNMENT)
    assert world.coordinator().progress(epoch) == Ready(checkpoint, tuple(sorted(left_out)))
    assert world.coordinator().complete(checkpoint) == EpochCompleted(epoch, checkpoint)
    world.coordinator().clean()
    return checkpoint


def fail_permanently(world: World, epoch: str, stage: str) -> AbandonedRegion | Failed:
    """Let the last try of a stage fail."""
    claimant = world.new_claimant()
    world.submit(epoch, stage, claimant)
    answer = world.coordinator().fail(epoch, stage, claimant, "killed", final=True)
    assert isinstance(answer, AbandonedRegion | Failed), answer
    return answer
