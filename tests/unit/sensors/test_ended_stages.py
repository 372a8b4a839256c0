"""Tasks of stages that a person marks: the task that waits says so at once, and nothing ends green (C1, D3, F5)."""

import asyncio
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred

from airflow_cairn.checkpoint import CheckpointConfig, TriggerRequest
from airflow_cairn.checkpoint.answers import Progress, Waiting
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.hooks.task_refs import TaskRef
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.tasks.stage_states import check_awaited
from airflow_cairn.triggers import CheckpointTrigger
from tests.support.airflow_stage import Job, Ti, context
from tests.unit.sensors.test_skipped_stages import RUN, SKIPPED, Run

SUCCESS, FAILED = "success", "failed"


@pytest.fixture
def run(job: Job) -> Run:
    return Run(job)


@pytest.mark.parametrize("state", ["success", "failed", "upstream_failed", "removed"])
def test_a_stage_that_was_marked_is_named(run: Run, state: str) -> None:  # semantics C1
    run.finish("a", "c", "d-0", "d-1", "d_1")
    with pytest.raises(AirflowFailException) as caught:
        run.look({("b", -1): state})
    assert str(caught.value).startswith(
        "checkpoint 1 cannot complete: tasks have ended although their stages have not acknowledged: "
        f"epoch.b ({state}): it has not begun: its task ended before it asked for its work, because it was marked or "
        "killed. Nothing of this epoch counts before they have run. "
        "Clear them with Downstream, and this task with them [job=`flights` "
    )
    assert run.job.coordinator.head().completed == ()


def test_all_are_named_and_what_was_skipped_is_none_of_them(run: Run) -> None:  # semantics C1
    run.finish("a", "d-0", "d_1")
    with pytest.raises(
        AirflowFailException, match=r"acknowledged: epoch\.b \(success\): .*; epoch\.d\[1\] \(failed\): "
    ):
        run.look({("b", -1): SUCCESS, ("c", -1): SKIPPED, ("d", 1): FAILED})


@pytest.mark.parametrize("state", ["running", "up_for_retry", "queued", "deferred", "up_for_reschedule", "restarting"])
def test_while_one_may_still_acknowledge_it_is_waited_for(run: Run, state: str) -> None:  # semantics F5
    """The stage's failure may be what replaced the others, which are cleared after that."""
    run.finish("a", "d-0", "d-1", "d_1")
    assert run.look({("b", -1): SUCCESS, ("c", -1): state}) is None


def test_once_it_has_run_the_checkpoint_completes(run: Run) -> None:  # semantics C1
    run.finish("a", "c", "d-0", "d-1", "d_1")
    marked = run.job.begin(run.run_id, "b", "the marked try")
    with pytest.raises(AirflowFailException, match=r"epoch\.b \(success\)"):
        run.look({("b", -1): SUCCESS})
    again = run.job.begin(run.run_id, "b", "cleared")
    assert again.token != marked.token
    run.job.acknowledge(again)
    run.finish("c")  # it reads what b writes, so it runs again too
    assert run.look()["acks"] == 6


def test_a_failure_that_nobody_reports_and_nobody_tries_again_is_named_too(run: Run) -> None:  # semantics F5
    """No callback came, b has no try left, and c runs all the same, because a plain task between them lets it.

    The attempt stays open for the clear: a next attempt would have nobody to run in it.
    """
    run.finish("a", "c", "d-0", "d-1", "d_1")
    run.job.begin(run.run_id, "b", "its worker was lost")
    with pytest.raises(AirflowFailException, match=r"acknowledged: epoch\.b \(failed\)"):
        run.look({("b", -1): FAILED})
    (pending,) = run.job.coordinator.head().pending
    assert pending.attempt == 1
    assert isinstance(run.job.begin(run.run_id, "b", "cleared"), Handover), "which is a failover"
    (pending,) = run.job.coordinator.head().pending
    assert pending.attempt == 2


def test_the_next_run_ends_what_a_failed_one_has_left(run: Run) -> None:  # semantics F5, T1
    """As above, but nothing lets c run: the task that waits never begins, and the run has failed."""
    run.finish("a", "d-0", "d-1", "d_1")
    run.job.begin(run.run_id, "b", "its worker was lost")
    trigger: Any = run.dag.get_task("epoch.trigger_checkpoint")
    trigger.execute(context(Ti(run_id="r2", states={RUN: FAILED}), task=trigger))
    head = run.job.coordinator.head()
    assert [entry.epoch for entry in head.pending] == [epoch_name("r2")]
    assert [entry.reason for entry in head.history] == [Reason.JOB_FAILURE]


def test_an_acknowledgement_that_came_since_counts() -> None:  # semantics C1
    stages, ended = {"b": TaskRef("b")}, {TaskRef("b"): SUCCESS}

    def check(before: Progress, now: Progress) -> None:
        check_awaited("flights", epoch_name("r"), before, now, stages, ended, lambda _stage: "why")

    waiting = Waiting(1, 1, (), ("b",))
    with pytest.raises(CheckpointFailedError, match="checkpoint 1 cannot complete"):
        check(waiting, waiting)
    check(waiting, Waiting(1, 1, ("b",), ()))
    check(waiting, Waiting(1, 1, ("b",), ("c",)))
    check(waiting, Waiting(2, 2, (), ("b",)))


class Flights:
    """A run of stages in a line, as the DAG file has them by now."""

    def __init__(self, job: Job, *uids: str, config: CheckpointConfig | None = None, **group: Any) -> None:
        self.job = job
        options = {
            "reads_window": False,
            "storage": job.storage,
            "airflow_api_conn_id": None,
            "config": config,
            **group,
        }
        with DAG("flights", schedule=None) as self.dag, CheckpointedTaskGroup("epoch", **options):
            line = [SparkEpochOperator(task_id=uid, application="x.py") for uid in uids]
            for before, after in pairwise(line):
                before >> after

    def wait(self, *, event: dict[str, Any] | None = None, **states: str) -> Any:
        """Run the task that waits, or go on with it when the trigger has woken it."""
        task: Any = self.dag.get_task("epoch.wait_for_checkpoint").prepare_for_execution()
        at = context(
            Ti(run_id=RUN, task_id=task.task_id, task_states={(f"epoch.{t}", -1): s for t, s in states.items()})
        )
        return task.execute(at) if event is None else task.execute_complete(at, event, "2100-01-01T00:00:00+00:00")


THREE = (StageSpec("one"), StageSpec("two", ("one",)), StageSpec("three", ("two",)))
GONE = (
    "checkpoint 1 cannot complete: the DAG file no longer has three, which this run's checkpoint expects. To go on "
    f"without it, clear the task that triggers: on the page of the DAG flights, run {RUN}, choose Clear Task "
    "Instance at epoch.one, with Downstream switched on, and Past, Future, Upstream, 'Clear only failed tasks' and "
    "'Prevent rerun if task is running' switched off; the next attempt expects the stages that the file has now. Or "
    "put three back into the file, then clear its task and those that have failed, with Downstream"
)


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize("woken", [False, True], ids=["it begins", "it was deferred by then"])
def test_a_stage_that_the_dag_file_has_no_more_is_not_waited_for(job: Job, deferrable: bool, woken: bool) -> None:
    """semantics C1: Airflow has removed its task; the checkpoint's timeout may be a day away."""
    job.trigger(RUN, *THREE)
    for uid in ("one", "two"):
        job.acknowledge(job.begin(RUN, uid))
    now = Flights(job, "one", "two", deferrable=deferrable)
    with pytest.raises(AirflowFailException) as caught:
        now.wait(event={"status": "again"} if woken else None, one=SUCCESS, two=SUCCESS)
    assert str(caught.value).startswith(GONE)


@pytest.mark.parametrize("rechecks", [True, False])
def test_a_deferred_wait_of_a_group_looks_at_the_dag_file_now_and_then(
    job: Job, monkeypatch: pytest.MonkeyPatch, rechecks: bool
) -> None:
    """The triggerer has no DAG file: only the task sees that a stage has gone while it was deferred."""
    job.trigger(RUN, *THREE)
    with pytest.raises(TaskDeferred) as caught:
        Flights(job, "one", "two", "three").wait()
    assert isinstance(caught.value.trigger, CheckpointTrigger)
    _, arguments = caught.value.trigger.serialize()
    assert arguments["rechecks"] is True
    monkeypatch.setattr("airflow_cairn.triggers.checkpoint.RECHECK_INTERVAL", timedelta(0))
    waits = CheckpointTrigger(**{**arguments, "rechecks": rechecks, "poll_interval": 0.01})

    async def first() -> dict[str, Any]:
        found: dict[str, Any] = (await asyncio.wait_for(anext(waits.run()), 30 if rechecks else 0.5)).payload
        return found

    if rechecks:
        assert asyncio.run(first())["status"] == "again"
        return
    with pytest.raises(TimeoutError):
        asyncio.run(first())


@pytest.mark.parametrize("how", ["failed for good", "paused", "tolerated"])
def test_a_run_that_was_skipped_is_not_failed_with_its_old_story(job: Job, how: str) -> None:  # semantics T8, S1, D5
    """The run's attempt failed, another run has read its day since, and then a person cleared the whole run."""
    config = CheckpointConfig(tolerable_failed_checkpoints=3)

    def trigger(run_id: str) -> None:
        day = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
        job.coordinator.trigger(TriggerRequest(epoch_name(run_id), day, THREE, config))

    trigger(RUN)
    if how == "paused":
        job.coordinator.pause()
        job.coordinator.unpause()
    else:
        reason = Reason.JOB_FAILURE if how == "failed for good" else Reason.CHECKPOINT_EXPIRED
        job.coordinator.abort(1, reason, "three: boom")
    trigger("another")
    for uid in ("one", "two", "three"):
        job.acknowledge(job.begin("another", uid))
    job.coordinator.complete(2)
    flights = Flights(job, "one", "two", "three", config=config)
    with pytest.raises(AirflowSkipException, match=r"so there is none; the log of epoch\.one says why"):
        flights.wait(one=SKIPPED, two=SKIPPED, three=SKIPPED)
    if how == "failed for good":
        with pytest.raises(AirflowFailException, match="three: boom"):
            flights.wait(one=SKIPPED, two=SUCCESS, three=FAILED)  # the author has skipped the first alone
