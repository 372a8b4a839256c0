"""The failure callback: twice, late, before or after the next try, and for tasks that are no stage."""

from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.log import mask_secret

from airflow_cairn.checkpoint import CheckpointConfig, RegionalCheckpoints
from airflow_cairn.checkpoint.errors import RefusedError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.remedies import REMEDIES
from airflow_cairn.operators import SparkEpochOperator, restore_latest_checkpoint
from airflow_cairn.operators.stage.outcome import StageRun
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.narrowing import known

RUN = "manual__r1"


def stage(of: Job, **options: Any) -> SparkEpochOperator:
    with DAG("flights", schedule=None, params={"job": "flights"}):
        return SparkEpochOperator(
            **{"task_id": "routes", "application": "a.py", "storage": of.storage, "job": of.name, **options}
        )


def call(task: BaseOperator, ti: Ti, **more: Any) -> None:
    restore_latest_checkpoint(context(ti, task=task, **more))


def begun(job: Job) -> Ti:
    """Trigger the epoch and begin a try of the stage."""
    job.trigger(RUN)
    ti = Ti(run_id=RUN)
    job.begin(RUN, claimant=str(ti.id))
    return ti


def test_it_opens_the_next_attempt_from_the_latest_checkpoint(job: Job, said: Said) -> None:
    job.complete("r0")
    ti = begun(job)
    call(stage(job), ti, exception=ValueError("bad\nday, token=canary-12345"))
    (pending,) = job.coordinator.head().pending
    assert (pending.id, pending.attempt, pending.restored_from) == (3, 2, 1)
    ended = known(job.coordinator.head().ended_by_id(2))
    assert (ended.reason, ended.detail) == ("JOB_FAILOVER_REGION", "routes: ValueError: bad day, token=***")
    assert (
        "stage routes failed; checkpoint 3 · epoch manual__r1 · attempt 2 opened, restoring from checkpoint 1"
        in said.text
    )


def test_what_airflow_masks_is_not_kept(job: Job) -> None:  # semantics D1
    mask_secret("the blue parrot")
    call(stage(job), begun(job), exception=ValueError("no such user: the blue parrot"))
    assert known(job.coordinator.head().ended_by_id(1)).detail == "routes: ValueError: no such user: ***"


FOUND_OUT = ("spark-submit was killed by signal 9 and gave no reason. Signal 9: mostly ",)
SILENT = ("the task's process ended without a result: it was killed, or its machine ", "no memory left")


@pytest.mark.parametrize(
    ("declined", "error", "said"),
    [
        ("", lambda run: run.failure(-9), FOUND_OUT),  # the operator's words are kept as they are
        ("", None, SILENT),  # in the dag processor there is no exception to quote
        ("AnalysisException: no such column", lambda _: RuntimeError("Cannot execute: spark-submit …"), ()),  # D1
    ],
    ids=["found out by the operator", "killed without a word", "the stage's own reason"],
)
def test_the_reason_that_is_kept(job: Job, declined: str, error: Any, said: tuple[str, ...]) -> None:  # semantics D1
    job.trigger(RUN)
    ti = Ti(run_id=RUN)
    submit = job.begin(RUN, claimant=str(ti.id))
    if declined:
        job.decline(submit, declined)
    call(stage(job), ti, **({"exception": error(StageRun(job.coordinator, submit))} if error else {}))
    detail = known(job.coordinator.head().ended_by_id(1)).detail
    assert detail.startswith(f"routes: {said[0]}") if said else detail == f"routes: {declined}"
    assert all(each in detail for each in said)


def test_twice_is_once(job: Job) -> None:  # semantics F5
    ti = begun(job)
    for _ in range(3):
        call(stage(job), ti)
    (pending,) = job.coordinator.head().pending
    assert pending.attempt == 2


def test_late_is_nothing(job: Job, said: Said) -> None:
    """The next try has begun and settled the failure; the dag processor's callback comes minutes later (F5)."""
    job.trigger(RUN)
    first = Ti(run_id=RUN)
    job.begin(RUN, claimant=str(first.id))
    job.begin(RUN, claimant=str(Ti().id))
    call(stage(job), first)
    (pending,) = job.coordinator.head().pending
    assert pending.attempt == 2
    assert "another try holds the current attempt" in said.text


def test_templates_are_rendered_where_airflow_has_not(job: Job) -> None:
    """The dag processor calls with the task as it was parsed."""
    ti = begun(job)
    call(stage(job, job="{{ params.job }}"), ti, params={"job": "flights"})
    assert job.coordinator.head().pending[0].attempt == 2


def test_completed_epochs_stay(job: Job, said: Said) -> None:
    job.complete(RUN)
    call(stage(job), Ti(run_id=RUN))
    assert "epoch manual__r1 is completed by checkpoint 1; nothing to restore" in said.text
    assert job.coordinator.head().pending == ()


def _may_fail(job: Job, *failed: str) -> Ti:
    """Trigger an epoch of two stages of which one may fail, fail those, and begin the last try of `routes`."""
    job.trigger(RUN, "routes", "clean", config=CheckpointConfig(regional=RegionalCheckpoints(0.5)))
    ti, other = Ti(run_id=RUN, try_number=2), Ti(run_id=RUN, try_number=2)
    job.begin(RUN, claimant=str(ti.id))
    for uid in failed:
        job.begin(RUN, uid, claimant=str(other.id))
        call(stage(job, uid=uid), other)
    return ti


def test_the_last_try_of_a_region_that_may_fail(job: Job, said: Said) -> None:  # semantics F6
    call(stage(job), _may_fail(job))
    said_so = "stage routes failed, and no other try follows; checkpoint 1 goes on without routes, whose input is kept"
    assert said_so in said.text
    job.acknowledge(job.begin(RUN, "clean"))
    job.coordinator.complete(1)
    assert job.coordinator.head().completed[0].left_out == ("routes",)


@pytest.mark.parametrize("tried_again", [True, False])
def test_a_failure_is_the_last_where_airflow_does_not_try_again(job: Job, said: Said, tried_again: bool) -> None:
    ti = _may_fail(job)  # semantics F2, F6
    ti.try_number = 1
    call(stage(job), ti, **({} if tried_again else {"exception": AirflowFailException("no")}))
    assert ("stage routes failed, and no other try follows" in said.text) is not tried_again
    assert job.coordinator.head().pending[0].attempt == (2 if tried_again else 1)


def test_the_last_try_where_too_much_has_failed(job: Job, said: Said) -> None:  # semantics F6
    ti = _may_fail(job, "clean")
    call(stage(job), ti)
    assert "stage routes failed, and checkpoint 1 has failed: routes: " in said.text
    assert REMEDIES[Reason.JOB_FAILURE].text("flights", job.storage) in said.text
    assert job.coordinator.head().pending == ()


def test_what_a_source_refuses_is_left_to_its_own_words(job: Job, said: Said) -> None:
    """The remedy of the checkpoint's failure is a clear, which the source has just refused."""
    ti = _may_fail(job, "clean")
    call(stage(job), ti, exception=RefusedError("files were read since. Mark this run as done", code="source_refused"))
    assert "stage routes failed: files were read since. Mark this run as done" in said.text
    assert "clear the failed stages" not in said.text


def test_other_tasks(job: Job, said: Said) -> None:
    job.trigger(RUN)
    call(EmptyOperator(task_id="notify"), Ti(run_id=RUN, task_id="notify"))
    assert "notify is not a stage of a checkpointed job; nothing to restore" in said.text
    assert [entry.id for entry in job.coordinator.head().pending] == [1]


@pytest.mark.parametrize("broken", ["storage", "connection", "context"])
def test_it_never_raises(job: Job, broken: str, said: Said) -> None:
    job.trigger(RUN)
    task = stage(job)
    if broken == "storage":
        (job.folder / "flights/head.json").write_text("half a")
    elif broken == "connection":
        task.storage, task.aws_conn_id = "s3://lake/x", "nowhere"
    more: Any = {} if broken == "context" else context(Ti(run_id=RUN), task=task)
    restore_latest_checkpoint(more)
    assert "The checkpoint was not restored by this callback; the stage's next try will do it" in said.text
