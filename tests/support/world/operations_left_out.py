"""The operations on checkpoints that complete without some stages, each with the world in which it is run (B3, F6)."""

from __future__ import annotations

from tests.support.world.lagging import ALIGNMENT, REGIONAL, UNALIGNED, complete_without, run_some
from tests.support.world.operation import EPOCH, Operation, Run
from tests.support.world.world import TIMEOUT, World


def _complete_without(world: World) -> Run:
    world.config = UNALIGNED
    world.run_epoch("e1")
    run_some(world, EPOCH, "clean", "routes", "report")
    world.clock.advance(ALIGNMENT)
    return lambda world, store: world.coordinator(store).complete(2)


def _complete_without_again(world: World) -> Run:
    world.config = UNALIGNED
    run_some(world, "e1", "clean", "routes", "report")
    complete_without(world, "e1", "airports")
    run_some(world, EPOCH, "clean", "routes", "report")
    world.clock.advance(ALIGNMENT)
    return lambda world, store: world.coordinator(store).complete(2)


def _catch_up(world: World) -> Run:
    world.config = UNALIGNED
    run_some(world, "e1", "clean", "routes", "report")
    complete_without(world, "e1", "airports")
    world.run_stages(EPOCH)
    return lambda world, store: world.coordinator(store).complete(2)


def _clean_after_catching_up(world: World) -> Run:
    run = _catch_up(world)
    run(world, world.store)
    return lambda world, store: world.coordinator(store).clean()


def _acknowledge_after_being_left_out(world: World) -> Run:
    world.config = UNALIGNED
    world.run_epoch("e1")
    run_some(world, EPOCH, "clean", "routes", "report")
    late = world.write(world.submit(EPOCH, "airports").handover)
    world.clock.advance(ALIGNMENT)
    world.coordinator().complete(2)
    return lambda world, store: world.coordinator(store).acknowledge(late)


def _give_up(world: World) -> Run:
    world.config = REGIONAL
    world.run_epoch("e1")
    run_some(world, EPOCH, "clean")
    world.submit(EPOCH, "airports", "last")
    return lambda world, store: world.coordinator(store).fail(EPOCH, "airports", "last", "killed", final=True)


def _silent_at_the_timeout(world: World) -> Run:
    world.config = REGIONAL
    world.run_epoch("e1")
    run_some(world, EPOCH, "clean", "routes", "report")
    world.clock.advance(TIMEOUT)
    return lambda world, store: world.coordinator(store).progress(EPOCH)


LEFT_OUT_OPERATIONS = (
    Operation("complete without a stage", _complete_without),
    Operation("complete without a stage that owes", _complete_without_again),
    Operation("complete with a stage that has caught up", _catch_up),
    Operation("clean after a stage has caught up", _clean_after_catching_up),
    Operation("ack after being left out", _acknowledge_after_being_left_out),
    Operation("give up", _give_up),
    Operation("silent at the timeout", _silent_at_the_timeout),
)
