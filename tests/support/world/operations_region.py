"""The operations that restart a region, each with the state of the world in which it is run (F1, F2, F5)."""

from __future__ import annotations

from airflow_cairn.checkpoint.store import acks
from tests.support.world.exchanges import CHAIN
from tests.support.world.operation import EPOCH, Operation, Run
from tests.support.world.world import TIMEOUT, World


def _half_done(world: World, *done: str) -> None:
    world.stages = CHAIN
    world.run_epoch("e1")
    world.trigger(EPOCH)
    for stage in done:
        world.drive(world.submit(EPOCH, stage, f"{stage}-1").handover)


def _fail_over(world: World) -> Run:
    _half_done(world, "clean", "airports")
    world.submit(EPOCH, "routes", "routes-1")
    return lambda world, store: world.coordinator(store).fail(EPOCH, "routes", "routes-1", "boom")


def _next_try(world: World) -> Run:
    """The writer, of the same region, has to run again first; nobody has reported the failure."""
    _half_done(world, "clean", "airports")
    world.submit(EPOCH, "routes", "routes-1")
    return lambda world, store: world.coordinator(store).begin(EPOCH, "routes", "routes-2")


def _take_up(world: World) -> Run:
    _half_done(world, "clean", "airports")
    world.decline(world.submit(EPOCH, "routes", "routes-1").handover)
    world.coordinator().progress(EPOCH)
    return lambda world, store: world.coordinator(store).begin(EPOCH, "routes", "routes-2")


def _expired(world: World) -> Run:
    _half_done(world, "clean")
    world.clock.advance(TIMEOUT)
    return lambda world, store: world.coordinator(store).begin(EPOCH, "routes", "routes-1")


def _lost_input(world: World) -> Run:
    """In the second attempt what `report` is to read is gone; a stage beside it has acknowledged."""
    _half_done(world, "clean", "routes", "airports")
    world.submit(EPOCH, "report", "report-1")
    world.coordinator().fail(EPOCH, "report", "report-1", "boom")
    execution = world.trigger(EPOCH).pending.executions["routes"]
    ack = acks.read_ack(world.files, "routes", execution)
    world.files.delete([h.path for s in ack.subtasks for h in s.handles if h.output == "exchange.rows"])
    return lambda world, store: world.coordinator(store).begin(EPOCH, "report", "report-2")


def _found_acknowledged(world: World) -> Run:
    """The task's process was killed after its driver had acknowledged; the retry writes its own name down."""
    _half_done(world, "clean")
    world.submit(EPOCH, "routes", "routes-1")
    return lambda world, store: world.coordinator(store).begin(EPOCH, "clean", "clean-2", try_number=2, first_try=1)


def _cleared(world: World) -> Run:
    """A person has cleared a stage that has acknowledged; one that reads from it has acknowledged too."""
    _half_done(world, "clean", "airports")
    world.submit(EPOCH, "routes", "routes-1")
    return lambda world, store: world.coordinator(store).begin(EPOCH, "clean", "clean-2", try_number=2, first_try=2)


REGION_OPERATIONS = (
    Operation("begin where the stage has acknowledged", _found_acknowledged),
    Operation("begin where a person has cleared what had acknowledged", _cleared),
    Operation("fail a region over", _fail_over),
    Operation("begin in a region that failed", _next_try),
    Operation("begin in a region that declined", _take_up),
    Operation("begin in a region half done", _expired),
    Operation("begin where what is to be read is gone", _lost_input),
)
