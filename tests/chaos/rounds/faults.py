"""Faults that strike a round on the real Airflow, and their undoing."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from scripts.harness.airflow_home import COMPONENTS
from tests.chaos.protocol.outage import outage
from tests.real.airflow.scenario import kill_driver, kill_task

if TYPE_CHECKING:
    from tests.chaos.rounds.world import World

WIDE = ("first", "parts-0", "last")
TWO = ("one", "two")
STAGES = {
    "fast": ("src", "left", "right", "end"),
    "wide": WIDE,
    "overlap": TWO,
    "overtaken": TWO,
    "reading": TWO,
    "service": TWO,
    "spark": WIDE,
    "warm": WIDE,
}
"""Stages of each DAG at which faults wait."""
REMOVED = "removed"
ALL = {**STAGES, **dict.fromkeys(("wide", "spark", "warm"), ("first", "parts-0", "parts-1", "last"))}
FIRST = {dag: stages[0] for dag, stages in STAGES.items()}
BESIDE = ("overlap", "overtaken", "reading")
"""DAGs with two runs beside each other; in the second both may have a checkpoint pending, the third has a source."""
WEIGHTS = {"fast": 3, "wide": 3, "overlap": 1, "overtaken": 2, "reading": 2, "service": 2, "spark": 1, "warm": 1}
"""Weights of the DAGs in the draw: real Spark takes its time."""
OF_SERVER = ("kill server", "stop server", "port taken")
"""Faults of the server that the stages of `warm` share: half of that DAG's faults."""
OF_SERVICE = ("service away", "answer of the service lost")
"""Faults of the service that runs the drivers of `service`: a third of that DAG's faults."""
ONLY_WIDE = ("stage added", "stage removed", "stage renamed")


@dataclass(frozen=True)
class Fault:
    """One fault: it comes when the driver of a stage of the round's first run runs."""

    kind: str
    stage: str


@dataclass(frozen=True)
class RoundPlan:
    """Round as its seed draws it."""

    dag: str
    runs: int
    faults: tuple[Fault, ...]


def round_plan(seed: int, number: int) -> RoundPlan:
    """Draw a round.

    Args:
        seed: what decides everything.
        number: of the round.
    """
    dice = random.Random(f"round {seed} {number}")
    [dag] = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
    stages = dice.sample(STAGES[dag], min(dice.choice((1, 1, 2, 3)), len(STAGES[dag])))
    # In the order in which their drivers run, so that no fault waits for a stage that waits for another's gate.
    ordered = [stage for stage in STAGES[dag] if stage in stages]
    # A stop refuses the run beside it, which then is a person's to clear (semantics P2).
    not_here = (
        *(() if dag == "wide" else ONLY_WIDE),
        *(("stop with savepoint",) if dag in BESIDE else ()),
        *(("kill task", "stop task") if dag == "service" else ()),  # no task's process is above such a driver
        *OF_SERVER,
        *OF_SERVICE,
    )
    kinds = [kind for kind in KINDS if kind not in not_here]

    def drawn() -> str:
        if dag == "warm" and dice.random() < 0.5:
            return dice.choice(OF_SERVER)
        return dice.choice(OF_SERVICE if dag == "service" and dice.random() < 0.33 else kinds)

    return RoundPlan(dag, 2 if dag in BESIDE else 1, tuple(Fault(drawn(), each) for each in ordered))


Act = Callable[["World", psutil.Process, str], bool | None]
"""Lets a fault come, to the driver of a stage; False if there was nothing that it could meet."""


def _stop_task(world: World, driver: psutil.Process, stage: str) -> None:
    """Stop the task's process and its supervisor, until their heartbeat is missed."""
    above = [process for process in driver.parents() if "airflow" in " ".join(process.cmdline())]
    world.stop(above[:2], stage=stage)


def _kill(component: str) -> Act:
    return lambda world, _driver, _stage: world.kill_component(component)


def _stop(component: str) -> Act:
    return lambda world, _driver, _stage: world.stop(world.component(component))


def _outage(how: str, requests: int) -> Act:
    def act(world: World, _driver: psutil.Process, _stage: str) -> None:
        world.proxy.rules[:] = [outage(how, 1, requests)]

    return act


def _handover_deleted(world: World, driver: psutil.Process, _stage: str) -> bool:
    """Delete the handover of some stage, and then kill a driver: the region has to run again without it."""
    found = world.lose_marker("handover")
    kill_driver(driver)
    return found


KINDS: dict[str, Act] = {
    "kill driver": lambda _world, driver, _stage: kill_driver(driver),
    "stop driver": lambda world, driver, _stage: world.stop([driver]),
    "kill task": lambda _world, driver, _stage: kill_task(driver),
    "stop task": _stop_task,
    **{f"kill {name}": _kill(name) for name in COMPONENTS},
    **{f"stop {name}": _stop(name) for name in COMPONENTS},
    "store away": _outage("cut", 60),
    "store refuses": lambda world, _driver, _stage: world.refuse(),
    "answers lost": _outage("answer lost", 3),
    "kill server": lambda world, _driver, _stage: world.lose_server(signal.SIGKILL) > 0,
    "stop server": lambda world, _driver, _stage: world.lose_server(signal.SIGSTOP) > 0,
    # The server dies, and another program listens where it did.
    "port taken": lambda world, _driver, _stage: world.take_port(world.lose_server(signal.SIGKILL)),
    "service away": lambda world, _driver, _stage: world.lose_service(),
    # The driver dies, and the answer to the submission of the next one is lost.
    "answer of the service lost": lambda world, driver, _stage: world.cut_service(driver),
    "clear stage": lambda world, _driver, stage: world.clear([stage]),
    "clear first": lambda world, _driver, _stage: world.clear([FIRST[world.dag]]),
    "clear run": lambda world, _driver, _stage: world.clear([]),
    "mark failed, clear": lambda world, _driver, stage: world.mark_failed_and_clear(stage),
    "pause": lambda world, _driver, _stage: world.pause(),
    "compaction": lambda world, _driver, _stage: world.compact(),
    "prune": lambda world, _driver, _stage: world.prune(),
    "savepoint": lambda world, _driver, _stage: world.savepoint(stops=False),
    "stop with savepoint": lambda world, _driver, _stage: world.savepoint(stops=True),
    "ack deleted": lambda world, _driver, _stage: world.lose_marker("acks"),
    "handover deleted": _handover_deleted,
    "import error": lambda world, _driver, _stage: world.break_dags(),
    "stage added": lambda world, _driver, _stage: world.change_dags({"extra"}),
    "stage removed": lambda world, _driver, _stage: world.change_dags({REMOVED}),
    "stage renamed": lambda world, _driver, _stage: world.change_dags({"renamed"}),
}

BY_THE_RULES = {
    "ack deleted": "was deleted",
    # The run's last stage completes it: Airflow takes the run for deadlocked while the last task restarts (measured).
    "clear run": "is completed: checkpoint",
    "stage removed": "the DAG file no longer has last",
    "stage added": "does not expect this stage: the DAG has changed since it was triggered",
}
"""Faults after which a person may have to clear the run, and what its failed task then says (docs/operations.md)."""
