"""The operations in which a restart strategy decides, each with the state of the world in which it is run (F4)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_cairn.checkpoint import FailureRateRestart, FixedDelayRestart, NoRestart
from airflow_cairn.checkpoint.config import RestartStrategy
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Step,
    after,
    begins,
    by,
    completed,
    declines,
    done,
    fails,
    under_way,
    wrote,
)
from tests.support.world.world import World


def _running(strategy: RestartStrategy, tolerable: int = 0) -> Step:
    """Have the second stage due."""

    def step(world: World) -> None:
        world.config = replace(world.config, restart_strategy=strategy, tolerable_failed_checkpoints=tolerable)
        under_way("clean")(world)

    return step


_failed = after(_running(NoRestart()), done(fails("routes")))
_by_hand = begins("routes", cleared_by_user=True)

RESTART_OPERATIONS = (
    Operation("failed try counted", after(_running(FailureRateRestart(2, timedelta(hours=1))), fails("routes"))),
    Operation("restarts exhausted", after(_running(NoRestart()), fails("routes"))),
    Operation("restarts exhausted at the next start", after(_running(NoRestart()), wrote("routes"), begins("routes"))),
    Operation("cleared by hand", after(_failed, _by_hand)),
    # A cleaner has come by since: all that had begun runs again.
    Operation("cleared by hand after another run", after(_failed, completed("e3"), _by_hand)),
    # A waiting task ends the attempt of a driver that declined; the first try is a failed one by the second's claim.
    Operation(
        "declined too often",
        after(
            _running(FixedDelayRestart(1), tolerable=5),
            wrote("routes"),
            done(declines("routes")),
            by(lambda it: it.go_on(EPOCH)),
        ),
    ),
)
