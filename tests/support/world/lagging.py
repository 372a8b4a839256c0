"""Jobs whose checkpoints may leave stages out, and stages that lag or fail for good (semantics B3, F6)."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

from airflow_cairn.checkpoint import RegionalCheckpoints
from airflow_cairn.checkpoint.answers import AbandonedRegion, EpochCompleted, Failed, Ready
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.metadata import HandleLine
from airflow_cairn.checkpoint.store import metadata_file
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


def random_job(chance: random.Random, most: int, reads: float) -> tuple[StageSpec, ...]:
    """Make up two stages or more, each of which reads from each before it with this probability."""
    uids = [f"s{number}" for number in range(chance.randint(2, most))]
    edges = [tuple(uid for uid in uids[:at] if chance.random() < reads) for at in range(len(uids))]
    return tuple(StageSpec(uid, upstream) for uid, upstream in zip(uids, edges, strict=True))


def lose_a_file(world: World, chance: random.Random) -> None:
    """Lose a file of the newest checkpoint that no older one has, if there is an older one."""
    completed = world.coordinator().head().completed
    lines = [metadata_file.read(world.files, entry.metadata) for entry in completed]
    named = [{line.handle.path for line in each if isinstance(line, HandleLine)} for each in lines]
    lost = named[-1].difference(*named[:-1]) if len(named) > 1 else set()
    if lost:
        world.store.delete([f"flights/{chance.choice(sorted(lost))}"])
