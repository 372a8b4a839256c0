"""Tasks of an epoch that another run has overtaken: they come back by themselves and clear what is due (C2, S1, T2)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, TaskDeferred

from airflow_cairn.checkpoint import CheckpointConfig, TriggerRequest
from airflow_cairn.checkpoint.answers import Triggered
from airflow_cairn.checkpoint.documents.attempt import Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.operators.stage.overtaken_epoch import reschedule_if_replaced
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.triggers import CheckpointTrigger
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import ApiStandIn, OneRun, airflow_api, connect
from tests.support.narrowing import expect, known
from tests.support.world.parties import Ids

OTHER, RUN = "manual__other", "manual__mine"
STAGES = (StageSpec("a"), StageSpec("b", ("a",)))
TWO = CheckpointConfig(max_concurrent_checkpoints=2, tolerable_failed_checkpoints=1)
ONE = CheckpointConfig(tolerable_failed_checkpoints=1)


class Overtaken:
    """A run of a → b, of which another run of the job completes first."""

    def __init__(self, job: Job, config: CheckpointConfig = TWO, **options: Any) -> None:
        self.job = job
        with (
            DAG("flights", schedule=None),
            CheckpointedTaskGroup(
                "epoch", storage=job.storage, job=job.name, config=config, reads_window=False, **options
            ),
        ):
            a, b = (SparkEpochOperator(task_id=uid, application="x.py") for uid in "ab")
            a >> b
        self.a, self.b = a, b
        (wait,) = (each for each in a.dag.tasks if isinstance(each, CheckpointSensor))
        self.wait = wait
        self.tries = {uid: Ti(run_id=RUN, task_id=f"epoch.{uid}") for uid in "ab"}
        ids = {f"epoch.{uid}": str(ti.id) for uid, ti in self.tries.items()}
        self.airflow = OneRun(ids)

    def begin(self, *stages: str) -> None:
        """Begin stages of the run, each by its task; they acknowledge."""
        for uid in stages:
            self.job.acknowledge(self.job.begin(RUN, uid, str(self.tries[uid].id)))

    def other_completes(self) -> None:
        for uid in "ab":
            self.job.acknowledge(self.job.begin(OTHER, uid))
        entry = known(self.job.coordinator.head().pending_of_epoch(epoch_name(OTHER)))
        self.job.coordinator.complete(entry.id)

    def run_wait(self) -> Any:
        """Run the task that waits; the tasks of the stages have ended."""
        states = {(f"epoch.{uid}", -1): "success" for uid in "ab"}
        return self.wait.execute(context(Ti(run_id=RUN, task_id="epoch.wait_for_checkpoint", task_states=states)))


@pytest.fixture
def overtaken(job: Job) -> Overtaken:
    """Two epochs from one base; the other one is not complete yet."""
    found = Overtaken(job)
    job.trigger(OTHER, *STAGES, config=TWO)
    job.trigger(RUN, *STAGES, config=TWO)
    return found


@pytest.fixture
def api(overtaken: Overtaken, connections: Define) -> Iterator[ApiStandIn]:
    with airflow_api(overtaken.airflow, connections) as stand_in:
        yield stand_in


def test_a_stage_that_comes_next_clears_what_is_before_it(overtaken: Overtaken, api: ApiStandIn) -> None:
    """semantics C2: nothing of the doomed attempt is submitted, and no try is used up."""
    overtaken.begin("a")
    overtaken.other_completes()
    with pytest.raises(AirflowRescheduleException):
        overtaken.b.execute(context(overtaken.tries["b"]))
    assert overtaken.airflow.tasks == [["epoch.a"]]


def test_it_does_not_clear_itself(overtaken: Overtaken, api: ApiStandIn) -> None:
    """Stage b began in the attempt before, and a waiting task has opened the next: b is due to run again, as is a."""
    overtaken.begin("a", "b")
    overtaken.other_completes()
    overtaken.job.coordinator.go_on(epoch_name(RUN))
    with pytest.raises(AirflowRescheduleException):
        overtaken.b.execute(context(overtaken.tries["b"]))
    assert overtaken.airflow.tasks == [["epoch.a"]]


def test_who_waits_clears_all_that_has_run(overtaken: Overtaken, api: ApiStandIn, said: Said) -> None:
    """semantics C2: no process of the run is left but the task that waits; it comes back after what it clears."""
    overtaken.begin("a", "b")
    overtaken.other_completes()
    with pytest.raises(AirflowRescheduleException):
        overtaken.run_wait()
    assert overtaken.airflow.tasks == [["epoch.a", "epoch.b"]]
    assert "Cleared, to run again: a, b" in said.text
    with pytest.raises(TaskDeferred) as caught:
        overtaken.wait.execute(context(Ti(run_id=RUN, task_id="epoch.wait_for_checkpoint")))
    assert len(overtaken.airflow.cleared) == 1, "they are on"
    assert isinstance(caught.value.trigger, CheckpointTrigger)
    assert caught.value.trigger.asked == 3


def test_who_waits_says_what_a_person_is_to_clear(job: Job) -> None:
    found = Overtaken(job, airflow_api_conn_id=None)
    job.trigger(OTHER, *STAGES, config=TWO)
    job.trigger(RUN, *STAGES, config=TWO)
    found.begin("a", "b")
    found.other_completes()
    with pytest.raises(AirflowFailException, match=r"attempt 2 has to run it again.*Clear them with Downstream"):
        found.run_wait()


def test_an_api_that_is_away_is_asked_again(overtaken: Overtaken, connections: Define) -> None:
    with ApiStandIn(lambda _: (503, {})) as away:
        connect(connections, away)
    overtaken.begin("a", "b")
    overtaken.other_completes()
    with pytest.raises(AirflowRescheduleException):
        overtaken.run_wait()


def test_the_trigger_wakes_the_task_once_for_what_is_to_be_cleared(overtaken: Overtaken) -> None:
    """semantics C2: only a task may clear, and nothing wakes it again for what it has cleared."""
    overtaken.begin("a", "b")
    overtaken.other_completes()
    found = first_event(overtaken.job)
    assert (found["status"], found["checkpoint"]) == ("again", 3)
    with pytest.raises(TimeoutError):
        first_event(overtaken.job, patience_s=1, asked=3)


def first_event(job: Job, patience_s: float = 300, **more: Any) -> dict[str, Any]:
    """Wait for what the trigger has to say."""

    async def first() -> Any:
        waits = CheckpointTrigger(job.storage, job.name, epoch_name(RUN), poll_interval=0.01, **more)
        return await asyncio.wait_for(anext(waits.run()), patience_s)

    found: dict[str, Any] = asyncio.run(first()).payload
    return found


def test_a_stage_that_was_told_to_stop_begins_anew(overtaken: Overtaken, said: Said) -> None:
    """semantics C2: the driver failed because it counts no more; that uses up no try."""
    handover = overtaken.job.begin(RUN, "a", str(overtaken.tries["a"].id))
    reschedule_if_replaced(overtaken.job.coordinator, handover, ValueError("its own fault"))
    overtaken.other_completes()
    with pytest.raises(AirflowRescheduleException):
        reschedule_if_replaced(overtaken.job.coordinator, handover, ValueError("fenced"))
    assert "Checkpoint 2 was overtaken by another run, and this stage begins anew: fenced" in said.text
    again = overtaken.job.begin(RUN, "a", str(overtaken.tries["a"].id))
    reschedule_if_replaced(overtaken.job.coordinator, again, ValueError("its own fault, this time"))


def test_a_stage_waits_in_the_line_without_using_up_tries(job: Job, said: Said) -> None:  # semantics T2, D5
    found = Overtaken(job, ONE)
    job.trigger(RUN, *STAGES, config=ONE)
    job.coordinator.abort(1, Reason.CHECKPOINT_EXPIRED, "not complete in time")
    job.trigger(OTHER, *STAGES, config=ONE)
    ti = Ti(run_id=RUN, task_id="epoch.a", states={OTHER: "running"})
    for _ in range(3):
        with pytest.raises(AirflowRescheduleException):
            found.a.execute(context(ti))
    assert "The next attempt after checkpoint 1 waits: checkpoint 2 is pending" in said.text


@pytest.mark.parametrize("state", ["success", "running", "failed"])
def test_what_only_the_trigger_can_open(job: Job, connections: Define, state: str) -> None:  # semantics T7, T8
    """The epoch has a master hook, and another has completed: it is asked anew by the task that triggers, that of a."""
    found = Overtaken(job, ONE)
    hooked(job, RUN)
    found.begin("a")
    job.coordinator.abort(1, Reason.CHECKPOINT_EXPIRED, "not complete in time")
    hooked(job, OTHER)
    found.other_completes()
    found.airflow.states["epoch.a"] = state
    with airflow_api(found.airflow, connections):
        if state == "failed":
            with pytest.raises(AirflowFailException, match="and it has failed: see its log"):
                found.b.execute(context(found.tries["b"]))
            return
        with pytest.raises(AirflowRescheduleException):
            found.b.execute(context(found.tries["b"]))
        due = [] if state == "running" else [["epoch.a"]]
        assert found.airflow.tasks == due
        with pytest.raises(TaskDeferred):
            found.run_wait()
        assert found.airflow.tasks == due, "it runs already"


def hooked(job: Job, run: str) -> None:
    """Do what the task that triggers does in a job with a master hook."""
    request = TriggerRequest(epoch_name(run), Slice(), STAGES, ONE, Owner(job.name, run), hooks=("ids",))
    answer = expect(Triggered, job.coordinator.trigger(request))
    job.coordinator.ask_hooks(answer.pending, [Ids()])
