"""`DriverTrigger`: waits in the triggerer until the driver of a stage has ended, without a worker slot."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from airflow.sdk import TaskInstanceState
from airflow.sdk.execution_time.xcom import XCom
from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..hooks import task_refs
from ..hooks.task_refs import TaskRef
from ..launchers.launcher import DriverState, Launcher, launcher_at
from ..spark.execution.failure_kinds import error_line
from ..spark.execution.log_lines import Application
from ..storage.clock import system_time
from ..tasks.reports.links import SparkLink, SparkPlace
from .polling import pause_after

log = logging.getLogger("airflow_cairn")

ENDED, UNANSWERED, TIMEOUT = "ended", "unanswered", "timeout"
"""Why a wait has ended."""

LOOK_S = 5.0
"""Minimum pause between two looks."""
LONGEST_PAUSE_S = 60.0
UNANSWERED_S = 180.0
"""Seconds without an answer after which the task itself looks."""
ANSWER_S = 60.0
"""Seconds without any answer after which a service counts as silent."""


class DriverTrigger(BaseTrigger):
    """Looks at one driver until it has ended, and yields exactly one event. It has no state and no credentials.

    The pause between two looks grows to a tenth of the time in the driver's present state, from 5 s to 60 s. The
    triggers of one process that ask one service share a request where the service lists its drivers.

    Args:
        operator: dotted path of the provider's operator.
        fields: its fields by which the service is asked: ids of connections, and where its drivers are.
        driver: the service's id of the driver.
        deadline: seconds since 1970 at which the task's `execution_timeout` is over; None: it has none.
    """

    def __init__(self, operator: str, fields: dict[str, Any], driver: str, deadline: float | None = None) -> None:
        super().__init__()
        self.operator = operator
        self.fields = fields
        self.driver = driver
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the arguments with which another triggerer goes on."""
        return "airflow_cairn.triggers.driver.DriverTrigger", {
            "operator": self.operator,
            "fields": self.fields,
            "driver": self.driver,
            "deadline": self.deadline,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; yields one event: `status`, and for a driver that has ended its `word` and whether it `succeeded`."""
        now = asyncio.get_running_loop().time
        service = _service(self)
        watch = service.watch(self.driver)
        changed_at = answered_at = now()
        seen = link = ""
        looked = False  # a triggerer may come back after the deadline, and the driver have ended before it
        while True:
            pause = pause_after(now() - changed_at, LOOK_S, LONGEST_PAUSE_S)
            left = pause if self.deadline is None else self.deadline - system_time()
            if left <= 0 and looked:
                yield TriggerEvent({"status": TIMEOUT})
                return
            answer, looked = await service.look(watch, max(0, min(pause, left)), self.make), True
            if answer is None:
                answered_at = now()
                continue
            if isinstance(answer, Exception):
                log.warning("Driver %s: no answer about its state: %s", self.driver, error_line(answer))
                if now() - answered_at >= UNANSWERED_S:
                    yield TriggerEvent({"status": UNANSWERED})
                    return
                continue
            answered_at = now()
            if not answer.lives:
                yield TriggerEvent({"status": ENDED, "word": answer.word, "succeeded": answer.succeeded})
                return
            if answer.word != seen:
                seen, changed_at = answer.word, now()
                log.info("Driver %s is %s", self.driver, seen)
            if answer.link not in ("", link):
                link = answer.link
                await asyncio.to_thread(self._show, link)

    async def on_kill(self) -> None:
        """End the driver if its task is over: a person has marked it, or its DAG run has ended or was deleted."""
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        """End the driver, unless a try of the task goes on.

        Airflow calls `on_kill` also where another triggerer goes on with the trigger, or has yielded its event. And
        after a clear, the next try ends the driver itself, once it has an attempt of its own (semantics F3, F5).
        """
        # Only the triggerer has this module.
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance as Airflow

        ti: Any = self.task_instance
        try:
            found = Airflow.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])
            state = found.get(ti.run_id, {}).get(TaskRef.of(ti).name_in_states, TaskInstanceState.REMOVED.value)
            if state not in task_refs.ENDED:
                log.info("Driver %s goes on: its task is %s", self.driver, state or "cleared")
                return
            launcher = self.make()
            if launcher.state(self.driver).lives:
                launcher.cancel(self.driver)
                log.info("Driver %s is asked to end: its task is %s", self.driver, state)
        except Exception as error:  # noqa: BLE001 - the trigger ends anyway, and the driver at its next look at the head
            log.warning("Driver %s could not be ended: %s", self.driver, error_line(error))

    def make(self) -> Launcher:
        """Return the launcher; imports the provider."""
        return launcher_at(self.operator, self.fields)

    def _show(self, link: str) -> None:
        """Link the task's page to the application."""
        ti: Any = self.task_instance
        address = SparkPlace(Application(self.driver, ui=link), "").now()
        if not address or ti is None:
            return
        map_index = TaskRef.of(ti).map_index
        where = {"dag_id": ti.dag_id, "task_id": ti.task_id, "run_id": ti.run_id, "map_index": map_index}
        try:
            XCom.set(SparkLink().xcom_key, address, **where)
        except Exception as error:  # noqa: BLE001 - the link is only for people
            log.warning("No link to Spark while the application runs: %s", error)


class _Watch:
    """One trigger's view of its driver."""

    def __init__(self, driver: str) -> None:
        self.driver = driver
        self.pause_s = LOOK_S
        self.asked_at = asyncio.get_running_loop().time()
        self.answered = asyncio.Event()
        self.answer: DriverState | Exception | None = None


class _Service:
    """The triggers of one process that ask one service. All of them live in the triggerer's event loop.

    The trigger whose pause is over first asks for all whose pause is half over, and those wake. One question runs at a
    time, in a thread of the service's own: a service that never answers keeps that one, and none of the triggerer's.
    """

    def __init__(self) -> None:
        self._watches: WeakSet[_Watch] = WeakSet()
        self._asking = asyncio.Lock()
        self._launcher: Launcher | None = None
        self._thread = ThreadPoolExecutor(1, "airflow-cairn-driver")
        self._question: Future[None] | None = None
        self._answers: dict[str, DriverState | Exception] = {}

    def watch(self, driver: str) -> _Watch:
        """Begin to look at a driver, as long as the result is referred to."""
        watch = _Watch(driver)
        self._watches.add(watch)
        return watch

    async def look(self, watch: _Watch, seconds: float, make: Callable[[], Launcher]) -> DriverState | Exception | None:
        """Wait the given seconds, or until another trigger asks.

        Returns:
            The driver's state, or why none came; None while the service answers about other drivers.
        """
        watch.pause_s = seconds
        with suppress(TimeoutError):
            await asyncio.wait_for(watch.answered.wait(), seconds)
        async with self._asking:
            if watch.answer is None:
                await self._ask(watch, make)
        answer, watch.answer = watch.answer, None
        watch.answered.clear()
        return answer

    async def _ask(self, first: _Watch, make: Callable[[], Launcher]) -> None:
        now = asyncio.get_running_loop().time()
        due = [each for each in self._watches if each is first or now - each.asked_at >= each.pause_s / 2]
        if self._question is None or self._question.done():
            oldest = sorted(due, key=lambda each: each.asked_at)
            drivers = list(dict.fromkeys(each.driver for each in oldest))
            self._question = self._thread.submit(copy_context().run, self._states, drivers, make)
        await asyncio.wait([asyncio.wrap_future(self._question)], timeout=ANSWER_S)
        came = {driver: self._answers.pop(driver) for driver in list(self._answers)}
        if not came:
            silent = TimeoutError(f"the service has not answered for {ANSWER_S:g} s")
            came = {each.driver: silent for each in due}
        if any(isinstance(each, Exception) for each in came.values()):
            self._launcher = None  # the next one takes the connection as it is then
        for each in self._watches:
            if each.driver in came:
                each.answer, each.asked_at = came[each.driver], now
                each.answered.set()

    def _states(self, drivers: list[str], make: Callable[[], Launcher]) -> None:
        # Runs outside the event loop: providers' hooks block.
        try:
            launcher = self._launcher = self._launcher or make()
            for driver, answer in launcher.states(drivers):
                self._answers[driver] = answer
        except Exception as error:  # noqa: BLE001 - each trigger counts and reports it
            self._answers.update(dict.fromkeys(drivers, error))


_services: WeakValueDictionary[str, _Service] = WeakValueDictionary()


def _service(trigger: DriverTrigger) -> _Service:
    """Return the `_Service` of all triggers that ask the same service by the same connection."""
    same = json.dumps([trigger.operator, trigger.fields], sort_keys=True)
    return _services.setdefault(same, _Service())
