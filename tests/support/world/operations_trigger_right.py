"""The operations around the right to trigger, each with the world in which it is due (T10)."""

from __future__ import annotations

from airflow_cairn.checkpoint.acts.trigger import HeldBy, HolderState
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.entries import TriggeringTask
from airflow_cairn.storage.port import ObjectStore
from tests.support.world.operation import EPOCH, Operation, Prepare, Run, after, completed, done
from tests.support.world.world import World

OWNER = Owner("flights", EPOCH)
FIRST, SECOND = (TriggeringTask(EPOCH, f"epoch.{name}") for name in ("first", "second"))


def take(
    world: World,
    task: TriggeringTask,
    store: ObjectStore | None = None,
    *,
    other: HolderState = HolderState.OTHER,
    asked_for: bool = False,
) -> HeldBy | None:
    """Have a task take the right, where the state of any other that has it is `other`."""
    return world.coordinator(store).trigger_right.take(task, OWNER, lambda _task: other, asked_for=asked_for)


def give_back(world: World, task: TriggeringTask, store: ObjectStore | None = None, *, failed: bool = False) -> None:
    """Have a task give it back."""
    world.coordinator(store).trigger_right.give_back(task, failed=failed)


def _takes(_: World) -> Run:
    return lambda world, store: take(world, FIRST, store)


def _gives_back(*, failed: bool) -> Prepare:
    return lambda _: lambda world, store: give_back(world, FIRST, store, failed=failed)


def _triggers(_: World) -> Run:
    """All that a stage's task does before it begins; hooks are asked while it has the right."""

    def run(world: World, store: ObjectStore) -> None:
        assert take(world, FIRST, store) is None
        world.ask(EPOCH, store)
        give_back(world, FIRST, store)

    return run


_taken = after(completed("e1"), done(_takes))

TRIGGER_RIGHT_OPERATIONS = (
    Operation("take the right to trigger", after(completed("e1"), _takes)),
    Operation("take the right of a dead task", after(completed("e1"), lambda world: take(world, SECOND), _takes)),
    Operation("give the right back", after(_taken, _gives_back(failed=False))),
    Operation("fail to trigger", after(_taken, _gives_back(failed=True))),
    Operation("trigger with the right", after(World.hook, completed("e1"), _triggers)),
)
