"""Triggering: slice and owner, a free place, no epoch folded in twice, and the run that a job ends with (P2)."""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, RetryAction, timezone
from airflow.sdk.api.datamodels._generated import DagRunType
from airflow.sdk.exceptions import (
    AirflowRescheduleException,
    AirflowRuntimeError,
    AirflowSkipException,
    ErrorType,
    TaskDeferred,
)
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_cairn.checkpoint import CheckpointConfig, RequestKind
from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidConfigError, NoCheckpointError
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.cli.main import main
from airflow_cairn.operators import StageSpec, TriggerCheckpointOperator
from airflow_cairn.operators.trigger.run_facts import kind_of
from airflow_cairn.storage import UnavailableError, WriteResult, open_store
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.triggers import RequestTrigger
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import DagRun, Job, Ti, context
from tests.support.errors import raises_code
from tests.support.narrowing import known
from tests.support.shut_down import shut_down

DAY = datetime(2001, 1, 1, tzinfo=UTC)


def operator(job: Job, **options: Any) -> TriggerCheckpointOperator:
    usual = {"task_id": "trigger", "stages": [StageSpec("routes")], "reads_window": False}
    return TriggerCheckpointOperator(**{"storage": job.storage, "job": job.name, **usual, **options})


def test_the_first_trigger(job: Job, said: Said) -> None:
    day = DagRun(DAY, DAY + timedelta(days=1))
    ti = Ti(run_id="scheduled__2001-01-01T00:00:00+00:00")
    result = operator(job, slice_detail={"offsets": [7]}, reads_window=None).execute(context(ti, dag_run=day))
    assert result == {
        "job": "flights",
        "storage": job.storage,
        "checkpoint": 1,
        "epoch": epoch_name(ti.run_id),
        "attempt": 1,
        "restored_from": None,
    }
    handover = job.begin(ti.run_id)
    assert handover.slice == Slice("2001-01-01T00:00:00+00:00", "2001-01-02T00:00:00+00:00", {"offsets": [7]})
    (pending,) = job.coordinator.head().pending
    assert pending.owner is not None
    assert (pending.owner.dag_id, pending.owner.run_id) == ("flights", ti.run_id)
    title = f"Checkpoint 1 · epoch {ti.run_id} · attempt 1"
    assert f"{title}: triggered, waits for routes; input: 2001-01-01T00:00:00+00:00 to 2001-01-02" in said.text
    assert f"{title}: starts empty: no checkpoint yet" in said.text


def test_a_detail_is_checked_again_when_it_is_rendered(job: Job) -> None:  # semantics T8
    trigger = operator(job, slice_detail="{{ params.detail }}")
    trigger.slice_detail = "{'offsets': [7]}"  # type: ignore[assignment]  # rendered to text, without native objects
    with pytest.raises(InvalidConfigError, match=r"slice_detail must be a JSON object.*found str \[task=`trigger`\]"):
        trigger.execute(context(Ti(run_id="r1")))
    assert job.coordinator.head().pending == ()
    with pytest.raises(InvalidConfigError, match="kind must be"):  # semantics S3
        operator(job, kind="forced")


def test_a_retry_finds_what_it_made_before(job: Job) -> None:  # semantics T9, W6
    once, twice = (operator(job).execute(context(Ti(run_id="r1"))) for _ in range(2))
    assert once == twice
    assert (job.folder / "_cairn/probed-v2.json").exists(), "the storage is probed once"


def test_what_it_says_of_a_completed_epoch_can_be_typed(
    job: Job, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    job.complete("r1")
    with pytest.raises(AirflowSkipException, match="No older checkpoint is retained, so the job cannot be rewound"):
        operator(job).execute(context(Ti(run_id="r1")))
    assert operator(job).execute(context(Ti(run_id="r2")))["restored_from"] == 1
    job.complete("r2")
    why = r"epoch r2 is completed: checkpoint 2 holds it\. It is not run again"
    with pytest.raises(AirflowSkipException, match=why) as skipped:
        operator(job).execute(context(Ti(run_id="r2")))
    assert f"Skipped: {skipped.value}" in caplog.messages
    command, *words = shlex.split(str(skipped.value).split("`")[1])
    assert command == "cairn"
    assert main([*words, "--yes"]) == 0
    assert "these DAG runs have to run again, in this order:\n  r2\n" in capsys.readouterr().out
    assert operator(job).execute(context(Ti(run_id="r2")))["checkpoint"] == 3


def other(**states: str | BaseException) -> Any:
    """Give the context of the run r2, to which Airflow says how other runs are."""
    return context(Ti(run_id="r2", states=states))


def test_too_many_are_waited_for_in_the_triggerer(job: Job, said: Said) -> None:  # semantics T1, T2
    job.trigger("r1")
    waiting = operator(job, recheck_interval=timedelta(seconds=40), poll_interval=timedelta(seconds=3))
    with pytest.raises(TaskDeferred) as caught:
        waiting.execute(other(r1="running"))
    deferred = caught.value
    assert isinstance(deferred.trigger, RequestTrigger)
    assert deferred.trigger.serialize()[1] == {
        "storage": job.storage,
        "job": "flights",
        "epoch": "r2",
        "kind": "manual",
        "max_concurrent": 1,
        "min_pause_ms": 0,
        "aws_conn_id": None,
        "poll_interval": 3.0,
        "recheck_interval": 40.0,
    }
    assert (deferred.method_name, deferred.timeout) == ("execute_complete", None)
    assert (
        "checkpoint 1 of DAG run r1 is pending and max_concurrent_checkpoints is 1; place 1 in the queue "
        "(TOO_MANY_CONCURRENT_CHECKPOINTS); looking again by " in said.text
    )
    two = CheckpointConfig(max_concurrent_checkpoints=2)
    assert operator(job, config=two).execute(other(r1="running"))["checkpoint"] == 2


def test_the_task_asks_anew_when_it_is_woken(job: Job) -> None:  # semantics T2, T6
    job.trigger("r1")
    for _ in range(2):  # woken too early, it waits on
        with pytest.raises(TaskDeferred):
            operator(job).execute_complete(other(r1="running"), {"status": "ask", "detail": ""})
    job.acknowledge(job.begin("r1"))
    job.coordinator.complete(1)
    assert operator(job).execute_complete(other(), {"status": "ask", "detail": ""})["checkpoint"] == 2
    assert job.coordinator.head().waiting == ()


def test_a_woken_task_asks_whether_the_runs_before_it_still_run(job: Job) -> None:  # semantics T2
    job.trigger("r1")
    with pytest.raises(TaskDeferred):
        operator(job).execute(other(r1="running"))
    result = operator(job).execute_complete(other(r1="failed"), {"status": "ask", "detail": ""})
    assert result["checkpoint"] == 2


def test_a_wait_that_cannot_go_on_fails_the_task(job: Job) -> None:
    event = {"status": "error", "detail": "the connection nowhere is not defined", "kind": "invalid"}
    with raises_code("trigger_declined", match=r"the connection nowhere.*set deferrable=False.*kind=`invalid`"):
        operator(job).execute_complete(other(), event)
    assert job.coordinator.head().pending == ()


def test_without_a_triggerer_the_task_is_rescheduled(job: Job) -> None:  # semantics T1, T2
    job.trigger("r1")
    before = timezone.utcnow()
    ti = Ti(run_id="r2", states={"r1": "running"})
    with pytest.raises(AirflowRescheduleException) as caught:
        operator(job, recheck_interval=timedelta(seconds=40), deferrable=False).execute(context(ti))
    assert timedelta(seconds=40) <= caught.value.reschedule_date - before < timedelta(seconds=60)
    told = ti.xcoms["cairn_declined"]
    assert (told["reason"], told["position"]) == ("TOO_MANY_CONCURRENT_CHECKPOINTS", 1)
    assert told["retry_at"] == caught.value.reschedule_date.isoformat()
    with pytest.raises(TaskDeferred):
        operator(job).execute(context(ti))
    assert ti.xcoms["cairn_declined"]["reason"] == "ALREADY_QUEUED"


def test_airflow_may_fail_a_deferral_twice(job: Job) -> None:
    assert (operator(job).retries, operator(job).retry_delay) == (2, timedelta(seconds=5))
    assert operator(job, retries=0).retries == 0


def refused(status: int) -> AirflowRuntimeError:
    """Make the error that the task SDK raises for an answer of the API server."""
    return AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status}))


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_run_that_has_ended_holds_nobody_up(job: Job, state: str) -> None:
    job.trigger("r1")
    assert operator(job).execute(context(Ti(run_id="r2", states={"r1": state})))["checkpoint"] == 2
    ended = known(job.coordinator.head().ended_by_id(1))
    assert (ended.reason, ended.detail) == ("JOB_FAILURE", "the DAG run r1 has ended")


def test_a_run_that_was_deleted_from_a_named_deployment_holds_up_no_other(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W8
    monkeypatch.setenv("AIRFLOW__CAIRN__DEPLOYMENT", "production")
    operator(job).execute(context(Ti(run_id="r1")))
    assert operator(job).execute(context(Ti(run_id="r2", states={"r1": refused(404)})))["checkpoint"] == 2


def test_another_deployment_cannot_trigger(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics W8
    monkeypatch.setenv("AIRFLOW__CAIRN__DEPLOYMENT", "production")
    operator(job).execute(context(Ti(run_id="r1")))
    before = job.coordinator.head()
    monkeypatch.setenv("AIRFLOW__CAIRN__DEPLOYMENT", "staging")
    # Two deployments of one schedule have the same run ids: one must not take over the other's checkpoint.
    for run in ("r1", "r2"):
        with raises_code("job_owned") as caught:
            operator(job).execute(context(Ti(run_id=run, states={"r1": refused(404)})))
        assert "DAG flights of the deployment production" in str(caught.value)
        assert "cairn adopt flights --dag flights --deployment 'staging'" in str(caught.value)
    assert job.coordinator.head() == before
    policy = known(operator(job).retry_policy)
    decision = policy.evaluate(caught.value, 1, 3)
    assert decision.action is RetryAction.FAIL


# Without a name of its deployment nothing tells a deleted run from one of another deployment.
@pytest.mark.parametrize("state", ["running", "queued", refused(500), refused(403), refused(404)])
def test_a_run_that_cannot_be_asked_about_counts_as_running(job: Job, state: str | BaseException) -> None:
    job.trigger("r1")
    with pytest.raises(TaskDeferred):
        operator(job).execute(other(r1=state))


@pytest.mark.parametrize("run_type", ["scheduled", "backfill", "asset_triggered"])
def test_a_schedule_waits_until_the_pause_ends(job: Job, run_type: str) -> None:  # semantics T3
    job.complete("r1")
    (completed,) = job.coordinator.head().completed
    config = CheckpointConfig(min_pause=timedelta(hours=1))
    asks = context(Ti(run_id="r2"), dag_run=DagRun(run_type=run_type))
    with pytest.raises(AirflowRescheduleException) as caught:
        operator(job, config=config, deferrable=False).execute(asks)
    assert round(caught.value.reschedule_date.timestamp() * 1000) == completed.completed_at_ms + 3_600_000
    with pytest.raises(TaskDeferred) as deferred:
        operator(job, config=config).execute(asks)
    assert deferred.value.trigger.serialize()[1]["kind"] == "periodic"
    assert deferred.value.trigger.serialize()[1]["min_pause_ms"] == 3_600_000
    by_hand = operator(job, config=config, kind=RequestKind.MANUAL)
    assert by_hand.execute(context(Ti(run_id="r2"), dag_run=DagRun(run_type=run_type)))["checkpoint"] == 2


def test_a_stopped_job_fails_the_trigger(job: Job) -> None:  # semantics T1, S1
    shut_down(job.coordinator)
    with raises_code("trigger_declined", match="CHECKPOINT_COORDINATOR_SHUTDOWN"):
        operator(job).execute(context(Ti(run_id="r1")))


def test_what_fails_on_the_way_is_told_with_its_reason(job: Job) -> None:  # semantics T1
    job.complete("r1")
    (completed,) = job.coordinator.head().completed
    (job.folder / "flights" / completed.metadata.key).unlink()
    ti = Ti(run_id="r2")
    with pytest.raises(NoCheckpointError, match=r"no checkpoint was triggered: .*TRIGGER_CHECKPOINT_FAILURE") as caught:
        operator(job).execute(context(ti))
    told = ti.xcoms["cairn_declined"]
    assert (told["reason"], told["retry_at"]) == ("TRIGGER_CHECKPOINT_FAILURE", None)
    assert caught.value.message.endswith(
        f"{told['detail'].split(' [')[0]} ({told['reason']}). Then clear this task, with Downstream"
    )
    (declined,) = job.coordinator.head().declined
    assert declined.reason == told["reason"]


def test_a_storage_that_fails_on_the_way_counts(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics T1, D5
    """A store that answers for the head and for nothing else; a folder on a disk cannot be made to do so."""
    job.complete("r1")
    create = LocalStore.create

    def fails(store: LocalStore, key: str, data: bytes) -> WriteResult:
        if "/epochs/" in key:
            raise UnavailableError("the store did not answer", key=key)
        return create(store, key, data)

    monkeypatch.setattr(LocalStore, "create", fails)
    ti = Ti(run_id="r2")
    config = CheckpointConfig(tolerable_failed_checkpoints=3)
    with pytest.raises(UnavailableError, match=r"was triggered: the store did not answer \(IO_EXCEPTION"):
        operator(job, config=config).execute(context(ti))
    assert ti.xcoms["cairn_declined"]["reason"] == "IO_EXCEPTION"
    assert job.coordinator.head().failures == 1


def test_a_full_line_is_asked_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:  # semantics T2
    monkeypatch.setattr(transitions, "MAX_WAITING", 1)  # 1,000 runs would take long
    job.trigger("r1")
    for run_id in ("r2", "r3"):
        ti = Ti(run_id=run_id, states={"r1": "running"})
        with pytest.raises(TaskDeferred):
            operator(job).execute(context(ti))
    assert ti.xcoms["cairn_declined"]["reason"] == "TOO_MANY_CHECKPOINT_REQUESTS"
    assert [each.epoch for each in job.coordinator.head().waiting] == ["r2"]


@pytest.mark.parametrize("run_type", DagRunType)
def test_the_types_of_runs_are_members_of_an_enum(run_type: DagRunType) -> None:  # semantics T3
    """As the task SDK gives them; `str` of one is not its value."""
    periodic = run_type.value in {"scheduled", "backfill", "asset_triggered"}
    found = kind_of(context(Ti(), dag_run=DagRun(run_type=run_type)))
    assert found is (RequestKind.PERIODIC if periodic else RequestKind.MANUAL)


LAST = "cairn_drain__last"
NOT_MADE = AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR, detail={"status_code": 404}))


def trigger(
    job: Job, run_id: str, last: str | BaseException, before: str = "", **dag: Any
) -> TriggerCheckpointOperator:
    """Trigger a run of a job that was told to stop."""
    with DAG("flights", schedule=None, **dag):
        task = TriggerCheckpointOperator(
            task_id="t", reads_window=False, storage=job.storage, stages=[StageSpec("routes")]
        )
    task.execute(context(Ti(run_id=run_id, states={LAST: last, "r2": before, "r3": "failed"})))
    return task


@pytest.fixture
def stop(job: Job, tmp_path: Path) -> Any:
    """Tell the job to stop, with or without a last run."""

    def ask(drain: str | None) -> None:
        job.complete("r1")
        last = None if drain is None else epoch_name(drain)
        wish = SavepointRequest(f"file://{tmp_path / 'kept'}", "x", stop=True, drain=last)
        if last is None:
            job.trigger("r2")
        assert job.coordinator.savepoint(wish, open_store).waits

    return ask


def test_the_only_place_is_left_to_the_last_run(job: Job, stop: Any) -> None:  # semantics P2
    stop(LAST)
    with raises_code("last_run_blocked", match=rf"Clear this run when.*epoch=`r3` last_run=`{LAST}`") as caught:
        trigger(job, "r3", "queued", max_active_runs=1)
    task = trigger(job, LAST, "running", max_active_runs=1)
    assert [entry.epoch for entry in job.coordinator.head().pending] == [epoch_name(LAST)]
    assert task.retry_policy is not None
    assert task.retry_policy.evaluate(caught.value, 1, 3).action is RetryAction.FAIL


@pytest.mark.parametrize(
    ("last", "most"), [("queued", 2), ("running", 1), (NOT_MADE, 1)], ids=["places", "running", "not made"]
)
def test_a_run_that_is_in_nobodys_way_waits(job: Job, stop: Any, last: Any, most: int) -> None:  # semantics P2
    stop(LAST)
    with pytest.raises(TaskDeferred):
        trigger(job, "r3", last, max_active_runs=most)


def test_so_it_is_where_the_run_that_was_under_way_is_cleared(job: Job, stop: Any) -> None:  # semantics P2
    stop(None)
    with pytest.raises(TaskDeferred):
        trigger(job, "r3", "", before="running", max_active_runs=1)
    with raises_code("last_run_blocked"):
        trigger(job, "r3", "", before="queued", max_active_runs=1)
    job.complete("r2")
    with pytest.raises(TaskDeferred):
        trigger(job, "r3", "", before="queued", max_active_runs=1)
