"""The trigger is a letter to another process, and yields one event whatever happens."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.triggers.base import TriggerEvent

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, TriggerRequest
from airflow_cairn.checkpoint.answers import EpochCompleted, Progress, Restarted, Waiting
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.admission import StateOf, StillWaits, Turn, always_running
from airflow_cairn.storage.errors import ForbiddenError, UnavailableError
from airflow_cairn.triggers import CheckpointTrigger
from airflow_cairn.triggers.checkpoint import describe
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job
from tests.support.trigger_events import event_of, payload

RUN = "manual__r1"


def trigger(job: Job, **options: Any) -> CheckpointTrigger:
    return CheckpointTrigger(job.storage, job.name, epoch_name(RUN), **{"poll_interval": 0.01, **options})


def test_it_completes_the_checkpoint(job: Job) -> None:  # semantics C1
    """A task would have to start for it. Listeners are code of the DAG: they are the task's part."""
    _trigger_with_listener(job)
    job.acknowledge(job.begin(RUN))
    found = payload(trigger(job))
    assert found == {"status": "completed", "checkpoint": 1, "reason": None, "detail": "", "kind": None}
    head = job.coordinator.head()
    assert [each.id for each in head.completed] == [1]
    assert [each.listeners for each in head.notices] == [("warehouse",)]


def _trigger_with_listener(job: Job) -> None:
    stages = (StageSpec("routes"),)
    job.coordinator.trigger(TriggerRequest(epoch_name(RUN), Slice(), stages, listeners=("warehouse",)))


def test_one_that_ends_while_it_completes_it_is_looked_at_again(job: Job) -> None:  # semantics D3
    job.trigger(RUN)
    job.acknowledge(job.begin(RUN))
    waiting = trigger(job)
    waiting._coordinator = Slow(job.coordinator)
    found = payload(waiting)
    assert (found["status"], found["detail"]) == ("failed", "somebody was quicker")


class Slow(Coordinator):
    """A coordinator before which somebody else aborts the checkpoint."""

    def __init__(self, real: Coordinator) -> None:
        self._real = real

    @property
    def revision(self) -> int:
        return self._real.revision

    def go_on(self, epoch: str, state_of: StateOf = always_running) -> Progress:
        return self._real.go_on(epoch)

    def complete(self, checkpoint: int) -> EpochCompleted:
        self._real.abort(checkpoint, Reason.JOB_FAILURE, "somebody was quicker")
        return self._real.complete(checkpoint)


def test_completed_by_somebody_else_or_never_triggered(job: Job) -> None:
    found = payload(trigger(job))
    assert (found["status"], found["checkpoint"]) == ("failed", 0)
    assert job.complete(RUN) == 1
    assert payload(trigger(job))["status"] == "completed"


def test_declined(job: Job) -> None:
    job.trigger(RUN)
    job.decline(job.begin(RUN), "AnalysisException: no such column")
    found = payload(trigger(job))
    assert (found["status"], found["checkpoint"], found["reason"]) == ("failed", 1, "CHECKPOINT_DECLINED")
    assert found["detail"] == "routes: AnalysisException: no such column"


def test_what_the_job_puts_up_with_is_taken_up_again(job: Job, said: Said) -> None:  # semantics D5
    job.trigger(RUN, config=CheckpointConfig(timeout=timedelta(milliseconds=1), tolerable_failed_checkpoints=2))
    found = payload(trigger(job))
    assert (found["status"], found["checkpoint"], found["reason"]) == ("failed", 3, "CHECKPOINT_EXPIRED")
    assert [entry.job_failed for entry in job.coordinator.head().history] == [False, False, True]


def test_a_next_attempt_without_a_place_is_waited_for(job: Job, said: Said) -> None:  # semantics D5, T6
    config = CheckpointConfig(tolerable_failed_checkpoints=1)
    job.trigger(RUN, config=config)
    job.decline(job.begin(RUN), "boom")
    job.coordinator.progress(epoch_name(RUN))
    assert job.trigger("manual__r2", config=config) == 2

    async def end_the_other_later() -> TriggerEvent:
        running = asyncio.create_task(event_of(trigger(job)))
        while "The next attempt waits for a free place" not in said.text:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(job.coordinator.abort, 2, Reason.CHECKPOINT_COORDINATOR_SUSPEND, "")
        while "Checkpoint 3 · attempt 2: 0 of 1 stages" not in said.text:
            await asyncio.sleep(0.01)
        handover = await asyncio.to_thread(job.begin, RUN)
        await asyncio.to_thread(job.acknowledge, handover)
        return await running

    event = asyncio.run(asyncio.wait_for(end_the_other_later(), 300))
    assert (event.payload["status"], event.payload["checkpoint"]) == ("completed", 3)


def test_it_waits_and_says_for_whom(job: Job, said: Said) -> None:
    job.trigger(RUN, "clean", "routes")

    async def acknowledge_later() -> TriggerEvent:
        running = asyncio.create_task(event_of(trigger(job)))
        for stage in ("clean", "routes"):
            while f"waiting for {stage}" not in said.text.replace("clean, routes", "clean"):
                await asyncio.sleep(0.01)
            assert not running.done()
            handover = await asyncio.to_thread(job.begin, RUN, stage)
            await asyncio.to_thread(job.acknowledge, handover)
        return await running

    event = asyncio.run(asyncio.wait_for(acknowledge_later(), 300))
    assert event.payload["status"] == "completed"
    assert "Checkpoint 1 · attempt 1: 1 of 2 stages have acknowledged, waiting for routes" in said.text


def test_it_says_who_is_missing() -> None:  # semantics F2, F5
    stages = tuple(f"s{number:02d}" for number in range(40))
    said = describe(Waiting(3, 1, stages[:22], stages[22:]))
    assert "22 of 40 stages have acknowledged, waiting for s22, s23, " in said
    assert said.endswith("s31 and 8 more"), "of many it counts the last"
    waiting = Waiting(3, 2, ("clean",), ("routes",), (), (Restarted("routes", "the try before"),))
    assert describe(waiting).endswith(
        "waiting for routes; not begun again since a failover: routes. If one does not start, clear its task"
    )


class Failing(Coordinator):
    """A coordinator whose store fails; the faults cannot be caused on local files."""

    def __init__(self, real: Coordinator, *faults: Exception) -> None:
        self._real = real
        self._faults = list(faults)

    @property
    def revision(self) -> int:
        return self._real.revision

    def _fail(self) -> Coordinator:
        if self._faults:
            raise self._faults.pop(0)
        return self._real

    def go_on(self, epoch: str, state_of: StateOf = always_running) -> Progress:
        return self._fail().go_on(epoch)

    def still_waits(self, turn: Turn) -> StillWaits | None:
        return self._fail().still_waits(turn)


def test_a_store_that_is_away_is_asked_again(job: Job, said: Said) -> None:
    job.complete(RUN)
    waiting = trigger(job)
    waiting._coordinator = Failing(job.coordinator, *[UnavailableError("the store did not answer")] * 3)
    assert payload(waiting)["status"] == "completed"
    assert said.text.count("The storage cannot be reached, asking again in ") == 3


def test_a_store_that_refuses_for_a_moment_is_asked_anew(job: Job, said: Said) -> None:  # semantics W3
    job.complete(RUN)
    waiting = trigger(job)
    waiting._coordinator = Failing(job.coordinator, ForbiddenError("the store refused", key="head.json"))
    assert payload(waiting)["status"] == "completed", "by a coordinator that has the credentials of now"
    assert said.text.count("Waiting for the store since ") == 1
    assert "with the credentials of boto3's own chain. It said: the store refused [key=`head.json`]" in said.text


def test_a_refusal_long_after_another_is_waited_for_too(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics W3: the store has answered in between."""
    hours = (datetime.fromtimestamp(3600 * hour, UTC) for hour in count())
    monkeypatch.setattr("airflow_cairn.triggers.polling.timezone", SimpleNamespace(utcnow=lambda: next(hours)))
    waiting = trigger(job)

    def refuse(_: Coordinator) -> str:
        raise ForbiddenError("the store refused")

    async def looks() -> list[object]:
        return [await waiting.look(each) for each in (refuse, lambda _: "answered", refuse)]

    assert asyncio.run(looks()) == [None, "answered", None]


def test_a_store_that_goes_on_refusing_ends_the_wait(job: Job, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics W3"""

    def refuse(*_given: object, **_options: object) -> object:
        raise ForbiddenError("the store refused", key="head.json")

    monkeypatch.setattr("airflow_cairn.tasks.job_settings.JobSettings.coordinator", refuse)
    monkeypatch.setattr("airflow_cairn.triggers.polling.LONGEST_S", 0.05)
    found = payload(trigger(job))
    assert (found["status"], found["kind"]) == ("error", "forbidden")
    assert found["detail"] == "the store refused [key=`head.json`]"
    assert said.text.count("Waiting for the store since ") == 1
