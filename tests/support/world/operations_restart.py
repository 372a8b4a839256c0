"""The operations in which a restart strategy decides, each with the state of the world in which it is run (F4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_cairn.checkpoint import FailureRateRestart, FixedDelayRestart, NoRestart
from airflow_cairn.checkpoint.config import RestartStrategy
from tests.support.world.operation import EPOCH, Operation, Run
from tests.support.world.world import World


def _failing(world: World, strategy: RestartStrategy, tolerable: int = 0) -> str:
    """A try of the second stage runs and leaves files behind; gives who claimed it."""
    world.config = replace(world.config, restart_strategy=strategy, tolerable_failed_checkpoints=tolerable)
    world.run_epoch("e1")
    world.trigger(EPOCH)
    world.run_stage(EPOCH, "clean")
    claimant = world.new_claimant()
    world.write(world.submit(EPOCH, "routes", claimant).handover)
    return claimant


def _counted(world: World) -> Run:
    claimant = _failing(world, FailureRateRestart(2, timedelta(hours=1)))
    return lambda world, store: world.coordinator(store).fail(EPOCH, "routes", claimant, "killed")


def _exhausted(world: World) -> Run:
    claimant = _failing(world, NoRestart())
    return lambda world, store: world.coordinator(store).fail(EPOCH, "routes", claimant, "killed")


def _exhausted_at_the_next_start(world: World) -> Run:
    _failing(world, NoRestart())
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "routes", claimant)


def _by_hand(world: World) -> Run:
    failed = _failing(world, NoRestart())
    world.coordinator().fail(EPOCH, "routes", failed, "killed")
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "routes", claimant, cleared_by_user=True)


def _by_hand_later(world: World) -> Run:
    """Another run has completed since, and a cleaner has come by: all that had begun runs again."""
    failed = _failing(world, NoRestart())
    world.coordinator().fail(EPOCH, "routes", failed, "killed")
    world.run_epoch("e3")
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "routes", claimant, cleared_by_user=True)


def _declined_too_often(world: World) -> Run:
    """A waiting task ends the attempt of a driver that declined, and the strategy allows no other."""
    _failing(world, FixedDelayRestart(1), tolerable=5)
    handover = world.submit(EPOCH, "routes").handover  # the first try is a failed one by this
    world.decline(handover)
    return lambda world, store: world.coordinator(store).go_on(EPOCH)


RESTART_OPERATIONS = (
    Operation("failed try counted", _counted),
    Operation("restarts exhausted", _exhausted),
    Operation("restarts exhausted at the next start", _exhausted_at_the_next_start),
    Operation("cleared by hand", _by_hand),
    Operation("cleared by hand after another run", _by_hand_later),
    Operation("declined too often", _declined_too_often),
)
