"""The operations on a table and on states that grow.

The epoch that is struck merges the table's manifests, and the two files so far become one (decision 0047). It also
merges two runs of one state and writes a new base of another; the next one writes a new base of the first (decision
0044).
"""

from __future__ import annotations

from airflow_cairn.spark.stored import deltas, growing_table
from tests.support.world import grown_state
from tests.support.world.operation import EPOCH, Operation, Run
from tests.support.world.world import World

MERGED = (
    (growing_table, "FAN_IN", 3),
    (growing_table, "ALIKE_FILES", 2),
    (deltas, "FAN_IN", 2),
    (deltas, "MAX_EPOCHS", 3),
    (deltas, "MAX_SHARE", 100.0),
)
"""Three manifests of a file each become one, and so do two files and two deltas; the third delta becomes a new base."""
EPOCHS = ("e0", "e1", EPOCH, "e3")


def _before(world: World) -> None:
    """Bring the world to where `report` is the last that has to acknowledge."""
    world.appends = True
    world.run_epoch("e0")
    world.run_epoch("e1")
    world.trigger(EPOCH)
    for stage in ("clean", "routes", "airports"):
        world.run_stage(EPOCH, stage)


def _append(world: World) -> Run:
    _before(world)
    handover = world.submit(EPOCH, "report").handover
    run = world.new_token()
    return lambda world, store: world.coordinator(store).acknowledge(world.write(handover, run=run, store=store))


def _late(world: World) -> Run:
    _before(world)
    claimant = world.new_claimant()
    handover = world.submit(EPOCH, "report", claimant).handover
    world.coordinator().fail(EPOCH, "report", claimant, "seems dead")
    run = world.new_token()
    return lambda world, store: world.coordinator(store).acknowledge(world.write(handover, run=run, store=store))


def _complete(world: World) -> Run:
    _before(world)
    world.run_stage(EPOCH, "report")
    checkpoint = world.pending_id(EPOCH)
    return lambda world, store: world.coordinator(store).complete(checkpoint)


def _clean(world: World) -> Run:
    _before(world)
    world.write(world.submit(EPOCH, "report").handover)  # this driver has died with its list written
    world.run_stages(EPOCH)
    world.coordinator().complete(world.pending_id(EPOCH))
    return lambda world, store: world.coordinator(store).clean()


def _fail(world: World) -> Run:
    _before(world)
    claimant = world.new_claimant()
    world.write(world.submit(EPOCH, "report", claimant).handover)
    return lambda world, store: world.coordinator(store).fail(EPOCH, "report", claimant, "killed")


def _rewind(world: World) -> Run:
    world.appends = True
    for epoch in ("e0", "e1", EPOCH):
        world.run_epoch(epoch)
    return lambda world, store: world.coordinator(store).rewind(2)


def _compact(world: World) -> Run:
    """The epoch under way has begun to restore what is compacted, or has not."""
    _before(world)
    token = world.new_token()
    return lambda world, store: grown_state.compact(world, token, store)


def _adopt(world: World) -> Run:
    """Two compactors have ended, and a third has died."""
    _before(world)
    for finish in (True, True, False):
        grown_state.compact(world, world.new_token(), finish=finish)
    handover = world.submit(EPOCH, "report").handover
    run = world.new_token()
    return lambda world, store: world.coordinator(store).acknowledge(world.write(handover, run=run, store=store))


def _complete_adopted(world: World) -> Run:
    _adopt(world)
    world.run_stage(EPOCH, "report")
    checkpoint = world.pending_id(EPOCH)
    return lambda world, store: world.coordinator(store).complete(checkpoint)


def _clean_adopted(world: World) -> Run:
    _adopt(world)
    world.run_stages(EPOCH)
    world.coordinator().complete(world.pending_id(EPOCH))
    grown_state.compact(world, world.new_token())
    return lambda world, store: world.coordinator(store).clean()


APPENDING_OPERATIONS = (
    Operation("append", _append, MERGED, EPOCHS),
    Operation("late append", _late, MERGED, EPOCHS),
    Operation("complete what was appended", _complete, MERGED, EPOCHS),
    Operation("clean what was appended", _clean, MERGED, EPOCHS),
    Operation("fail what was appended", _fail, MERGED, EPOCHS),
    Operation("rewind what was appended", _rewind, MERGED, EPOCHS),
    Operation("compact", _compact, MERGED, EPOCHS),
    Operation("adopt a compaction", _adopt, MERGED, EPOCHS),
    Operation("complete what adopts a compaction", _complete_adopted, MERGED, EPOCHS),
    Operation("clean beside compactions", _clean_adopted, MERGED, EPOCHS),
)
