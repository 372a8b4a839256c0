"""The operations on checkpoints that complete without some stages, each with the world in which it is run (B3, F6)."""

from __future__ import annotations

from airflow_cairn.checkpoint import CheckpointConfig
from tests.support.world.lagging import ALIGNMENT, REGIONAL, UNALIGNED, complete_without, run_some
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Run,
    Step,
    acknowledges,
    after,
    cleans,
    completed,
    completes,
    done,
    expired,
    looks,
    ran,
)
from tests.support.world.world import World


def _with(config: CheckpointConfig) -> Step:
    return lambda world: setattr(world, "config", config)


def _without_airports(epoch: str) -> Step:
    return lambda world: run_some(world, epoch, "clean", "routes", "report")


def _aligned(world: World) -> None:
    world.clock.advance(ALIGNMENT)


def _give_up(world: World) -> Run:
    world.submit(EPOCH, "airports", "last")
    return lambda world, store: world.coordinator(store).fail(EPOCH, "airports", "last", "killed", final=True)


_lagging = after(_with(UNALIGNED), completed("e1"), _without_airports(EPOCH))
_owing = after(_with(UNALIGNED), _without_airports("e1"), lambda world: complete_without(world, "e1", "airports"))
_catch_up = after(_owing, ran, completes)

LEFT_OUT_OPERATIONS = (
    Operation("complete without a stage", after(_lagging, _aligned, completes)),
    Operation("complete without a stage that owes", after(_owing, _without_airports(EPOCH), _aligned, completes)),
    Operation("complete with a stage that has caught up", _catch_up),
    Operation("clean after a stage has caught up", after(done(_catch_up), cleans)),
    Operation("ack after being left out", after(_lagging, acknowledges("airports", after(_aligned, done(completes))))),
    Operation(
        "give up",
        after(_with(REGIONAL), completed("e1"), lambda world: run_some(world, EPOCH, "clean"), _give_up),
    ),
    Operation(
        "silent at the timeout",
        after(_with(REGIONAL), completed("e1"), _without_airports(EPOCH), expired, looks),
    ),
)
