"""Jobs that put up with failed checkpoints, and which failures count (semantics D5)."""

from __future__ import annotations

from dataclasses import replace

from airflow_cairn.checkpoint.reasons import Reason
from tests.support.world.world import CONFIG, World

COUNTS = {
    Reason.CHECKPOINT_COORDINATOR_SHUTDOWN: False,
    Reason.PERIODIC_SCHEDULER_SHUTDOWN: False,
    Reason.ALREADY_QUEUED: False,
    Reason.TOO_MANY_CHECKPOINT_REQUESTS: False,
    Reason.TOO_MANY_CONCURRENT_CHECKPOINTS: False,
    Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS: False,
    Reason.IO_EXCEPTION: True,
    Reason.TRIGGER_CHECKPOINT_FAILURE: False,
    Reason.CHECKPOINT_DECLINED: True,
    Reason.CHECKPOINT_DECLINED_TASK_CLOSING: False,
    Reason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER: False,
    Reason.CHECKPOINT_ASYNC_EXCEPTION: True,
    Reason.CHECKPOINT_EXPIRED: True,
    Reason.CHECKPOINT_SUBSUMED: False,
    Reason.CHECKPOINT_COORDINATOR_SUSPEND: False,
    Reason.JOB_FAILURE: False,
    Reason.JOB_FAILOVER_REGION: False,
    Reason.FINALIZE_CHECKPOINT_FAILURE: False,
}


def tolerant(limit: int, concurrent: int = 1) -> World:
    """A job that puts up with so many failed checkpoints in a row."""
    return World(config=replace(CONFIG, tolerable_failed_checkpoints=limit, max_concurrent_checkpoints=concurrent))


def fail_once(world: World, epoch: str = "a", detail: str = "boom") -> None:
    """Let the epoch's first stage decline in the attempt that is pending, and somebody look."""
    world.decline(world.submit(epoch, "clean").handover, detail)
    world.coordinator().progress(epoch)
