"""A job for the page to show, with every kind of checkpoint."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest

from airflow_cairn.checkpoint import FixedDelayRestart
from tests.support.world.world import CONFIG, World


@pytest.fixture
def busy() -> World:
    """Busy world whose clock stands in the past."""
    return _busy_in_the_past().fork()


@cache
def _busy_in_the_past() -> World:
    return busy_world()


def busy_world(now_ms: int | None = None, savepoint_target: str | None = None) -> World:
    """Give a job with two completed checkpoints, one that failed over, and its next attempt half-way.

    Args:
        now_ms: when it begins, milliseconds since 1970 UTC; None: in the past, so that what is pending has expired.
        savepoint_target: where the job's savepoints go; None: it takes none.
    """
    options = replace(CONFIG, restart_strategy=FixedDelayRestart(3), savepoint_target=savepoint_target)
    world = World(config=options)
    world.clock.now_ms = now_ms or world.clock.now_ms
    world.read_days("a", "b", "c")
    for epoch in ("a", "b"):
        world.run_epoch(epoch)
        world.clock.advance(timedelta(seconds=5))
    world.trigger("c")
    world.run_stage("c", "clean")
    routes = world.submit("c", "routes").handover
    world.clock.advance(timedelta(seconds=7))
    world.coordinator().fail("c", "routes", routes.claimant, "ValueError: bad row")
    return world
