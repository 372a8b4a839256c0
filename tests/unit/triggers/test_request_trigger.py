"""Waiting runs: woken as soon as asking helps, by one event of the trigger, whatever happens (semantics T2, T3)."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType, TaskDeferred
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import TriggerEvent

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.admission import StillWaits
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.operators import StageSpec, TriggerCheckpointOperator
from airflow_cairn.storage import open_store
from airflow_cairn.storage.clock import system_runtime
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.triggers import RequestTrigger
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import DagRun, Job, Ti, context
from tests.support.narrowing import expect
from tests.support.shut_down import shut_down
from tests.support.skipping_loop import SkippingLoop
from tests.support.trigger_events import event_of
from tests.unit.triggers.test_checkpoint_trigger import Failing

IN_LINE = "place 1 in the queue"


def waiting(job: Job, run_id: str = "r2", *, run_type: str = "manual", **options: Any) -> RequestTrigger:
    """Let a run ask for a checkpoint and be told to wait; gives its trigger, which looks often."""
    task = TriggerCheckpointOperator(
        task_id="trigger",
        reads_window=False,
        storage=job.storage,
        job=job.name,
        stages=[StageSpec("routes")],
        **{"poll_interval": 0.01, "recheck_interval": timedelta(hours=1), **options},
    )
    running = dict.fromkeys(("r1", "r2", "r3"), "running")
    with pytest.raises(TaskDeferred) as caught:
        task.execute(context(Ti(run_id=run_id, states=dict(running)), dag_run=DagRun(run_type=run_type)))
    return expect(RequestTrigger, caught.value.trigger)


def payload(trigger: RequestTrigger, said: Said | None = None, then: Callable[[], object] | None = None) -> Any:
    """Run it to its end; gives the payload of its one event.

    Args:
        trigger: waits.
        said: what was logged.
        then: what happens once the trigger has said that it waits; without it the end comes by itself.
    """

    async def run() -> TriggerEvent:
        running = asyncio.create_task(event_of(trigger))
        if then is not None:
            assert said is not None
            while "(ALREADY_QUEUED)" not in said.text and "(TOO_MANY_CHECKPOINT_REQUESTS)" not in said.text:
                await asyncio.sleep(0.01)
            assert not running.done()
            await asyncio.to_thread(then)
        return await running

    return asyncio.run(asyncio.wait_for(run(), 300)).payload


def test_the_interval_of_its_questions_is_positive() -> None:
    with pytest.raises(InvalidConfigError, match="recheck_interval must be above 0 seconds"):
        RequestTrigger("s3://lake", "flights", "r2", "manual", 1, 0, recheck_interval=0)


def complete(job: Job) -> None:
    job.acknowledge(job.begin("r1"))
    job.coordinator.complete(1)


@pytest.mark.parametrize(
    "then",
    [
        complete,
        lambda job: job.coordinator.abort(1, Reason.CHECKPOINT_DECLINED, "boom"),
        lambda job: job.coordinator.pause(),
        lambda job: shut_down(job.coordinator),
    ],
    ids=["completed", "aborted", "dropped from the line", "declined from now on"],
)
def test_it_wakes_the_task_once_asking_helps(job: Job, said: Said, then: Callable[[Job], object]) -> None:
    job.trigger("r1")  # semantics T2
    found = payload(waiting(job), said, lambda: then(job))
    assert found == {"status": "ask", "detail": "the request would be answered otherwise now", "kind": None}
    assert "This run is at place 1 of the queue (ALREADY_QUEUED)" in said.text


def at(job: Job, *moments_ms: int) -> tuple[Coordinator, list[float]]:
    """Give a coordinator whose clock shows one moment after the other, and when it was looked at."""
    left, looks = list(moments_ms), list[float]()

    def now_ms() -> int:
        looks.append(time.monotonic())
        return left.pop(0) if len(left) > 1 else left[0]

    return Coordinator(open_store(job.storage), job.name, replace(system_runtime(), now_ms=now_ms)), looks


def test_what_expires_wakes_it_though_nobody_has_settled_it(job: Job) -> None:  # semantics D2, T2
    job.trigger("r1")
    (pending,) = job.coordinator.head().pending
    trigger = waiting(job)
    trigger._coordinator, looks = at(job, pending.expires_at_ms - 1, pending.expires_at_ms)
    assert payload(trigger)["status"] == "ask"
    assert len(looks) == 2
    assert len(job.coordinator.head().pending) == 1, "the trigger only looks"


def test_the_epoch_of_another_try_is_answered(job: Job) -> None:  # semantics T9
    job.trigger("r1")
    trigger = waiting(job)
    job.trigger("r2", config=CheckpointConfig(max_concurrent_checkpoints=2))
    assert payload(trigger)["status"] == "ask"


def test_who_is_not_first_is_left_alone(job: Job, said: Said) -> None:  # semantics T2
    """The free place is that of the first in the line; the others sleep on."""
    job.trigger("r1")
    waiting(job, "r2")
    second = waiting(job, "r3")
    head = job.coordinator.head()

    def end_both() -> None:
        complete(job)
        assert job.coordinator.still_waits(second.turn) == StillWaits(Reason.ALREADY_QUEUED, 2)
        assert job.coordinator.still_waits(replace(second.turn, epoch="r2")) is None
        job.trigger("r2")
        assert job.coordinator.still_waits(second.turn) == StillWaits(Reason.ALREADY_QUEUED, 1)
        job.coordinator.abort(2, Reason.CHECKPOINT_DECLINED, "boom")

    assert [each.epoch for each in head.waiting] == ["r2", "r3"]
    assert payload(second, said, end_both)["status"] == "ask"


Asked = list[tuple[str, str]]


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Asked]:
    """Let the triggerer's channel to Airflow answer; the states of each run one after the other, the last for ever."""

    def answer(**states: list[str | BaseException]) -> Asked:
        asked = Asked()

        def get_dagrun_state(dag_id: str, run_id: str) -> str:
            asked.append((dag_id, run_id))
            left = states[run_id]
            found = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(found, BaseException):
                raise found
            return found

        monkeypatch.setattr(RuntimeTaskInstance, "get_dagrun_state", staticmethod(get_dagrun_state))
        return asked

    return answer


NO_ANSWER = AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={"status_code": 500}))
OFTEN = timedelta(milliseconds=1)


def test_it_asks_airflow_itself_and_wakes_the_task_once(job: Job, airflow: Callable[..., Asked]) -> None:
    """semantics T2: a task that is woken to ask takes seconds of a worker, every 15 seconds, for nothing."""
    job.trigger("r1")
    asked = airflow(r1=["running", NO_ANSWER, "running", "failed"])
    found = payload(waiting(job, recheck_interval=OFTEN))
    assert found == {"status": "ask", "detail": "the DAG run r1, whose checkpoint is pending, has ended", "kind": None}
    assert asked == [("flights", "r1")] * 4


def test_it_asks_about_those_before_it_as_far_as_places_are_free(job: Job, airflow: Callable[..., Asked]) -> None:
    """semantics T2: the second in the line takes the place of the first, if that has ended."""
    job.trigger("r1")
    waiting(job, "r2")
    third = waiting(job, "r3", recheck_interval=OFTEN)
    complete(job)
    asked = airflow(r2=["running", "success"])
    assert payload(third)["detail"] == "the DAG run r2, which is before this one in the queue, has ended"
    assert asked == [("flights", "r2")] * 2


def test_it_asks_about_nobody_who_waits_behind_what_is_pending(job: Job, airflow: Callable[..., Asked]) -> None:
    job.trigger("r1")
    waiting(job, "r2")
    third = waiting(job, "r3", recheck_interval=OFTEN)
    asked = airflow(r1=["running", "success"], r2=["success"])
    payload(third)
    assert {run_id for _, run_id in asked} == {"r1"}


def test_the_task_wakes_if_a_stop_waits_for_its_place(job: Job, airflow: Callable[..., Asked]) -> None:  # semantics P2
    """The task knows how many runs its DAG may have, and refuses to wait if both would wait for each other."""
    job.trigger("r1")
    assert job.coordinator.savepoint(SavepointRequest(job.storage + "-kept", "x", stop=True), open_store).waits
    trigger = waiting(job, recheck_interval=OFTEN)
    assert trigger.turn.epoch == "r2"
    airflow(r1=["running", "running", "queued"])
    assert payload(trigger)["detail"] == "the job is being stopped, and its last run r1 waits for a place of its DAG"


def test_the_first_look_is_not_at_once(job: Job) -> None:  # semantics T2
    """The task has just looked; where clocks differ, the request would go back and forth without a rest."""
    job.trigger("r1")
    trigger = waiting(job, poll_interval=0.1)
    trigger._coordinator, looks = at(job, job.coordinator.head().pending[0].expires_at_ms)
    begun = time.monotonic()
    assert payload(trigger)["status"] == "ask"
    assert looks[0] - begun >= 0.1


def test_it_sleeps_until_the_pause_ends(job: Job, said: Said) -> None:  # semantics T3
    job.complete("r1")
    ends = job.coordinator.head().completed[-1].completed_at_ms + 3_600_000
    config = CheckpointConfig(min_pause=timedelta(hours=1))
    trigger = waiting(job, run_type="scheduled", config=config)
    trigger._coordinator, looks = at(job, ends - 200, ends)
    assert payload(trigger)["detail"] == "the request would be answered otherwise now"
    first, second = looks
    assert second - first >= 0.2
    assert "The pause lasts 0.2 s more (MINIMUM_TIME_BETWEEN_CHECKPOINTS)" in said.text


def test_it_looks_during_a_long_pause_and_wakes_nobody(job: Job) -> None:  # semantics T3, S1
    job.complete("r1")
    ends = job.coordinator.head().completed[-1].completed_at_ms + 3_600_000
    config = CheckpointConfig(min_pause=timedelta(hours=1))
    trigger = waiting(job, run_type="scheduled", config=config, recheck_interval=timedelta(milliseconds=1))
    trigger._coordinator, looks = at(job, ends - 3_600_000, ends - 1_800_000, ends - 1, ends)
    assert payload(trigger)["detail"] == "the request would be answered otherwise now"
    assert len(looks) == 4


def test_a_store_that_is_away_is_asked_again(job: Job, said: Said) -> None:
    job.trigger("r1")
    trigger = waiting(job)
    trigger._coordinator = Failing(job.coordinator, *[UnavailableError("the store did not answer")] * 3)
    job.coordinator.abort(1, Reason.JOB_FAILURE, "by hand")
    assert payload(trigger)["status"] == "ask"
    assert said.text.count("The storage cannot be reached, asking again in ") == 3


def test_it_looks_every_recheck_interval_at_least(job: Job, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics T2: and says truly when it asks again."""
    job.trigger("r1")
    trigger = waiting(job, poll_interval=2.0, recheck_interval=timedelta(seconds=15))
    trigger._coordinator = Failing(job.coordinator)
    loop = SkippingLoop()
    pauses: list[float] = []

    async def wait(seconds: float) -> None:
        pauses.append(seconds)
        loop.ahead_s += seconds
        if len(pauses) == 100:
            trigger._coordinator = Failing(job.coordinator, UnavailableError("the store did not answer"))
            job.coordinator.abort(1, Reason.JOB_FAILURE, "by hand")

    monkeypatch.setattr(trigger, "wait", wait)
    monkeypatch.setattr(trigger, "_ended_runs", lambda coordinator: None)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        event = runner.run(event_of(trigger))
    assert event.payload["status"] == "ask"
    assert (min(pauses), max(pauses)) == (2.0, 15.0)
    assert "asking again in 15 s" in said.text
