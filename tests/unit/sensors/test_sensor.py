"""The sensor completes the checkpoint when the last acknowledgement is in, and fails with the decline's reason."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from airflow.sdk import timezone
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)

from airflow_cairn.checkpoint import CheckpointConfig, NoRestart, RegionalCheckpoints
from airflow_cairn.checkpoint.acts.completion import Completion
from airflow_cairn.checkpoint.cleaner import Cleaner, CleanReport
from airflow_cairn.checkpoint.documents.head import MAX_UNFINISHED
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.remedies import REMEDIES
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.triggers import CheckpointTrigger
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context

RUN = "manual__r1"


def sensor(job: Job, **options: Any) -> CheckpointSensor:
    return CheckpointSensor(task_id="wait", storage=job.storage, job=job.name, **options)


def at() -> Any:
    return context(Ti(run_id=RUN, task_id="wait"))


def soon() -> str:
    return (timezone.utcnow() + timedelta(minutes=1)).isoformat()


def test_nothing_to_wait_for(job: Job, said: Said) -> None:
    job.trigger(RUN)
    assert not sensor(job).poke(at())
    job.acknowledge(job.begin(RUN))
    result = sensor(job).execute(at())
    assert result.pop("duration_ms") >= 0
    counted = {"attempt": 1, "acks": 1, "size_bytes": 0}
    assert result == {"job": "flights", "checkpoint": 1, "epoch": "manual__r1", **counted}
    assert [entry.id for entry in job.coordinator.head().completed] == [1]
    assert "Checkpoint 1 · epoch manual__r1: completed · attempt 1 · 1 ack · 0 bytes · " in said.text
    assert "Cleaning has deleted " in said.text


def test_it_says_who_was_left_out(job: Job, said: Said) -> None:  # semantics B3, F6
    job.trigger(RUN, "routes", "clean", config=CheckpointConfig(regional=RegionalCheckpoints(0.5)))
    job.acknowledge(job.begin(RUN, "clean"))
    job.begin(RUN, claimant="last")
    job.coordinator.fail(RUN, "routes", "last", "killed", final=True)
    result = sensor(job).execute(at())
    assert (result["acks"], result["left_out"]) == (1, ["routes"])
    assert (
        "The checkpoint completed without routes; their input is kept, and the next epoch reads it first" in said.text
    )


def test_it_waits_in_the_triggerer(job: Job) -> None:
    job.trigger(RUN)
    with pytest.raises(TaskDeferred) as caught:
        sensor(job, poke_interval=2, timeout=60).execute(at())
    deferred = caught.value
    assert isinstance(deferred.trigger, CheckpointTrigger)
    assert deferred.trigger.serialize()[1] == {
        "storage": job.storage,
        "job": "flights",
        "epoch": "manual__r1",
        "aws_conn_id": None,
        "poll_interval": 2.0,
        "asked": None,
        "completes": True,
        "rechecks": False,
    }
    assert deferred.method_name == "execute_complete"
    assert timedelta(seconds=50) < deferred.timeout <= timedelta(seconds=60)
    job.acknowledge(job.begin(RUN))
    assert deferred.kwargs is not None
    again = sensor(job).execute_complete(at(), {"status": "ready", "checkpoint": 1}, **deferred.kwargs)
    assert again["checkpoint"] == 1


def test_what_the_trigger_saw_may_have_passed(job: Job) -> None:
    """A failover between the event and the task opens another attempt: waiting goes on, with the time that is left."""
    job.trigger(RUN)
    ready = {"status": "ready", "checkpoint": 1}
    with pytest.raises(TaskDeferred) as caught:
        sensor(job).execute_complete(at(), ready, soon())
    assert caught.value.timeout <= timedelta(minutes=1)
    past = (timezone.utcnow() - timedelta(seconds=1)).isoformat()
    with pytest.raises(AirflowSensorTimeout, match="not complete within 9 seconds"):
        sensor(job, timeout=9).execute_complete(at(), ready, past)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_declined_checkpoint_fails_for_good_with_the_reason(job: Job, deferrable: bool) -> None:  # semantics D5
    job.trigger(RUN)
    job.decline(job.begin(RUN), "AnalysisException: no such column")
    with pytest.raises(AirflowFailException) as caught:
        sensor(job, deferrable=deferrable).execute(at())
    assert str(caught.value).startswith(
        "the job failed, because `tolerable_failed_checkpoints` allows no more failed ones: "
        "checkpoint 1 failed: routes: AnalysisException: no such column (CHECKPOINT_DECLINED). A stage's application "
    )


def test_a_final_try_is_not_told_as_too_many_failures(job: Job) -> None:  # semantics F4
    job.trigger(RUN, config=CheckpointConfig(tolerable_failed_checkpoints=5, restart_strategy=NoRestart()))
    job.begin(RUN, claimant="try")
    job.coordinator.fail(epoch_name(RUN), "routes", "try", "boom")
    with pytest.raises(AirflowFailException) as caught:
        sensor(job).execute(at())
    assert str(caught.value).startswith(
        "the epoch failed, and no other try follows: "
        "checkpoint 1 failed: routes: boom (NoRestart allows no restart; JOB_FAILURE). A stage failed and has no "
    )


@pytest.mark.parametrize("reason", [each for each in Reason if each is not Reason.CHECKPOINT_SUBSUMED])
def test_a_failed_checkpoint_says_what_to_do_next(job: Job, reason: Reason) -> None:
    """semantics D5: waiting does not help, and each of the sensor's retries would find the same."""
    job.trigger(RUN)
    job.coordinator.abort(1, reason, "why")
    way_out = REMEDIES[reason]
    counted = job.coordinator.head().history[-1].job_failed
    with pytest.raises(
        CheckpointFailedError if way_out.waiting_helps and not counted else AirflowFailException
    ) as caught:
        sensor(job).execute(at())
    said = str(caught.value)
    assert f"checkpoint 1 failed: why ({reason}). {way_out.text(job.name, job.storage, 1)} [" in said
    assert "{" not in said


def test_a_run_that_was_left_behind_says_what_to_clear(job: Job) -> None:  # semantics D5
    config = CheckpointConfig(tolerable_failed_checkpoints=1_000)
    job.trigger(RUN, config=config)
    for number in range(MAX_UNFINISHED + 1):
        job.coordinator.abort(number + 1, Reason.CHECKPOINT_EXPIRED, "slow")
        job.trigger(f"later-{number}", config=config)
    with pytest.raises(AirflowFailException) as caught:
        sensor(job).execute(at())
    said = "checkpoint 1 failed: slow (CHECKPOINT_EXPIRED). So many other runs have ended since that nothing of this"
    assert str(caught.value).startswith(said)
    assert "Clear the task that triggers the checkpoint" in str(caught.value)


@pytest.mark.parametrize("option", ["soft_fail", "never_fail"])
@pytest.mark.parametrize("found", ["at once", "after the wait", "by a poke"])
def test_a_failed_job_may_skip_the_sensor(job: Job, caplog: pytest.LogCaptureFixture, option: str, found: str) -> None:
    job.trigger(RUN)
    job.decline(job.begin(RUN), "boom")
    waiting = sensor(job, deferrable=found != "by a poke", **{option: True})
    kwargs = {"event": {"status": "failed"}, "deadline": soon()}
    after = found == "after the wait"
    look = partial(waiting.resume_execution, "execute_complete", kwargs) if after else waiting.execute
    caplog.set_level("INFO")
    with pytest.raises(AirflowSkipException):
        look(at())
    (said,) = (each for each in caplog.messages if each.startswith("Skipped: "))
    assert f"{option} is set to True. " in said
    assert "boom" in said


def test_coming_back_later_is_no_failure_to_skip(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A savepoint that is not copied yet: its store cannot be made to refuse here."""

    def later(self: CheckpointSensor, *_: object) -> None:
        raise AirflowRescheduleException(timezone.utcnow())

    monkeypatch.setattr(CheckpointSensor, "_result", later)
    kwargs = {"event": {"status": "completed"}, "deadline": soon()}
    with pytest.raises(AirflowRescheduleException):
        sensor(job, soft_fail=True).resume_execution("execute_complete", kwargs, at())


def test_within_the_limit_the_epoch_is_taken_up_again(job: Job) -> None:  # semantics D5
    job.trigger(RUN, config=CheckpointConfig(tolerable_failed_checkpoints=1))
    job.decline(job.begin(RUN), "boom")
    with pytest.raises(TaskDeferred):
        sensor(job).execute(at())
    assert not sensor(job).poke(at())
    job.acknowledge(job.begin(RUN))
    assert sensor(job).execute(at())["checkpoint"] == 2


def test_what_the_trigger_could_not_do(job: Job) -> None:
    event = {"status": "error", "detail": "the conn_id lake isn't defined", "kind": "invalid"}
    with pytest.raises(CheckpointFailedError, match=r"lake isn't defined. If only the triggerer .* deferrable=False"):
        sensor(job).execute_complete(at(), event, soon())
    with pytest.raises(AirflowSkipException):
        sensor(job, never_fail=True).execute_complete(at(), event, soon())


def test_nothing_was_triggered(job: Job) -> None:
    with pytest.raises(
        InvalidConfigError, match=r"is known. If none .* TriggerCheckpointOperator .* clear the whole run"
    ):
        sensor(job).execute(at())


def test_completed_before(job: Job) -> None:
    job.complete(RUN)
    assert sensor(job).execute(at())["checkpoint"] == 1
    assert sensor(job).execute_complete(at(), {"status": "completed", "checkpoint": 1}, soon())["checkpoint"] == 1
    found = sensor(job).poke(at())
    assert found and (found.xcom_value or {})["checkpoint"] == 1


def test_reschedule(job: Job) -> None:
    job.trigger(RUN)
    waiting = sensor(job, deferrable=False, mode="reschedule", poke_interval=30)
    at_once = at()
    at_once["task_reschedule_count"] = 0
    at_once["ti"].get_first_reschedule_date = lambda _: None
    with pytest.raises(AirflowRescheduleException):
        waiting.execute(at_once)
    job.acknowledge(job.begin(RUN))
    assert waiting.execute(at_once)["checkpoint"] == 1


def test_a_store_that_is_away_is_asked_again(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault cannot be caused on local files."""

    def away(self: Completion, epoch: str, state_of: object) -> None:
        raise UnavailableError("the store did not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Completion, "go_on", away)
        assert not sensor(job).poke(at())
        with pytest.raises(TaskDeferred):
            sensor(job).execute(at())


def test_cleaning_never_fails_the_task(job: Job, monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    """semantics C3: the checkpoint is complete, whatever becomes of the old files."""

    def broken(self: Cleaner, **options: object) -> CleanReport:
        raise OSError("the disk is gone")

    monkeypatch.setattr(Cleaner, "clean", broken)
    job.trigger(RUN)
    job.acknowledge(job.begin(RUN))
    assert sensor(job).execute(at())["checkpoint"] == 1
    assert "Cleaning failed; the next completed checkpoint cleans again" in said.text
    assert "the disk is gone" in said.text


def test_a_sensor_is_tried_again_by_default(job: Job) -> None:
    """Airflow can take the end of the process that deferred for the end of the task; one more try cures that."""
    assert (sensor(job).retries, sensor(job).retry_delay) == (2, timedelta(seconds=5))
    assert sensor(job, default_args={"retries": 7}).retries == 7
    assert sensor(job, default_args={"retries": 7}, retries=0).retries == 0
