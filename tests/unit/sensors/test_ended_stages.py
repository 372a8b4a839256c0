"""Tasks of stages that a person marks: the task that waits says so at once, and nothing ends green (C1, D3, F5)."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_cairn.checkpoint.answers import Progress, Waiting
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CheckpointFailedError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.hooks.clear_body import TaskRef
from airflow_cairn.tasks.stage_states import check_awaited
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
    """Its failure may be what replaced the others, which are cleared after that."""
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


def test_an_acknowledgement_that_came_meanwhile_counts() -> None:  # semantics C1
    stages, ended = {"b": TaskRef("b")}, {TaskRef("b"): SUCCESS}

    def check(before: Progress, now: Progress) -> None:
        check_awaited("flights", epoch_name("r"), before, now, stages, ended, lambda _stage: "why")

    waiting = Waiting(1, 1, (), ("b",))
    with pytest.raises(CheckpointFailedError, match="checkpoint 1 cannot complete"):
        check(waiting, waiting)
    check(waiting, Waiting(1, 1, ("b",), ()))
    check(waiting, Waiting(1, 1, ("b",), ("c",)))
    check(waiting, Waiting(2, 2, (), ("b",)))
