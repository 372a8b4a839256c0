"""A job for the page to show, with every kind of checkpoint."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import FixedDelayRestart
from tests.support.world.world import CONFIG, World


@pytest.fixture
def busy() -> World:
    """Two completed checkpoints, one that failed over, and its next attempt half-way."""
    world = World(config=replace(CONFIG, restart_strategy=FixedDelayRestart(3)))
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
