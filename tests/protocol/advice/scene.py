"""A run that has failed, and a person who does what its texts say, to the word."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.views.checkpoint_list import newest_of
from airflow_cairn.checkpoint.views.details import CheckpointDetails, details
from airflow_cairn.cli.main import main
from airflow_cairn.hooks import storage
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.storage import ObjectStore, clock, open_store
from airflow_cairn.storage.s3.requests import Refused, explain
from tests.protocol.advice.airflow import GIVEN_UP, Airflow, Run
from tests.protocol.advice.phrases import Act, Step
from tests.support.airflow_stage import DagRun, Job
from tests.support.world.world import Clock
from tests.support.wrapped_stores import WrappedStore

T = TypeVar("T")

DAY = timedelta(days=1)
WAIT = "epoch.wait_for_checkpoint"


@dataclass
class Facts(DagRun):
    """Run with the facts that a source looks at."""

    run_id: str = ""
    logical_date: datetime | None = None
    consumed_asset_events: tuple[object, ...] = ()


@dataclass
class Scene:
    """A job of stages a → b, its runs, and what is wrong."""

    job: Job
    patch: pytest.MonkeyPatch
    clock: Clock = field(default_factory=Clock)
    stages: list[str] = field(default_factory=lambda: ["a", "b"])
    """Stages in the DAG file."""
    apart: bool = False
    """Whether they read nothing from each other."""
    had: tuple[str, ...] = ()
    """Stages in the DAG file before some were removed."""
    options: dict[str, Any] = field(default_factory=lambda: {"reads_window": False})
    """Options of the group."""
    stage_options: dict[str, Any] = field(default_factory=lambda: {"retries": 0})
    drives: dict[str, Callable[[Submit], object]] = field(default_factory=dict)
    """Acts of drivers while the cause is there, by stage; the others acknowledge."""
    slow: dict[str, Callable[[Submit], object]] = field(default_factory=dict)
    """Acts of drivers, as in `drives`, of stages whose time no mend makes shorter."""
    mend: Callable[[], object] = lambda: None
    """Takes the cause away."""
    broken: bool = True
    """Whether the cause is there."""
    beside: Callable[[], object] = lambda: None
    """Makes tasks of the DAG that are in no group."""
    refuses: Callable[[str, str], bool] = lambda _verb, _key: False
    """Whether the store refuses Airflow's tasks a request, while the cause is there."""

    def __post_init__(self) -> None:
        self.patch.setenv("CAIRN_STORAGE", self.job.storage)
        now = {**vars(time), "time_ns": lambda: self.clock() * 1_000_000}
        self.patch.setattr(clock, "time", SimpleNamespace(**now))
        self.patch.setattr(storage, "open_store", lambda *at, **how: Refusing(open_store(at[0]), self))
        self.airflow = Airflow(self.job, self._write, Facts)
        self.airflow.driver = self._drive

    def open(self) -> Airflow:
        """Parse the DAG file; from here on runs may start."""
        self.airflow.parse()
        return self.airflow

    def start(self, run_id: str, day: int | None = None, days: int = 1) -> Run:
        """Start a run that reads days of January 2026, or a manual one without an interval."""
        if day is None:
            return self.airflow.start(run_id, Facts(run_id=run_id))
        begin = datetime(2026, 1, day, tzinfo=UTC)
        return self.airflow.start(run_id, Facts(begin, begin + days * DAY, run_id=run_id))

    def _write(self) -> DAG:
        options = {"storage": self.job.storage, **self.options}
        with DAG("flights", schedule=None) as dag:
            with CheckpointedTaskGroup("epoch", **options):
                before = None
                for uid in self.stages:
                    task = SparkEpochOperator(task_id=uid, application="x.py", **self.stage_options)
                    if before is not None and not self.apart:
                        before >> task
                    before = task
            self.beside()
        return dag

    def _drive(self, answer: Submit) -> None:
        stage = answer.handover.stage
        self.drives.get(stage, self.slow.get(stage, self.airflow.acknowledge))(answer)

    def _shown(self, run: Run) -> CheckpointDetails | None:
        coordinator = self.job.coordinator
        newest = newest_of(coordinator.head(), epoch_name(run.run_id), after=0)
        return None if newest is None else details(coordinator, newest)

    def texts(self, run: Run) -> dict[str, str]:
        """Give all that a person can read of a run, by where it stands."""
        found: dict[str, str] = {}
        for task_id, each in run.instances.items():
            if each.state in GIVEN_UP:
                found |= {f"the error of {task_id}": each.error, f"the callback of {task_id}": each.told}
            elif each.put_off:
                found[f"the log of {task_id}"] = each.told
        shown = self._shown(run)
        found["the run's note"] = run.note
        found["cairn show"] = shown.next_step(self.job.storage) if shown is not None else ""
        return {where: text for where, text in found.items() if text}

    def healed(self, run: Run) -> bool:
        """Tell whether nothing is left to do for a run: its epoch has completed, or was read, and no task has failed.

        A person may have marked it, too.
        """
        return run.state == "success" or run.marked

    def follow(self, run: Run, where: str, steps: list[Step]) -> bool:
        """Do what a text says; tell whether all of it could be done, and more than a look: a stage may be removed."""
        done = [self._do(run, where, step) for step in steps]
        done.append(any(step.act not in (Act.LOOK, Act.NOTHING) for step in steps))
        for each in list(self.airflow.runs.values()):
            self.airflow.play(each)
        return all(done)

    def _do(self, run: Run, where: str, step: Step) -> bool:
        airflow, shown = self.airflow, self._shown(run)
        of_stages = [run.instances[f"epoch.{uid}"] for uid in self.stages]
        match step.act:
            case Act.LOOK:
                self._type(step, harmless=True)
            case Act.TYPE:
                self._type(step)
            case Act.TYPE_IF_STOPPED:
                if self.job.coordinator.head().stopped is not None:
                    self._type(step)
            case Act.MEND:
                self.drives.clear()
                self.broken = False
                self.mend()
                airflow.parse()
            case Act.RAISE_TIMEOUT:
                self.options["config"] = replace(self.options.get("config", CheckpointConfig()), timeout=DAY)
                airflow.parse()
            case Act.PUT_BACK:
                self.stages = list(self.had)
                airflow.parse()
            case Act.CLEAR_TASKS:
                return airflow.clear(run, step.tasks)
            case Act.CLEAR_THIS:
                return airflow.clear(run, [where.rpartition(" ")[2]])
            case Act.CLEAR_STAGE:
                assert shown is not None and shown.failed_stages, "`cairn show` names no stage"
                return airflow.clear(run, [f"epoch.{uid}" for uid in shown.failed_stages])
            case Act.CLEAR_LATE:
                assert shown is not None
                late = [f"epoch.{each.stage}" for each in shown.stages if not each.acknowledged]
                airflow.clear(run, late if airflow.has(late) else ())
            case Act.CLEAR_TRIGGER_IF_REMOVED:
                assert shown is not None
                if not airflow.has(f"epoch.{each.stage}" for each in shown.stages):
                    airflow.clear(run, [f"epoch.{self.stages[0]}"])
            case Act.CLEAR_FAILED:
                airflow.clear(run, [each for each, found in run.instances.items() if found.state in GIVEN_UP])
            case Act.CLEAR_TRIGGER:
                airflow.clear(run, [f"epoch.{self.stages[0]}"])
            case Act.CLEAR_RUN:
                airflow.clear(run, airflow.dag.task_ids)
            case Act.CLEAR_RUN_IF_NONE_FAILED:
                if all(each.state != "failed" for each in of_stages):
                    airflow.clear(run, airflow.dag.task_ids)
            case Act.LEAVE:
                run.marked = True
            case Act.TRIGGER_REST | Act.TRIGGER_AGAIN:
                before = set(airflow.runs)
                self._type(step)
                (made,) = (airflow.runs[each] for each in airflow.runs.keys() - before)
                airflow.play(made)
                run.marked = self.healed(made)
            case Act.BACKFILL:
                first, last = (datetime.fromisoformat(each) for each in step.dates.split(" --to-date "))
                for days in range((last - first).days + 1):
                    assert self.healed(self.start(f"backfill {days}", day=first.day + days))
            case Act.UNPAUSE:
                airflow.paused = False
            case Act.MARK:
                airflow.mark(run)
            case _:
                assert step.act is Act.NOTHING, f"this run does not call for it: {step}"
        return True

    def _type(self, step: Step, *, harmless: bool = False) -> None:
        """Type a command; one that looks may find damage, and is left with Ctrl-C where it goes on looking."""
        words = [each for each in shlex.split(step.command)[1:] if each != "--watch"]
        assert main(words) in ((0, 1) if harmless else (0,)), step


class Refusing(WrappedStore):
    """A store that refuses what a test says, in S3's words.

    Args:
        inner: the store.
        scene: says what.
    """

    def __init__(self, inner: ObjectStore, scene: Scene) -> None:
        super().__init__(inner)
        self._scene = scene

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if self._scene.broken and self._scene.refuses(verb, key):
            doing = {"create": "put_object", "replace": "put_object", "list": "list_objects_v2"}.get(verb, "get_object")
            refused = Refused(403, "AccessDenied", "Access Denied")
            raise explain(refused, store="s3://lake/cairn", doing=doing, key=key)
        return call()

    _write = _read


def without_numbers(text: str) -> str:
    """Give a text as it is of any checkpoint: one with another number says nothing new."""
    return re.sub(r"\d+", "N", text)
