"""What strikes a round on the real Airflow, and what takes it back."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from scripts.harness.airflow_home import COMPONENTS
from tests.chaos.protocol.outage import outage
from tests.e2e.scenario import kill_task

if TYPE_CHECKING:
    from tests.chaos.rounds.world import World

STAGES = {"fast": ("src", "left", "right", "end"), "wide": ("first", "parts-0", "last"), "overlap": ("one", "two")}
ALL = {**STAGES, "wide": ("first", "parts-0", "parts-1", "last")}
FIRST = {"fast": "src", "wide": "first", "overlap": "one"}


@dataclass(frozen=True)
class Fault:
    """One fault: it comes when the driver of a stage of the round's first run runs."""

    kind: str
    stage: str


@dataclass(frozen=True)
class RoundPlan:
    """What a seed makes of a round."""

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
    dag = dice.choice(list(STAGES))
    stages = dice.sample(STAGES[dag], min(dice.choice((1, 1, 2, 3)), len(STAGES[dag])))
    # In the order in which their drivers run, so that no fault waits for a stage that waits for another's gate.
    ordered = [stage for stage in STAGES[dag] if stage in stages]
    # A stop refuses the run beside it, which then is a person's to clear (semantics P2).
    kinds = [kind for kind in KINDS if dag != "overlap" or kind != "stop with savepoint"]
    return RoundPlan(dag, 2 if dag == "overlap" else 1, tuple(Fault(dice.choice(kinds), each) for each in ordered))


def _kill_driver(world: World, driver: psutil.Process, _: str) -> None:
    driver.send_signal(signal.SIGKILL)


def _stop_driver(world: World, driver: psutil.Process, _: str) -> None:
    world.stop([driver])


def _kill_task(world: World, driver: psutil.Process, _: str) -> None:
    kill_task(driver)


def _stop_task(world: World, driver: psutil.Process, stage: str) -> None:
    """Of the task the process and its supervisor, until their heartbeat is missed."""
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


def _answers_lost(world: World, _driver: psutil.Process, _where: str) -> None:
    world.proxy.rules[:] = [outage("answer lost", 1, 3)]


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


def _import_error(world: World, _driver: psutil.Process, _stage: str) -> None:
    world.change_dags("raise ImportError('a person is editing this file')\n")


Act = Callable[["World", psutil.Process, str], None]

KINDS: dict[str, Act] = {
    "kill driver": _kill_driver,
    "stop driver": _stop_driver,
    "kill task": _kill_task,
    "stop task": _stop_task,
    **{f"kill {name}": _kill(name) for name in COMPONENTS},
    **{f"stop {name}": _stop(name) for name in COMPONENTS},
    "store away": _store_away,
    "answers lost": _answers_lost,
    "clear stage": _clear_stage,
    "clear first": _clear_first,
    "clear run": _clear_run,
    "mark failed, clear": _mark_failed,
    "pause": _pause,
    "savepoint": _savepoint,
    "stop with savepoint": _stop_job,
    "import error": _import_error,
}
