"""The operations in which master hooks have a part, each with the world in which it is run (T7, C1)."""

from __future__ import annotations

from contextlib import suppress

from airflow_cairn.checkpoint.errors import CallbackError
from airflow_cairn.storage.port import ObjectStore
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Run,
    after,
    begins,
    completes,
    expired,
    fails,
    ran,
)
from tests.support.world.world import World


def _hooked(world: World) -> None:
    """e1 has completed, with ids 1 to 10."""
    world.hook()
    world.run_epoch("e1")


def _triggered(world: World) -> None:
    """The process that triggered was killed before the answers were kept."""
    world.coordinator().trigger(world.request(EPOCH))


def _ask(_: World) -> Run:
    return lambda world, store: world.ask(EPOCH, store)


def _asked(world: World) -> None:
    world.ask(EPOCH)


def _give_up(_: World) -> Run:
    """The hook fails, so the checkpoint that was made pending is aborted."""

    def run(world: World, store: ObjectStore) -> None:
        (ids,) = world.hooks
        ids.fails_in = "trigger"
        try:
            with suppress(CallbackError):
                world.ask(EPOCH, store)
        finally:
            ids.fails_in = None

    return run


HOOK_OPERATIONS = (
    Operation("trigger and ask hooks", after(_hooked, _ask)),
    Operation("ask hooks again", after(_hooked, _triggered, _ask)),
    Operation("give up because a hook failed", after(_hooked, _give_up)),
    Operation("begin with hooks", after(_hooked, _asked, begins("clean"))),
    Operation("complete with hooks", after(_hooked, ran, completes)),
    # The next attempt takes the answers over.
    Operation("fail with hooks", after(_hooked, _asked, fails("clean", has_written=False))),
    # The checkpoint expires before anybody has asked; the next trigger asks for its own.
    Operation("ask hooks after an expiry", after(_hooked, _triggered, expired, _ask)),
)
