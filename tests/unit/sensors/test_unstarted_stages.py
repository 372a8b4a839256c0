"""The task that waits starts what a failover has replaced and nobody started, and says why a stage is missing (F5)."""

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import FailedOver
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import AirflowApiError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.store import acks
from tests.support.airflow_fixtures import Define
from tests.support.airflow_stage import Job
from tests.support.api_stand_in import OneRun, airflow_api
from tests.support.narrowing import expect
from tests.unit.sensors.test_skipped_stages import Run

SUCCESS = "success"
STAGES = ("a", "b", "c")


@pytest.fixture
def run(job: Job) -> Run:
    """A run of a → b ~ c, and d beside them; all have acknowledged but c, whose driver was killed."""
    found = Run(job, exchange="pipelined")
    found.finish("a", "d-0", "d-1", "d_1")
    job.acknowledge(job.begin(found.run_id, "b", "b-1"))
    job.begin(found.run_id, "c", "c-1")
    answer = expect(FailedOver, job.coordinator.fail(epoch_name(found.run_id), "c", "c-1", "killed"))
    assert [each.stage for each in answer.restarted] == ["b"]
    return found


def all_ended() -> dict[tuple[str, int], str]:
    return {("b", -1): SUCCESS, ("c", -1): SUCCESS}


def test_what_everybody_else_died_over_is_started_by_who_waits(run: Run, connections: Define) -> None:
    """semantics F5: the callback and the next try of c died before they could clear b."""
    airflow = OneRun({"epoch.b": "b-1", "epoch.c": "c-2"})
    with airflow_api(airflow, connections), pytest.raises(AirflowRescheduleException):
        run.look(all_ended())
    assert airflow.tasks == [["epoch.b", "epoch.c"]], "c has been marked: its own retry will not come"


def test_what_has_begun_since_is_left_alone(run: Run, connections: Define) -> None:
    airflow = OneRun({"epoch.b": "b-2", "epoch.c": "c-2"}, {"epoch.b": "running"})
    with airflow_api(airflow, connections):
        assert run.look({("b", -1): "running", ("c", -1): "failed"}) is None
    assert airflow.cleared == []


def test_an_api_that_does_not_answer_is_asked_again(run: Run, connections: Define) -> None:
    """The task comes back for it and uses up no retry: waiting on would wait for nothing."""
    airflow = OneRun({"epoch.b": "b-1"}, refuses=400)
    with airflow_api(airflow, connections), pytest.raises(AirflowRescheduleException) as caught:
        run.look(all_ended())
    assert isinstance(caught.value.__cause__, AirflowApiError)


def test_without_the_api_it_says_why_each_is_missing_and_what_to_clear(run: Run) -> None:
    with pytest.raises(AirflowFailException) as caught:
        run.look(all_ended())
    said = str(caught.value)
    why = "attempt 2 has to run it again, because the attempt before ended (c: killed (JOB_FAILOVER_REGION))"
    assert f"epoch.b (success): {why}, and its task has not run since" in said
    assert "Clear them with Downstream, and this task with them" in said


class TestCauses:
    """Causes in the store for a stage whose task has ended without an acknowledgement."""

    @pytest.fixture
    def run(self, job: Job) -> Run:
        found = Run(job, CheckpointConfig(tolerable_failed_checkpoints=3))
        found.finish("a", "c", "d-0", "d-1", "d_1")
        return found

    def why(self, run: Run) -> str:
        with pytest.raises(AirflowFailException) as caught:
            run.look(all_ended())
        return str(caught.value)

    def test_it_never_asked(self, run: Run) -> None:
        assert "epoch.b (success): it has not begun: its task ended before it asked for its work" in self.why(run)

    def test_its_acknowledgement_was_deleted(self, run: Run) -> None:
        coordinator = run.job.coordinator
        handover = run.job.begin(run.run_id, "b", "b-1")
        marker = layout.ack(handover.checkpoint, "b", handover.token)
        # The marker is deleted before the checkpoint could complete.
        assert not acks.has_acknowledged(coordinator.files, "b", handover.execution)
        said = self.why(run)
        assert "it has begun, and its acknowledgement is not in the store" in said
        assert f"or {coordinator.files.full(marker)} was deleted" in said

    def test_an_attempt_that_expired_took_its_work_along(self, run: Run) -> None:
        coordinator = run.job.coordinator
        run.job.begin(run.run_id, "b", "b-1")
        coordinator.abort(1, Reason.CHECKPOINT_EXPIRED, "not all had acknowledged within 600 s")
        run.execute("trigger_checkpoint")
        said = self.why(run)
        assert "because the attempt before ended (not all had acknowledged within 600 s (CHECKPOINT_EXPIRED))" in said
        assert "marked" not in said


def test_a_deleted_acknowledgement_is_made_again(job: Job, connections: Define) -> None:
    """semantics F5: the task has ended well, and what it acknowledged is gone; no failover has replaced anything."""
    run = Run(job)
    run.finish("a", "c", "d-0", "d-1", "d_1")
    run.job.begin(run.run_id, "b", "b-1")
    airflow = OneRun({"epoch.b": "b-1"})
    with airflow_api(airflow, connections):
        with pytest.raises(AirflowRescheduleException):
            run.look({("b", -1): SUCCESS})
        assert airflow.tasks == [["epoch.b"]]
        # Stage b has acknowledged since, and another look clears nothing.
        run.job.acknowledge(run.job.begin(run.run_id, "b", "b-2"))
        run.finish("c")
        assert run.look()["acks"] == 6
    assert airflow.tasks == [["epoch.b"]]
