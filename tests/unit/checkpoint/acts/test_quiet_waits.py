"""Moment until which only another version of the head ends a wait (semantics C1, D2, D3)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import EpochCompleted, Failed, Progress, Waiting
from airflow_cairn.checkpoint.documents.entries import Stopped
from airflow_cairn.checkpoint.store.head_store import Decision
from tests.support.narrowing import expect
from tests.support.world.lagging import UNALIGNED
from tests.support.world.savepoints import Below, asked
from tests.support.world.world import CONFIG, TIMEOUT, World
from tests.support.wrapped_stores import RecordingStore


def waiting(coordinator: Coordinator, epoch: str = "a") -> Waiting:
    return expect(Waiting, coordinator.go_on(epoch))


def test_it_is_quiet_until_the_timeout(world: World) -> None:  # semantics D2
    world.trigger("a")
    coordinator = world.coordinator()
    found = waiting(coordinator)
    assert found.quiet_until_ms == world.clock.now_ms + TIMEOUT // timedelta(milliseconds=1)
    world.clock.advance(TIMEOUT - timedelta(milliseconds=1))
    assert coordinator.is_unchanged(found)
    world.clock.advance(timedelta(milliseconds=1))
    assert not coordinator.is_unchanged(found)
    assert isinstance(coordinator.go_on("a"), Failed)


def test_another_epoch_that_expires_earlier_ends_the_quiet(world: World) -> None:  # semantics D2
    world.config = replace(CONFIG, max_concurrent_checkpoints=2)
    world.trigger("a")
    world.clock.advance(timedelta(minutes=1))
    world.trigger("b")
    coordinator = world.coordinator()
    assert waiting(coordinator, "b").quiet_until_ms == waiting(coordinator, "a").quiet_until_ms


def test_the_stage_that_acknowledges_last_ends_it(world: World) -> None:  # semantics C1, D3
    world.trigger("a")
    coordinator = world.coordinator()
    found: Progress = waiting(coordinator)
    for stage in world.stages:
        assert coordinator.is_unchanged(found)
        world.run_stage("a", stage.uid)
        world.coordinator().complete_if_last("a", stage.uid)
    assert not coordinator.is_unchanged(found)
    assert coordinator.go_on("a") == EpochCompleted("a", 1)


def test_it_costs_one_request(world: World) -> None:
    world.trigger("a")
    store = RecordingStore(world.store)
    coordinator = world.coordinator(store)
    found = waiting(coordinator)
    store.requests.clear()
    assert coordinator.is_unchanged(found)
    assert store.requests == {"get": 1}


def test_what_is_no_wait_costs_none(world: World) -> None:
    store = RecordingStore(world.store)
    assert not world.coordinator(store).is_unchanged(EpochCompleted("a", 1))
    assert store.total == 0


@pytest.mark.parametrize("why", ["a stage may lag", "a region may fail", "hooks", "a savepoint", "a stop"])
def test_it_is_never_quiet_where_time_or_a_store_may_end_it(world: World, why: str) -> None:
    """semantics B3, F6, T7, P1, S1: the task that waits acts then."""
    match why:
        case "a stage may lag":
            world.config = UNALIGNED
        case "a region may fail":
            world.config = CheckpointConfig(regional=RegionalCheckpoints())
        case "hooks":
            world.hook()
    world.trigger("a")
    coordinator = world.coordinator()
    if why == "a savepoint":
        coordinator.savepoint(asked(), lambda uri: Below(world.store, uri))
    if why == "a stop":
        coordinator._heads.update(lambda head, _now_ms: Decision(None, replace(head, stopped=Stopped.PAUSED)))
    assert waiting(coordinator).quiet_until_ms == 0
