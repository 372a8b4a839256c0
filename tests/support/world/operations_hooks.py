"""The operations in which master hooks have a part, each with the world in which it is run (T7, C1)."""

from __future__ import annotations

from contextlib import suppress

from airflow_cairn.checkpoint.errors import CallbackError
from airflow_cairn.storage.port import ObjectStore
from tests.support.world.operation import EPOCH, Operation, Run
from tests.support.world.world import TIMEOUT, World


def _hooked(world: World) -> None:
    """e1 has completed, with ids 1 to 10."""
    world.hook()
    world.run_epoch("e1")


def _trigger_and_ask(world: World) -> Run:
    _hooked(world)
    return lambda world, store: world.ask(EPOCH, store)


def _ask_again(world: World) -> Run:
    """The process that triggered was killed before the answers were kept."""
    _hooked(world)
    world.coordinator().trigger(world.request(EPOCH))
    return lambda world, store: world.ask(EPOCH, store)


def _give_up(world: World) -> Run:
    """The hook fails, so the checkpoint that was made pending is aborted."""
    _hooked(world)

    def run(world: World, store: ObjectStore) -> None:
        (ids,) = world.hooks
        ids.fails_in = "trigger"
        try:
            with suppress(CallbackError):
                world.ask(EPOCH, store)
        finally:
            ids.fails_in = None

    return run


def _begin(world: World) -> Run:
    _hooked(world)
    world.ask(EPOCH)
    claimant = world.new_claimant()
    return lambda world, store: world.coordinator(store).begin(EPOCH, "clean", claimant)


def _complete(world: World) -> Run:
    _hooked(world)
    world.run_stages(EPOCH)
    checkpoint = world.pending_id(EPOCH)
    return lambda world, store: world.coordinator(store).complete(checkpoint)


def _fail(world: World) -> Run:
    """The next attempt takes the answers over."""
    _hooked(world)
    world.ask(EPOCH)
    claimant = world.new_claimant()
    world.submit(EPOCH, "clean", claimant)
    return lambda world, store: world.coordinator(store).fail(EPOCH, "clean", claimant, "killed")


def _ask_after_expiry(world: World) -> Run:
    """The checkpoint expires before anybody has asked; the next trigger asks for its own."""
    _hooked(world)
    world.coordinator().trigger(world.request(EPOCH))
    world.clock.advance(TIMEOUT)
    return lambda world, store: world.ask(EPOCH, store)


HOOK_OPERATIONS = (
    Operation("trigger and ask hooks", _trigger_and_ask),
    Operation("ask hooks again", _ask_again),
    Operation("give up because a hook failed", _give_up),
    Operation("begin with hooks", _begin),
    Operation("complete with hooks", _complete),
    Operation("fail with hooks", _fail),
    Operation("ask hooks after an expiry", _ask_after_expiry),
)
