"""A task's calls of master hooks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow_cairn.checkpoint import MasterHook, TriggerRequest
from airflow_cairn.checkpoint.answers import EpochCompleted, Triggered
from airflow_cairn.checkpoint.documents.metadata import HookLine
from airflow_cairn.checkpoint.store import attempt_documents, metadata_file
from tests.support.world.world import World

SECOND = timedelta(seconds=1)


def asking(world: World, epoch: str, *hooks: MasterHook, allow: bool = False) -> TriggerRequest:
    """Request of the task that triggers."""
    config = replace(world.config, allow_non_restored_state=allow)
    return replace(world.request(epoch), hooks=tuple(hook.name for hook in hooks), config=config)


def triggered(world: World, epoch: str, *hooks: MasterHook, allow: bool = False, store: Any = None) -> Triggered:
    """Trigger, and then ask the hooks, as the task that triggers does."""
    coordinator = world.coordinator(store)
    answer = coordinator.trigger(asking(world, epoch, *hooks, allow=allow))
    assert isinstance(answer, Triggered), answer
    coordinator.ask_hooks(answer.pending, hooks)
    return answer


def run(world: World, epoch: str, *hooks: MasterHook) -> int:
    """Bring an epoch to its end, its hooks asked."""
    answer = world.coordinator().trigger(asking(world, epoch, *hooks))
    if isinstance(answer, EpochCompleted):
        return answer.checkpoint
    assert isinstance(answer, Triggered)
    world.coordinator().ask_hooks(answer.pending, hooks)
    for stage in world.stages:
        world.run_stage(epoch, stage.uid)
    checkpoint = world.pending_id(epoch)
    world.coordinator().complete(checkpoint)
    world.coordinator().clean()
    return checkpoint


def states(world: World, checkpoint: int) -> dict[str, Any]:
    """Answer of each hook, as a retained checkpoint holds it."""
    entry = world.coordinator().head().completed_by_id(checkpoint)
    assert entry is not None
    lines = metadata_file.read(world.files, entry.metadata)
    return {
        line.answer.name: attempt_documents.answered_state(line.answer, key="x")
        for line in lines
        if isinstance(line, HookLine)
    }
