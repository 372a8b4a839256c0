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


def _kill_driver(world: World, driver: psutil.Process, _: str) -> None:
    kill_driver(driver)


def _stop_driver(world: World, driver: psutil.Process, _: str) -> None:
    world.stop([driver])


def _kill_task(world: World, driver: psutil.Process, _: str) -> None:
    kill_task(driver)


def _stop_task(world: World, driver: psutil.Process, stage: str) -> None:
    """Stop the task's process and its supervisor, until their heartbeat is missed."""
    above = [process for process in driver.parents() if "airflow" in " ".join(process.cmdline())]
    world.stop(above[:2], stage=stage)


def _kill(component: str) -> Act:
    def act(world: World, _driver: psutil.Process, _where: str) -> None:
        world.kill_component(component)

    return act


def _stop(component: str) -> Act:
    def act(world: World, _driver: psutil.Process, _where: str) -> None:
        world.stop(world.component(component))

    return act


def _store_away(world: World, _driver: psutil.Process, _where: str) -> None:
    world.proxy.rules[:] = [outage("cut", 1, 60)]


def _store_refuses(world: World, _driver: psutil.Process, _where: str) -> None:
    world.refuse()


def _answers_lost(world: World, _driver: psutil.Process, _where: str) -> None:
    world.proxy.rules[:] = [outage("answer lost", 1, 3)]


def _kill_server(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.lose_server(signal.SIGKILL)


def _stop_server(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.lose_server(signal.SIGSTOP)


def _port_taken(world: World, _driver: psutil.Process, _stage: str) -> None:
    """The server dies, and another program listens where it did."""
    world.take_port(world.lose_server(signal.SIGKILL))


def _service_away(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.lose_service()


def _service_cut(world: World, driver: psutil.Process, _stage: str) -> None:
    """The driver dies, and the answer to the submission of the next one is lost."""
    world.cut_service(driver)


def _compaction(world: World, _driver: psutil.Process, _stage: str) -> bool:
    return world.compact()


def _prune(world: World, _driver: psutil.Process, _stage: str) -> bool:
    return world.prune()


def _clear_stage(world: World, _driver: psutil.Process, stage: str) -> None:
    world.clear([stage])


def _clear_first(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.clear([FIRST[world.dag]])


def _clear_run(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.clear([])


def _mark_failed(world: World, _driver: psutil.Process, stage: str) -> None:
    world.mark_failed_and_clear(stage)


def _pause(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.pause()


def _savepoint(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.savepoint(stops=False)


def _stop_job(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.savepoint(stops=True)


def _ack_deleted(world: World, _driver: psutil.Process, _stage: str) -> bool:
    return world.lose_marker("acks")


def _handover_deleted(world: World, driver: psutil.Process, _stage: str) -> bool:
    """Delete the handover of some stage, and then kill a driver: the region has to run again without it."""
    found = world.lose_marker("handover")
    kill_driver(driver)
    return found


def _import_error(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.break_dags()


def _stage_added(world: World, _driver: psutil.Process, _stage: str) -> bool:
    return world.change_dags({"extra"})


def _stage_removed(world: World, _driver: psutil.Process, _stage: str) -> bool:
    return world.change_dags({REMOVED})


def _stage_renamed(world: World, _driver: psutil.Process, _stage: str) -> bool:
    return world.change_dags({"renamed"})


Act = Callable[["World", psutil.Process, str], bool | None]
"""Lets a fault come; False if there was nothing that it could meet."""

KINDS: dict[str, Act] = {
    "kill driver": _kill_driver,
    "stop driver": _stop_driver,
    "kill task": _kill_task,
    "stop task": _stop_task,
    **{f"kill {name}": _kill(name) for name in COMPONENTS},
    **{f"stop {name}": _stop(name) for name in COMPONENTS},
    "store away": _store_away,
    "store refuses": _store_refuses,
    "answers lost": _answers_lost,
    "kill server": _kill_server,
    "stop server": _stop_server,
    "port taken": _port_taken,
    "service away": _service_away,
    "answer of the service lost": _service_cut,
    "clear stage": _clear_stage,
    "clear first": _clear_first,
    "clear run": _clear_run,
    "mark failed, clear": _mark_failed,
    "pause": _pause,
    "compaction": _compaction,
    "prune": _prune,
    "savepoint": _savepoint,
    "stop with savepoint": _stop_job,
    "ack deleted": _ack_deleted,
    "handover deleted": _handover_deleted,
    "import error": _import_error,
    "stage added": _stage_added,
    "stage removed": _stage_removed,
    "stage renamed": _stage_renamed,
}

BY_THE_RULES = {
    "ack deleted": "was deleted",
    # The run's last stage completes it: Airflow takes the run for deadlocked while the last task restarts (measured).
    "clear run": "is completed: checkpoint",
    "stage removed": "the DAG file no longer has last",
    "stage added": "does not expect this stage: the DAG has changed since it was triggered",
}
"""Faults after which a person may have to clear the run, and what its failed task then says (docs/operations.md)."""
