"""A small Airflow: it runs the real operators of a DAG, and keeps what the scheduler and the API server would.

One task at a time, in the order of the DAG: states, tries, ids, trigger rules, retry policies, callbacks, clears and
notes are as Airflow's. Drivers are what a test says they do.
"""

from __future__ import annotations

import itertools
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from airflow.sdk import DAG, TriggerRule
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowRuntimeError,
    AirflowSensorTimeout,
    AirflowSkipException,
    ErrorType,
    TaskDeferred,
)
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.xcom import XCom

from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.operators import SparkEpochOperator
from tests.protocol.advice.phrases import steps
from tests.support.airflow_stage import DagRun, Job, Ti
from tests.support.api_stand_in import Answer, ApiStandIn, Asked

MAX_TRIES = 200
"""Tries of one run between two acts of a person; more of them go round in circles."""
LOOKS = 3
"""A task that puts itself off so often in a row, while nothing else happens, waits for something outside of its run."""

GIVEN_UP = frozenset({"failed", "upstream_failed"})
ENDED = GIVEN_UP | {"success", "skipped", "removed"}

_ids = itertools.count(1)


def new_id() -> uuid.UUID:
    """Give the id of a try."""
    return uuid.UUID(int=next(_ids))


Driver = Callable[[Submit], None]


class Killed(BaseException):
    """The task's process was killed: nothing of it says anything."""


@dataclass
class Instance:
    """A task instance."""

    task_id: str
    state: str | None = None
    tries: int = 0
    max_tries: int = 0
    id: uuid.UUID = field(default_factory=new_id)
    put_off: int = 0
    """Number of times that its try has put itself off."""
    woken: TaskDeferred | None = None
    error: str = ""
    """Error of its last try."""
    told: str = ""
    """Log of the callback of its last failed try; of a try that waits, the last line that it has logged."""


@dataclass
class Run:
    """A DAG run."""

    run_id: str
    facts: DagRun
    instances: dict[str, Instance]
    note: str = ""
    marked: bool = False
    """Whether a person has marked it."""

    @property
    def state(self) -> str:
        """State of the run, as Airflow has it."""
        states = {each.state for each in self.instances.values()}
        if states - ENDED:
            return "running"
        return "failed" if states & GIVEN_UP else "success"


class _Ti(Ti):
    """A try, which asks the small Airflow."""

    airflow: Airflow

    def get_task_states(self, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        (run_id,) = run_ids
        found = self.airflow.runs[run_id].instances
        return {run_id: {task_id: found[task_id].state for task_id in task_ids if task_id in found}}

    def get_dag(self, dag_id: str) -> SimpleNamespace:
        return SimpleNamespace(is_paused=self.airflow.paused)

    def get_dagrun_state(self, dag_id: str, run_id: str) -> str:
        if run_id not in self.airflow.runs:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={"status_code": 404}))
        return self.airflow.runs[run_id].state


class Airflow:
    """One DAG and its runs.

    Args:
        job: where the DAG's job lies.
        write: makes the DAG, as the file has it now.
        facts: makes those of a run that is asked for by the API.
    """

    def __init__(self, job: Job, write: Callable[[], DAG], facts: Callable[..., DagRun]) -> None:
        self.job = job
        self.write = write
        self.facts = facts
        self.dag = write()
        self.runs: dict[str, Run] = {}
        self.paused = False
        self.driver: Driver = self.acknowledge

    def acknowledge(self, answer: Submit) -> None:
        """Do what a driver does that has nothing to complain about."""
        replace(self.job, name=answer.handover.job).acknowledge(answer.handover)

    @contextmanager
    def serve(self, patch: pytest.MonkeyPatch, connections: Callable[[str, str], None]) -> Iterator[None]:
        """Let tasks reach the API server, and drivers be what the test says."""

        def submit(operator: Any, _context: Any, _drivers: Any, _settings: Any, answer: Submit, _run: Any) -> None:
            del operator
            self.driver(answer)

        patch.setattr(SparkEpochOperator, "_submit", submit)
        patch.setattr(XCom, "set", lambda *_args, **_more: None)
        with ApiStandIn(self._answer) as api:
            at = json.dumps({"conn_type": "http", "host": api.url, "password": "ready-made-7431"})
            connections("cairn_airflow_api", at)
            patch.setenv("CAIRN_AIRFLOW_URL", api.url)
            patch.setenv("CAIRN_AIRFLOW_TOKEN", "ready-made-7431")
            yield

    def parse(self) -> None:
        """Read the DAG file anew; a task that it has no more is removed, and a new one is added to runs that go on."""
        self.dag = self.write()
        for run in self.runs.values():
            for task_id, instance in run.instances.items():
                if not self.dag.has_task(task_id):
                    instance.state = "removed"
                elif instance.state == "removed":
                    instance.state = None
            run.instances |= {each: self._instance(each) for each in self.dag.task_ids if each not in run.instances}

    def start(self, run_id: str, facts: DagRun | None = None) -> Run:
        """Make a run, and bring it as far as it goes."""
        made = self._add(run_id, facts or DagRun())
        self.play(made)
        return made

    def _add(self, run_id: str, facts: DagRun) -> Run:
        self.runs[run_id] = Run(run_id, facts, {each: self._instance(each) for each in self.dag.task_ids})
        return self.runs[run_id]

    def play(self, run: Run, *, queued: bool = False) -> None:
        """Bring a run as far as it goes: to its end, or until it waits for something outside of it.

        Args:
            run: the run.
            queued: its next task was queued before the DAG was paused, so it begins.
        """
        looks = 0
        for _ in range(MAX_TRIES):
            due = [each for each in self._ordered(run) if self._is_due(run, each)]
            if not due or (self.paused and not queued) or looks > LOOKS * len(due):
                return
            queued = False
            instance = min(due, key=lambda each: each.put_off)
            before = instance.put_off
            self._try(run, instance)
            looks = looks + 1 if instance.put_off > before else 0
        raise AssertionError(f"{run.run_id} does not come to its end: {run.instances}")

    def clear(self, run: Run, task_ids: Iterable[str]) -> bool:
        """Clear tasks with Downstream, as a person does on the page; tell whether the DAG file has them all."""
        wanted = set(task_ids)
        there = {each for each in wanted if self.dag.has_task(each)}
        below = [self.dag.get_task(each).get_flat_relative_ids(upstream=False) for each in there]
        for each in there.union(*below) & run.instances.keys():
            self._clear(run.instances[each])
        return there == wanted

    def has(self, task_ids: Iterable[str]) -> bool:
        """Tell whether the DAG file has these tasks."""
        return all(self.dag.has_task(each) for each in task_ids)

    def mark(self, run: Run) -> None:
        """Mark a run, so that it ends as it is."""
        for each in run.instances.values():
            each.state = each.state if each.state in ENDED else "failed"
        run.marked = True

    def _instance(self, task_id: str) -> Instance:
        return Instance(task_id, max_tries=self.dag.get_task(task_id).retries or 0)

    def _clear(self, instance: Instance) -> None:
        if not self.dag.has_task(instance.task_id):
            return
        instance.state, instance.put_off, instance.woken, instance.error, instance.told = None, 0, None, "", ""
        instance.id = new_id()
        instance.max_tries = instance.tries + (self.dag.get_task(instance.task_id).retries or 0)

    def _ordered(self, run: Run) -> list[Instance]:
        order = [task.task_id for task in self.dag.topological_sort()]
        return [run.instances[each] for each in order if run.instances[each].state not in ENDED]

    def _is_due(self, run: Run, instance: Instance) -> bool:
        task = self.dag.get_task(instance.task_id)
        before = [run.instances[each].state for each in task.upstream_task_ids]
        if any(state not in ENDED for state in before):
            return False
        if GIVEN_UP & set(before):
            instance.state = "upstream_failed"
        elif "skipped" in before and task.trigger_rule == TriggerRule.ALL_SUCCESS:
            instance.state = "skipped"
        elif task.inherits_from_empty_operator:
            instance.state = "success"
        return instance.state not in ENDED

    def _try(self, run: Run, instance: Instance) -> None:
        task: Any = self.dag.get_task(instance.task_id).prepare_for_execution()
        came_back = instance.state in ("up_for_reschedule", "deferred")
        if not came_back:
            instance.tries, instance.put_off = instance.tries + 1, 0
        ti = _Ti("flights", run.run_id, task.task_id, -1, instance.tries, max_tries=instance.max_tries, id=instance.id)
        ti.airflow = self
        instance.state = "running"
        at = {
            "ti": ti,
            "dag_run": run.facts,
            "run_id": run.run_id,
            "task": task,
            "task_reschedule_count": instance.put_off,
        }
        with _listening() as told:
            self._run(task, instance, at)
        if instance.state in ("up_for_reschedule", "deferred"):
            asking = [each for each in told if steps(each)]
            instance.put_off, instance.told = instance.put_off + 1, "\n".join(asking or told[-1:])

    def _run(self, task: Any, instance: Instance, at: dict[str, Any]) -> None:
        try:
            if instance.woken is not None:
                woken, instance.woken = instance.woken, None
                event = {"status": "ready", "checkpoint": 0, "reason": None, "detail": "it looks again", "kind": None}
                getattr(task, woken.method_name)(at, event, **(woken.kwargs or {}))
            else:
                task.render_template_fields(at)
                task.execute(at)
            instance.state = "success"
        except AirflowSkipException:
            instance.state = "skipped"
        except AirflowRescheduleException:
            instance.state = "up_for_reschedule"
        except TaskDeferred as deferred:
            instance.state, instance.woken = "deferred", deferred
        except (Exception, Killed) as error:  # noqa: BLE001 - whatever fails a task
            self._failed(at, instance, error)

    def _failed(self, at: dict[str, Any], instance: Instance, error: BaseException) -> None:
        task, final = at["task"], isinstance(error, AirflowFailException | AirflowSensorTimeout)
        at = at if isinstance(error, Killed) else {**at, "exception": error}
        instance.error = "" if isinstance(error, Killed) else str(error)
        policy = task.retry_policy
        if policy is not None and not final and not isinstance(error, Killed):
            decision = policy.evaluate(error, instance.tries, instance.max_tries, at)
            final = decision.action is RetryAction.FAIL
            if final and decision.reason:
                instance.error = f"{instance.error}. {decision.reason}"
        final = final or instance.tries > instance.max_tries
        if instance.state is None:
            return  # cleared while it ran
        instance.state = "failed" if final else "up_for_retry"
        callbacks = task.on_failure_callback if final else task.on_retry_callback
        with _listening() as told:
            for callback in callbacks or ():
                callback(at)
        instance.told = "\n".join(told)
        if not final:
            instance.id = new_id()

    def _asked_for(self, body: dict[str, Any]) -> Run:
        logical_date, *ends = (
            datetime.fromisoformat(body[each]) for each in ("logical_date", "data_interval_start", "data_interval_end")
        )
        taken = {each.facts.data_interval_start for each in self.runs.values()}
        assert logical_date not in taken, "Airflow has one run of a logical date"
        return self._add(body["dag_run_id"], self.facts(*ends, conf=body.get("conf"), run_id=body["dag_run_id"]))

    def _answer(self, asked: Asked) -> Answer:
        path, _, task_id = unquote(asked.path.partition("?")[0]).partition("/taskInstances/")
        if path.endswith("/dags/flights"):
            return 200, {"is_paused": self.paused}
        if path.endswith("/dagRuns"):
            return 200, {"dag_run_id": self._asked_for(asked.body).run_id}
        if asked.method == "POST":
            run = self.runs[asked.body["dag_run_id"]]
            for each in asked.body["task_ids"]:
                self._clear(run.instances[each])
            return 200, {"task_instances": []}
        run = self.runs[path.partition("/dagRuns/")[2]]
        if asked.method == "PATCH":
            if not task_id:
                run.note = asked.body["note"]
            return 200, {}
        if not task_id:
            return 200, {"state": run.state, "note": run.note}
        if task_id not in run.instances:
            return 404, {"detail": "not found"}
        found = run.instances[task_id]
        return 200, {"id": str(found.id), "state": found.state, "note": ""}


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect Cairn's log lines inside the block."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("airflow_cairn")
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield said
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
