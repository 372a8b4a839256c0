"""The operations that restart a region, each with the state of the world in which it is run (F1, F2, F5)."""

from __future__ import annotations

from airflow_cairn.checkpoint.store import acks
from tests.support.world.exchanges import CHAIN
from tests.support.world.operation import (
    EPOCH,
    Operation,
    Step,
    after,
    begins,
    claimed,
    declines,
    done,
    expired,
    fails,
    looks,
    under_way,
)
from tests.support.world.world import World


def _half_done(*acknowledged: str) -> Step:
    def step(world: World) -> None:
        world.stages = CHAIN
        under_way(*acknowledged)(world)

    return step


def _lose_the_input(world: World) -> None:
    """In the second attempt what `report` is to read is gone; a stage beside it has acknowledged."""
    execution = world.trigger(EPOCH).pending.executions["routes"]
    ack = acks.read_ack(world.files, "routes", execution)
    world.files.delete([h.path for s in ack.subtasks for h in s.handles if h.output == "exchange.rows"])


_routes_due = _half_done("clean", "airports")
_report_fails = fails("report", has_written=False)

REGION_OPERATIONS = (
    # The task's process was killed after its driver had acknowledged; the retry writes its own name down.
    Operation(
        "begin where the stage has acknowledged",
        after(_half_done("clean"), claimed("routes"), begins("clean", try_number=2, first_try=1)),
    ),
    # One that reads from the stage has acknowledged too.
    Operation(
        "begin where a person has cleared what had acknowledged",
        after(_routes_due, claimed("routes"), begins("clean", try_number=2, first_try=2)),
    ),
    Operation("fail a region over", after(_routes_due, fails("routes", has_written=False))),
    # The writer, of the same region, has to run again first; nobody has reported the failure.
    Operation("begin in a region that failed", after(_routes_due, claimed("routes"), begins("routes"))),
    Operation(
        "begin in a region that declined", after(_routes_due, done(declines("routes")), done(looks), begins("routes"))
    ),
    Operation("begin in a region half done", after(_half_done("clean"), expired, begins("routes"))),
    Operation(
        "begin where what is to be read is gone",
        after(_half_done("clean", "routes", "airports"), done(_report_fails), _lose_the_input, begins("report")),
    ),
)
