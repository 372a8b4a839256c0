"""A group's first stage triggers the checkpoint in its own task, and Airflow passes over the task that triggers."""

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException, TaskDeferred
from airflow.sdk.execution_time.xcom import XCom

from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator, TriggerCheckpointOperator
from airflow_cairn.operators.graph.stages import instances_of
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.triggers import RequestTrigger
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.narrowing import expect
from tests.support.trigger_events import payload
from tests.unit.operators.group.test_master_hooks import Feed

TRIGGER = "epoch.trigger_checkpoint"
STAGES = (StageSpec("a"), StageSpec("b", ("a",)))


class Flights:
    """A DAG of a → b, whose drivers acknowledge; and what was kept as XComs of the task that triggers.

    Without an edge from a to b if `apart`, and beside a mapped stage m.
    """

    def __init__(self, job: Job, *, apart: bool = False, **options: Any) -> None:
        self.job = job
        self.xcoms: dict[str, Any] = {}
        self.pushed: list[str] = []
        options = {"reads_window": False, "storage": job.storage, **options}
        with DAG("flights", schedule=None) as self.dag, CheckpointedTaskGroup("epoch", **options):
            a, b = (stage(uid) for uid in "ab")
            if apart:
                SparkEpochOperator.partial(task_id="m", retries=0).expand(application=["x.py", "y.py"])
            else:
                a >> b

    def set(self, key: str, value: Any, *, dag_id: str, task_id: str, run_id: str) -> None:
        """Keep an XCom, as the API server does."""
        assert (dag_id, task_id) == ("flights", TRIGGER)
        self.xcoms[key] = {"run": run_id, **value}
        self.pushed.append(key)

    def run(self, uid: str, run_id: str = "r1", *, wakes: dict[str, Any] | None = None, **more: Any) -> Any:
        """Run a try of a stage, or go on with one that was woken."""
        facts = {name: more.pop(name) for name in ("task_reschedule_count", "dag_run") if name in more}
        ti = Ti(run_id=run_id, task_id=f"epoch.{uid}", **{"max_tries": 0, **more})
        task: Any = self.dag.get_task(ti.task_id)
        if ti.map_index is not None and ti.map_index >= 0:
            task = instances_of(task)[ti.map_index].operator
        task = task.prepare_for_execution()
        at = context(ti, run_id=run_id, task=task, **facts)
        return task.execute(at) if wakes is None else task.execute_complete(at, wakes)

    def wait(self, run_id: str = "r1", **states: str) -> Any:
        """Run the task that waits."""
        given = {(f"epoch.{uid}", -1): state for uid, state in states.items()}
        task: Any = self.dag.get_task("epoch.wait_for_checkpoint")
        return task.execute(context(Ti(run_id=run_id, task_id=task.task_id, task_states=given)))


def trigger_of(dag: DAG) -> TriggerCheckpointOperator:
    return expect(TriggerCheckpointOperator, dag.get_task(TRIGGER))


def stage(uid: str, **options: Any) -> SparkEpochOperator:
    return SparkEpochOperator(task_id=uid, application="x.py", retries=0, **options)


Make = Callable[..., Flights]


@pytest.fixture
def make(job: Job, monkeypatch: pytest.MonkeyPatch) -> Make:
    def acknowledge(_operator: Any, _context: Any, _drivers: Any, _settings: Any, answer: Submit, _run: Any) -> None:
        job.acknowledge(answer.handover)

    def flights(**options: Any) -> Flights:
        made = Flights(job, **options)
        monkeypatch.setattr(XCom, "set", made.set)
        monkeypatch.setattr(SparkEpochOperator, "_submit", acknowledge)
        return made

    return flights


def test_an_epoch_needs_no_task_before_its_first_stage(make: Make, job: Job) -> None:
    """semantics T9: the stage's task makes the checkpoint pending, and its result is an XCom as it was."""
    flights = make(slice_detail={"of": "{{ run_id }}"})
    assert flights.run("a")["checkpoint"] == 1
    assert flights.xcoms == {
        "return_value": {
            "run": "r1",
            "job": "flights",
            "storage": job.storage,
            "checkpoint": 1,
            "epoch": "r1",
            "attempt": 1,
            "restored_from": None,
        }
    }
    assert job.begin("r1", "b").slice.detail == {"of": "r1"}, "the trigger's templates are rendered"
    assert trigger_of(flights.dag).slice_detail == {"of": "{{ run_id }}"}


def test_what_was_triggered_before_is_not_triggered_again(make: Make, job: Job) -> None:
    """semantics T9: its process has died after the trigger, or Airflow has run the task that triggers."""
    flights = make()
    job.trigger("r1", *STAGES)
    assert flights.run("a")["checkpoint"] == 1
    assert flights.xcoms == {}


def test_only_the_first_stage_triggers(make: Make, job: Job) -> None:  # semantics T9
    """Another one has it do so, and where it may clear no task it says in one try which one to clear."""
    with pytest.raises(AirflowFailException, match=r"choose Clear Task Instance at epoch\.a, with Downstream"):
        make(airflow_api_conn_id=None).run("b")
    assert job.coordinator.head().next_id == 1


def test_a_run_with_nothing_to_read_is_skipped(make: Make, job: Job) -> None:  # semantics T8
    flights = make()
    for uid in "ab":
        flights.run(uid)
    with pytest.raises(AirflowSkipException, match="epoch r1 is completed"):
        flights.run("a")
    flights.wait()
    with pytest.raises(AirflowSkipException, match="so there is none"):
        flights.wait("r2", a="skipped", b="skipped")


def test_it_waits_for_its_turn_in_the_triggerer(make: Make, job: Job) -> None:  # semantics T2
    flights = make()
    job.trigger("r0", *STAGES)
    with pytest.raises(TaskDeferred) as deferred:
        flights.run("a", states={"r0": "running"})
    assert flights.xcoms["cairn_declined"]["reason"] == "TOO_MANY_CONCURRENT_CHECKPOINTS"
    for uid in "ab":
        job.acknowledge(job.begin("r0", uid))
    job.coordinator.complete(1)
    waits = expect(RequestTrigger, deferred.value.trigger)
    assert deferred.value.method_name == "execute_complete"
    assert flights.run("a", wakes=payload(waits))["checkpoint"] == 2


def test_a_wait_that_failed_fails_the_stage(make: Make) -> None:
    event = {"status": "error", "detail": "no connection", "kind": "invalid"}
    with raises_code("trigger_declined", match="waiting for a place failed: no connection"):
        make().run("a", wakes=event)


def test_without_a_triggerer_it_comes_back(make: Make, job: Job) -> None:
    flights = make(deferrable=False)
    job.trigger("r0", *STAGES)
    with pytest.raises(AirflowRescheduleException):
        flights.run("a", states={"r0": "running"})


def test_what_no_retry_cures_fails_it_at_once(make: Make, job: Job) -> None:  # semantics W8
    job.complete("r0")
    job.coordinator.ownership.adopt("another_dag")
    with pytest.raises(AirflowFailException, match="another_dag"):
        make().run("a")


def test_what_a_retry_may_cure_uses_up_no_try_of_the_stage(
    make: Make, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """The task that triggers would be tried three times, and the stage's author wants no retry."""

    def away(*_: Any, **__: Any) -> None:
        raise UnavailableError("the store is away")

    flights = make()
    monkeypatch.setattr(TriggerCheckpointOperator, "_ask", away)
    for count in (0, 1):
        with pytest.raises(AirflowRescheduleException):
            flights.run("a", task_reschedule_count=count)
    assert "the store is away" in said.text
    with pytest.raises(UnavailableError, match=r"no checkpoint was triggered: the store is away \(IO_EXCEPTION\)"):
        flights.run("a", task_reschedule_count=2)


def test_a_rewound_epoch_starts_anew_where_a_person_asks(make: Make, job: Job) -> None:
    """semantics R5: not in Airflow's own retry, which comes whatever was rewound since."""
    flights = make()
    for run in ("r0", "r1"):
        for uid in "ab":
            flights.run(uid, run)
    job.coordinator.rewind(1)
    for uid in "ab":
        with pytest.raises(AirflowFailException, match="the job was rewound to checkpoint 1"):
            flights.run(uid, try_number=2, max_tries=2)
    assert flights.run("a", try_number=2, max_tries=1)["checkpoint"] == 3
    assert job.coordinator.head().pending[0].epoch == epoch_name("r1")


def test_it_asks_the_hooks_that_have_not_answered(make: Make, job: Job) -> None:  # semantics T7
    """The process that triggered has died before its hooks answered."""
    feed = Feed()
    flights = make(master_hooks=[feed])
    feed.broken = True
    with pytest.raises(AirflowRescheduleException):
        flights.run("a")
    feed.broken = False
    assert flights.run("a", task_reschedule_count=1)["stage"] == "a"
    assert "trigger" in feed.calls


def test_it_opens_the_next_attempt_of_an_overtaken_epoch(make: Make, job: Job) -> None:
    """semantics C2, T7, T8: only a trigger can, and the one that is due is this task itself."""
    flights = make(master_hooks=[Feed()])
    flights.run("a")
    job.coordinator.abort(1, Reason.CHECKPOINT_EXPIRED, "not complete in time")
    for uid in "ab":
        flights.run(uid, "r2")
    assert flights.run("a", try_number=2, max_tries=1)["checkpoint"] == 3


def test_a_clear_takes_up_what_the_dag_has_become(make: Make, job: Job) -> None:
    """A stage was added, and its own try says what to clear: the pending attempt does not expect it."""
    flights = make()
    job.trigger("r1", "a", StageSpec("old", ("a",)))
    assert flights.run("a")["checkpoint"] == 1
    with pytest.raises(InvalidConfigError, match="clear the task that triggers"):
        flights.run("b")
    assert flights.run("a", try_number=2, max_tries=1)["checkpoint"] > 1
    assert flights.run("b", try_number=2, max_tries=1)["stage"] == "b"


def test_a_clear_leaves_an_attempt_that_fits(make: Make, job: Job) -> None:  # semantics T9
    flights = make()
    assert [flights.run("a", try_number=number, max_tries=number - 1)["checkpoint"] for number in (1, 2)] == [1, 2]
    assert [entry.attempt for entry in job.coordinator.head().pending] == [2], "it runs again, as any stage"
