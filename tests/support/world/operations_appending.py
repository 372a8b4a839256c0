"""The operations on a table and on states that grow.

The epoch that is struck merges the table's manifests, and the two files so far become one (decision 0047). It also
merges two runs of one state and writes a new base of another; the next one writes a new base of the first (decision
0044).
"""

from __future__ import annotations

from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.spark.stored import deltas, growing_table
from tests.support.world import grown_state
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Run,
    acknowledged,
    after,
    by,
    claimed,
    cleans,
    completed,
    completes,
    done,
    drives,
    fails,
    ran,
    under_way,
    wrote,
)
from tests.support.world.world import World

MERGED = (
    (growing_table, "FAN_IN", 3),
    (growing_table, "ALIKE_FILES", 2),
    (deltas, "FAN_IN", 2),
    (deltas, "MAX_EPOCHS", 3),
    (deltas, "MAX_SHARE", 100.0),
)
"""Three manifests of a file each become one, and so do two files and two deltas; the third delta becomes a new base."""


def _appends(world: World) -> None:
    world.appends = True


def _fail_over(world: World, handover: Handover) -> None:
    world.coordinator().fail(EPOCH, handover.stage, handover.claimant, "seems dead")


def _compact(world: World) -> Run:
    """The epoch under way has begun to restore what is compacted, or has not."""
    token = world.new_token()
    return lambda world, store: grown_state.compact(world, token, store)


def _two_compactors(world: World) -> None:
    """Two compactors have ended, and a third has died."""
    for finish in (True, True, False):
        grown_state.compact(world, world.new_token(), finish=finish)


# `report` is the last that has to acknowledge.
_before = after(_appends, completed("e0"), under_way("clean", "routes", "airports"))
_adopting = after(_before, _two_compactors, claimed("report"))

APPENDING_OPERATIONS = tuple(
    Operation(name, prepare, MERGED, ("e0", "e1", EPOCH, "e3"))
    for name, prepare in {
        "append": after(_before, drives("report")),
        "late append": after(_before, drives("report", _fail_over)),
        "complete what was appended": after(_before, acknowledged("report"), completes),
        # A driver has died with its list written.
        "clean what was appended": after(_before, wrote("report"), ran, done(completes), cleans),
        "fail what was appended": after(_before, fails("report")),
        "rewind what was appended": after(_appends, completed("e0", "e1", EPOCH), by(lambda it: it.rewind(2))),
        "compact": after(_before, _compact),
        "adopt a compaction": after(_before, _two_compactors, drives("report")),
        "complete what adopts a compaction": after(_adopting, acknowledged("report"), completes),
        "clean beside compactions": after(_adopting, ran, done(completes), done(_compact), cleans),
    }.items()
)
