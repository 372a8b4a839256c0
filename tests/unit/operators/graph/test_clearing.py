"""Clears of a region failover through Airflow's API: by the callback, by the next try, once, or by hand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException

from airflow_cairn.checkpoint.answers import FailedOver, UpstreamsNotReady
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import AirflowApiError
from airflow_cairn.operators import SparkEpochOperator, restore_latest_checkpoint
from airflow_cairn.operators.graph.topology import where_of
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import Answer, ApiStandIn, Asked, OneRun, airflow_api, connect

RUN = "manual__r1"
BY_HAND = "run manual__r1, choose Clear Task Instance at a_task, b_task, with Downstream switched on"


class Pipeline:
    """A run of a ~ b → c in which a has acknowledged and b has begun; `c_task` stands for a stage of its own region."""

    def __init__(self, job: Job, **options: Any) -> None:
        self.job = job
        with DAG("flights", schedule=None):
            self.tasks = {
                uid: SparkEpochOperator(
                    task_id=f"{uid}_task", uid=uid, application="x.py", storage=job.storage, job=job.name, **options
                )
                for uid in ("a", "b", "c")
            }
            SparkEpochOperator(task_id="other", application="x.py", storage=job.storage, job="another")
            self.tasks["a"] >> self.tasks["b"] >> self.tasks["c"]
        job.trigger(RUN, StageSpec("a"), StageSpec("b", ("a",), pipelined=("a",)), StageSpec("c", ("b",)))
        self.tries = {uid: Ti(run_id=RUN, task_id=f"{uid}_task") for uid in ("a", "b", "c")}
        self.begin("a")
        self.begin("b")
        self.airflow = OneRun({f"{uid}_task": str(ti.id) for uid, ti in self.tries.items()}, {"b_task": "up_for_retry"})

    def begin(self, uid: str) -> None:
        """Begin a stage by its task; `a` acknowledges."""
        handover = self.job.begin(RUN, uid, str(self.tries[uid].id))
        if uid == "a":
            self.job.acknowledge(handover)

    def fail(self, uid: str, **more: Any) -> None:
        """Have Airflow call back for a stage's try."""
        restore_latest_checkpoint(context(self.tries[uid], task=self.tasks[uid], **more))

    def next_try(self, uid: str) -> None:
        """Run the stage's task once more."""
        self.tries[uid] = Ti(run_id=RUN, task_id=f"{uid}_task", try_number=2)
        self.tasks[uid].execute(context(self.tries[uid]))


@pytest.fixture
def pipeline(job: Job) -> Pipeline:
    return Pipeline(job)


@pytest.fixture
def api(pipeline: Pipeline, connections: Define) -> Iterator[ApiStandIn]:
    """An Airflow that knows the pipeline's run."""
    with airflow_api(pipeline.airflow, connections) as stand_in:
        yield stand_in


def test_the_callback_clears_the_rest_of_the_region_once(pipeline: Pipeline, api: ApiStandIn, said: Said) -> None:
    for _ in range(3):  # semantics F5
        pipeline.fail("b")
    (body,) = pipeline.airflow.cleared
    assert (body["dag_run_id"], body["task_ids"]) == (RUN, ["a_task"])
    assert body["note"] == "Cairn: region failover of checkpoint 2, `b` failed, attempt 2"
    assert "Cleared, to run again: a" in said.text
    assert "Stage a was not cleared: its task is on as a later try (not yet scheduled), which takes part" in said.text


def test_the_run_and_the_task_that_failed_have_a_note(pipeline: Pipeline, api: ApiStandIn) -> None:
    """A second report of the same failure writes no second note, and what a person has written stays."""
    pipeline.airflow.notes[""] = "Ana: watch this one"
    for _ in range(2):
        pipeline.fail("b", exception=ValueError("bad\nrow"))
    failed = "Cairn: flights: `b` failed (`ValueError: bad row`)"
    said = f"{failed} · checkpoint 2 · attempt 2 begins with its next try · starts empty"
    assert pipeline.airflow.notes == {"": f"Ana: watch this one\n\n{said}", "b_task": said}
    path = "/api/v2/dags/flights/dagRuns/manual__r1"
    assert pipeline.airflow.noted == [f"{path}?update_mask=note", f"{path}/taskInstances/b_task?update_mask=note"]


def test_who_comes_second_finishes_what_the_first_died_over(pipeline: Pipeline, api: ApiStandIn) -> None:
    """semantics F5: the failover is recorded, and then the first one is gone before it could clear."""
    answer = pipeline.job.coordinator.fail(epoch_name(RUN), "b", str(pipeline.tries["b"].id), "why")
    assert isinstance(answer, FailedOver)
    pipeline.fail("b")
    assert pipeline.airflow.tasks == [["a_task"]]


@pytest.mark.parametrize(
    ("id_", "state", "cleared"),
    [
        pytest.param("another try", "running", [], id="a person has cleared it between failure and callback"),
        pytest.param(None, "failed", [], id="given up by Airflow: renewed retries would never end"),
        pytest.param("a try that nobody knows", None, [["a_task"]], id="it ended before it wrote its name down"),
    ],
)
def test_what_airflow_says_of_a_task_decides_whether_it_is_cleared(
    pipeline: Pipeline, api: ApiStandIn, id_: str | None, state: str | None, cleared: list[list[str]]
) -> None:  # semantics F5
    pipeline.airflow.ids.update({"a_task": id_} if id_ else {})
    pipeline.airflow.states.update({"a_task": state} if state else {})
    pipeline.fail("b")
    assert pipeline.airflow.tasks == cleared


def test_a_failure_that_nothing_follows_clears_nothing(pipeline: Pipeline, api: ApiStandIn, said: Said) -> None:
    pipeline.tries["b"].try_number = 2
    pipeline.fail("b")
    assert pipeline.airflow.cleared == []
    assert "begins once you have mended that and cleared its task" in pipeline.airflow.notes["b_task"]
    assert "Clear task b_task, which clears these stages too, because they must run again: a" in said.text


@pytest.mark.parametrize("connected", [True, False], ids=["connection", "no connection"])
def test_a_region_of_one_stage_clears_nothing(
    pipeline: Pipeline, request: pytest.FixtureRequest, connected: bool, said: Said
) -> None:  # semantics F1
    if connected:
        request.getfixturevalue("api")
    pipeline.job.acknowledge(pipeline.job.begin(RUN, "b", str(pipeline.tries["b"].id)))
    pipeline.begin("c")
    pipeline.fail("c")
    assert "stage c failed; checkpoint 2" in said.text
    assert "manually" not in said.text
    assert pipeline.airflow.cleared == []


@pytest.mark.parametrize("why", ["undefined", "refused", "overloaded", "by choice"])
def test_a_callback_that_cannot_clear_says_what_to_clear(job: Job, connections: Define, why: str, said: Said) -> None:
    """The callback records the failure all the same, and raises nothing."""
    pipeline = Pipeline(job, **({"airflow_api_conn_id": None} if why == "by choice" else {}))
    pipeline.airflow.refuses = {"refused": 401, "overloaded": 400}.get(why)
    with ApiStandIn(pipeline.airflow) as api:
        if why != "undefined":
            connect(connections, api)
        pipeline.fail("b")
    assert BY_HAND in said.text
    assert "attempt 2 opened" in said.text
    assert job.coordinator.head().pending[0].attempt == 2
    assert pipeline.airflow.cleared == []


def test_the_next_try_clears_what_no_callback_did(pipeline: Pipeline, api: ApiStandIn, said: Said) -> None:
    """semantics F5: the task's process was killed; nothing is submitted before a has run again."""
    with pytest.raises(AirflowRescheduleException) as caught:
        pipeline.next_try("b")
    assert pipeline.airflow.tasks == [["a_task"]]
    assert pipeline.airflow.cleared[0]["note"] == (
        "Cairn: region failover of checkpoint 2, `b` reads from it, attempt 2"
    )
    assert caught.value.reschedule_date.tzinfo is not None
    assert "must run again first. Cleared, to run again: a" in said.text
    with pytest.raises(AirflowRescheduleException):
        pipeline.next_try("b")
    assert pipeline.airflow.tasks == [["a_task"]]
    assert "Stage a was not cleared: its task is on as a later try (not yet scheduled)" in said.text


@pytest.mark.parametrize("why", ["undefined", "refused", "by choice", "invalid"])
def test_a_try_that_nobody_can_help_fails_at_once(job: Job, connections: Define, why: str) -> None:
    """No retry would change the failure; a person clears, and the text says what."""
    pipeline = Pipeline(job, **({"airflow_api_conn_id": None} if why == "by choice" else {}))
    pipeline.airflow.refuses = 403
    with ApiStandIn(pipeline.airflow) as api:
        if why == "invalid":
            connections("cairn_airflow_api", json.dumps({"conn_type": "http"}))
        elif why != "undefined":
            connect(connections, api)
        with pytest.raises(AirflowFailException, match=BY_HAND):
            pipeline.next_try("b")


def test_a_try_that_finds_the_api_down_leaves_it_to_the_next(job: Job, connections: Define) -> None:
    pipeline = Pipeline(job)
    pipeline.airflow.refuses = 400
    said = f"the next try tries again, or clear manually.*{BY_HAND}"
    with airflow_api(pipeline.airflow, connections), pytest.raises(AirflowApiError, match=said):
        pipeline.next_try("b")


def test_an_upstream_that_will_not_come_back_is_not_waited_for(pipeline: Pipeline, api: ApiStandIn) -> None:
    """A person has marked it as failed: it has ended as another try. Waiting would never end."""
    pipeline.airflow.ids["a_task"], pipeline.airflow.states["a_task"] = "marked by hand", "failed"
    with pytest.raises(AirflowFailException, match=f"nothing will start them: .*{BY_HAND}"):
        pipeline.next_try("b")
    assert pipeline.airflow.cleared == []


def test_an_upstream_that_acknowledges_before_the_clear(pipeline: Pipeline, api: ApiStandIn) -> None:
    """The upstream ran again while this try was starting: its task has ended by the time of the look."""
    pipeline.fail("b")
    pipeline.tries["a"] = Ti(run_id=RUN, task_id="a_task", try_number=2)

    def acknowledges(asked: Asked) -> Answer:
        if asked.method == "GET" and pipeline.airflow.states["a_task"] is None:
            pipeline.begin("a")
            pipeline.airflow.states["a_task"] = "success"
        return pipeline.airflow(asked)

    api.answer = acknowledges
    with pytest.raises(AirflowRescheduleException):
        pipeline.next_try("b")
    assert pipeline.airflow.tasks == [["a_task"]]
    handover = pipeline.job.begin(RUN, "b", str(pipeline.tries["b"].id))
    assert handover.attempt == 2


@pytest.mark.parametrize("conn_id", ["cairn_airflow_api", None])
def test_an_upstream_that_the_dag_file_has_no_more(job: Job, connections: Define, conn_id: str | None) -> None:
    """The next try says so at once, and names only tasks that the DAG has (F1)."""
    pipeline = Pipeline(job, airflow_api_conn_id=conn_id)
    pipeline.tasks["a"].uid = "renamed"
    with airflow_api(pipeline.airflow, connections) as api, pytest.raises(AirflowFailException) as caught:
        pipeline.next_try("b")
    assert api.asked == []
    assert str(caught.value) == (
        "checkpoint 2 · attempt 2: a, which stage b reads from, must run again first: the DAG file no longer has a, "
        "which this run's checkpoint expects. To go on without it, clear the task that triggers: on the page of the "
        "DAG flights, run manual__r1, choose Clear Task Instance at the task that triggers the checkpoint, with "
        "Downstream switched on, and Past, Future, Upstream, 'Clear only failed tasks' and 'Prevent rerun if task is "
        "running' switched off; the next attempt expects the stages that the file has now. Or put a back into the "
        "file, then clear its task and those that have failed, with Downstream"
    )


def test_a_callback_names_no_stage_that_the_dag_file_has_no_more(pipeline: Pipeline, said: Said) -> None:
    pipeline.tasks["a"].uid = "renamed"
    pipeline.fail("b")
    assert "the DAG file no longer has a" in said.text
    assert "a_task" not in said.text


@pytest.mark.parametrize("content", [None, b'{"half'], ids=["deleted", "broken"])
def test_a_stage_whose_handover_is_lost_is_cleared(
    pipeline: Pipeline, api: ApiStandIn, said: Said, content: bytes | None
) -> None:  # semantics F5
    """The try that held it is unknown; that its task has ended well without the new execution is known."""
    (handover,) = (pipeline.job.folder / "flights").glob("chk-*/handover/a/*.json")
    handover.unlink() if content is None else handover.write_bytes(content)
    pipeline.fail("b")
    with pytest.raises(AirflowRescheduleException):
        pipeline.next_try("b")
    assert pipeline.airflow.tasks == [["a_task"]]
    assert "Cleared, to run again: a" in said.text


def test_the_stages_of_the_job(pipeline: Pipeline, tmp_path: Path) -> None:
    """Stages of the same job, whatever is rendered already in the task that runs."""
    pipeline.tasks["b"].job = pipeline.tasks["c"].job = pipeline.tasks["a"].job = "{{ dag.dag_id }}"
    where = where_of(pipeline.tasks["b"], "flights", "r1")
    assert {uid: str(task) for uid, task in where.tasks.items()} == {"a": "a_task", "b": "b_task", "c": "c_task"}


def test_the_try_that_found_nothing_to_submit_is_the_one_that_is_cleared(
    pipeline: Pipeline, api: ApiStandIn, said: Said
) -> None:
    """semantics F5: a's process was killed while its driver lived on; its retry has another id, and ends well."""
    pipeline.tries["a"] = Ti(run_id=RUN, task_id="a_task", try_number=2, max_tries=3)
    assert pipeline.tasks["a"].execute(context(pipeline.tries["a"])) is None
    pipeline.airflow.ids["a_task"] = str(pipeline.tries["a"].id)
    assert "already acknowledged, nothing to submit" in said.text
    pipeline.fail("b")
    assert pipeline.airflow.tasks == [["a_task"]]


def test_a_later_try_that_runs_is_left_alone_and_looked_at_again(pipeline: Pipeline, api: ApiStandIn) -> None:
    """The later try has begun before the failover, or after: its work shows when it has ended."""
    pipeline.airflow.ids["a_task"], pipeline.airflow.states["a_task"] = "a later try", "running"
    pipeline.fail("b")
    assert pipeline.airflow.cleared == []
    pipeline.airflow.states["a_task"] = "success"
    with pytest.raises(AirflowRescheduleException):
        pipeline.next_try("b")
    assert pipeline.airflow.tasks == [["a_task"]]


def test_a_task_that_claims_while_it_is_looked_at_is_not_cleared(
    pipeline: Pipeline, api: ApiStandIn, said: Said
) -> None:
    """semantics F5: the store is asked after Airflow, so a try that has begun for the new attempt is seen."""
    pipeline.airflow.ids["a_task"] = "a try that nobody knows"

    def begins(asked: Asked) -> Answer:
        if asked.method == "GET":
            pipeline.job.begin(RUN, "a", "a try that nobody knows")
        return pipeline.airflow(asked)

    api.answer = begins
    pipeline.fail("b")
    assert pipeline.airflow.cleared == []
    assert "Stage a was not cleared: it runs in the new attempt already" in said.text


def test_a_stage_that_begins_clears_what_nobody_has_cleared_beside_it(job: Job, connections: Define) -> None:
    """semantics F5: b has failed over, and who did that died before it could clear c, which reads from b."""
    pipeline = Pipeline(job)
    pipeline.job.acknowledge(pipeline.job.begin(RUN, "b", str(pipeline.tries["b"].id)))
    pipeline.begin("c")
    cleared = Ti(run_id=RUN, task_id="b_task", try_number=2, max_tries=2, task_states={("c_task", -1): "success"})
    # A person has cleared b; its first try opened the attempt and acknowledged, and was killed before it could clear.
    answer = job.coordinator.begin(epoch_name(RUN), "b", "killed", try_number=2, first_try=2)
    assert isinstance(answer, UpstreamsNotReady), answer
    job.acknowledge(job.begin(RUN, "a", "a again"))
    job.acknowledge(job.begin(RUN, "b", "killed"))
    with airflow_api(pipeline.airflow, connections):
        pipeline.tasks["b"].execute(context(cleared))
    assert pipeline.airflow.tasks == [["c_task"]]
    assert pipeline.airflow.cleared[0]["note"] == "Cairn: `b` runs again, and this stage with it"


def test_what_airflow_starts_by_itself_needs_no_connection(job: Job, said: Said) -> None:
    """A person has cleared the stage with Downstream: nothing is left to clear, so the API is not asked."""
    pipeline = Pipeline(job)
    pipeline.job.acknowledge(pipeline.job.begin(RUN, "b", str(pipeline.tries["b"].id)))
    pipeline.begin("c")
    job.coordinator.begin(epoch_name(RUN), "b", "killed", try_number=2, first_try=2)
    job.acknowledge(job.begin(RUN, "a", "a again"))
    job.acknowledge(job.begin(RUN, "b", "killed"))
    cleared = Ti(run_id=RUN, task_id="b_task", try_number=2, max_tries=2, task_states={("c_task", -1): "scheduled"})
    pipeline.tasks["b"].execute(context(cleared))
    assert "could not be cleared" not in said.text


@pytest.mark.parametrize(("state", "cleared"), [("success", [["a_task"]]), ("up_for_retry", []), ("running", [])])
def test_a_failed_stage_is_cleared_only_if_a_person_marked_it(
    pipeline: Pipeline, api: ApiStandIn, state: str, cleared: list[list[str]]
) -> None:
    """semantics F5: the mark as a success came while the task ran, and ended its driver; Airflow tries it no more."""
    pipeline.fail("b")
    pipeline.airflow.cleared.clear()
    marked = pipeline.job.begin(RUN, "a", "marked")
    pipeline.job.coordinator.fail(epoch_name(RUN), "a", "marked", "killed by signal 9")
    assert marked.attempt == 2
    pipeline.airflow.ids["a_task"], pipeline.airflow.states["a_task"] = "marked", state
    with pytest.raises(AirflowRescheduleException):
        pipeline.next_try("b")
    assert pipeline.airflow.tasks == cleared


def test_an_upstream_whose_acknowledgement_is_gone_is_cleared(pipeline: Pipeline, api: ApiStandIn, job: Job) -> None:
    """semantics F5: the stage has begun in this attempt, so no failover names it, and its task has ended well."""
    pipeline.fail("b")
    pipeline.airflow.cleared.clear()
    pipeline.job.begin(RUN, "a", "ended well")
    pipeline.airflow.ids["a_task"], pipeline.airflow.states["a_task"] = "ended well", "success"
    with pytest.raises(AirflowRescheduleException):
        pipeline.next_try("b")
    assert pipeline.airflow.tasks == [["a_task"]]
