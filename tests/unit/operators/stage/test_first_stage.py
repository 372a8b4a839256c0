"""A group's first stages trigger the checkpoint in their own tasks; of several one at a time, the others wait (T10)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, timezone
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSkipException, TaskDeferred
from airflow.sdk.execution_time.xcom import XCom

from airflow_cairn.checkpoint.acts.trigger import HeldBy
from airflow_cairn.checkpoint.answers import Submit, Triggered
from airflow_cairn.checkpoint.documents.attempt import Owner, StageSpec
from airflow_cairn.checkpoint.documents.entries import TriggeringTask
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.source import Reading
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator, TriggerCheckpointOperator
from airflow_cairn.operators.graph.stages import instances_of
from airflow_cairn.operators.stage import trigger_and_complete
from airflow_cairn.storage.errors import UnavailableError
from airflow_cairn.triggers import RequestTrigger
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.narrowing import expect
from tests.support.trigger_events import payload
from tests.unit.operators.group.test_master_hooks import Feed

__all__ = ["make"]

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


def away(*_: Any, **__: Any) -> None:
    raise UnavailableError("the store is away")


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
    """semantics T9: the process has died after the trigger, or Airflow has run the task that triggers."""
    flights = make()
    job.trigger("r1", *STAGES)
    assert flights.run("a")["checkpoint"] == 1
    assert flights.xcoms == {}


def test_only_the_first_stage_triggers(make: Make, job: Job) -> None:  # semantics T9
    """A later stage has the first one trigger; where it may clear no task, one try says which one to clear."""
    with pytest.raises(AirflowFailException, match=r"choose Clear Task Instance at epoch\.a, with Downstream"):
        make(airflow_api_conn_id=None).run("b")
    assert job.coordinator.head().next_id == 1


@pytest.mark.parametrize("apart", [False, True])
def test_a_run_with_nothing_to_read_is_skipped(make: Make, job: Job, apart: bool) -> None:  # semantics T8, T10
    flights, stages = make(apart=apart), EVERY if apart else "ab"
    for uid in stages:
        run(flights, uid)
    for uid in stages:
        with pytest.raises(AirflowSkipException, match="epoch r1 is completed"):
            run(flights, uid)
    flights.wait()
    assert triggering(job) == []
    with pytest.raises(AirflowSkipException, match="so there is none"):
        flights.wait("r2", a="skipped", b="skipped", m="skipped")


def test_it_waits_for_its_turn_in_the_triggerer(make: Make, job: Job) -> None:  # semantics T2
    flights = make()
    job.trigger("r0", *STAGES)
    with pytest.raises(TaskDeferred) as deferred:
        flights.run("a", states={"r0": "running"})
    assert flights.xcoms["cairn_declined"]["reason"] == "TOO_MANY_CONCURRENT_CHECKPOINTS"
    with pytest.raises(AirflowRescheduleException):  # without a triggerer it comes back
        make(deferrable=False).run("a", states={"r0": "running"})
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


def test_what_a_retry_may_cure_uses_up_no_try_of_the_stage(
    make: Make, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """The task that triggers would be tried three times, and the stage's author wants no retry."""
    flights = make()
    monkeypatch.setattr(TriggerCheckpointOperator, "_ask", away)
    for count in (0, 1):
        with pytest.raises(AirflowRescheduleException):
            flights.run("a", task_reschedule_count=count)
    assert "the store is away" in said.text
    with pytest.raises(UnavailableError, match=r"no checkpoint was triggered: the store is away \(IO_EXCEPTION\)"):
        flights.run("a", task_reschedule_count=2)


def test_a_rewound_epoch_starts_anew_where_a_person_asks(make: Make, job: Job) -> None:
    """semantics R5: Airflow's own retry starts nothing anew, for it comes whatever was rewound since."""
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
    """semantics C2, T7, T8: only a trigger can open it, and the task that is due to trigger is this one."""
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


EVERY = ("a", "b", "m-0", "m-1")
EXPECTED = tuple(StageSpec(uid, member_of="m" if uid.startswith("m") else None) for uid in EVERY)


@dataclass
class Day:
    """A source that counts how often it was asked."""

    name: str = "day"
    positioned: bool = True
    asked: list[str] = field(default_factory=list)

    def read(self, run: Any, position: Any) -> Reading:
        self.asked.append(run.run_id)
        return Reading(run.run_id)

    def advance(self, position: Any, part: Any, shelf: Any) -> Any:
        return part


def run(flights: Flights, uid: str, run_id: str = "r1", **more: Any) -> Any:
    """Run a try of a stage, or of an instance of the mapped one."""
    task, _, index = uid.partition("-")
    none = dict.fromkeys(("logical_date", "data_interval_start", "data_interval_end", "conf"))
    facts = SimpleNamespace(run_id=run_id, run_type="manual", consumed_asset_events=(), **none)
    return flights.run(task, run_id, map_index=int(index or -1), dag_run=facts, **more)


def states(**given: str) -> dict[tuple[str, int], str]:
    """Airflow's states of the given stages' tasks; it knows nothing of the others, which run."""
    return {(f"epoch.{uid}", -1): state for uid, state in given.items()}


def holds(job: Job, uid: str, run_id: str = "r1", *, failed: bool = False) -> TriggeringTask:
    """Let a stage's task have the right to trigger, or have failed to trigger."""
    task, _, index = uid.partition("-")
    mine = TriggeringTask(epoch_name(run_id), f"epoch.{task}", int(index or -1))
    assert take(job, mine) is None
    if failed:
        job.coordinator.trigger_right.give_back(mine, failed=True)
    return mine


def take(job: Job, mine: TriggeringTask) -> HeldBy | None:
    def unasked(task: TriggeringTask) -> Any:
        raise AssertionError(f"no other task had it: {task}")

    return job.coordinator.trigger_right.take(mine, Owner("flights", "r1"), unasked, asked_for=False)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Let others do something while a task waits, once for each time that it does."""

    def during(*steps: Callable[[], object]) -> list[float]:
        waits: list[float] = []
        left = list(steps)

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            assert left, "it waits for nothing"
            left.pop(0)()

        monkeypatch.setattr(trigger_and_complete, "system_sleep", sleep)
        return waits

    return during


def triggering(job: Job) -> list[tuple[str, bool]]:
    return [(task.task_id, task.failed) for task in job.coordinator.head().triggering]


@pytest.mark.parametrize("first", EVERY)
def test_whichever_comes_first_triggers_for_all(make: Make, job: Job, first: str) -> None:  # semantics T9, T10
    day, feed = Day(), Feed()
    flights = make(apart=True, source=day, master_hooks=[feed], reads_window=None)
    for uid in (first, *(each for each in EVERY if each != first)):
        assert run(flights, uid)["checkpoint"] == 1
    assert (day.asked, feed.calls.count("trigger")) == (["r1"], 1)
    assert flights.pushed == ["return_value"]
    assert triggering(job) == []
    assert flights.wait()["checkpoint"] == 1


def test_a_zombie_leaves_the_right_to_its_next_try(make: Make, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics T10: while it triggers, Airflow takes it for dead and begins the task's next try."""
    asks = TriggerCheckpointOperator._ask

    def meanwhile_the_next_try(*given: Any) -> Any:
        holds(job, "a")
        return asks(*given)

    monkeypatch.setattr(TriggerCheckpointOperator, "_ask", meanwhile_the_next_try)
    assert run(make(apart=True), "a")["checkpoint"] == 1
    assert triggering(job) == [("epoch.a", False)], "the next try triggers still"


@pytest.mark.parametrize("holder", ["a", "m-1"])
def test_it_waits_for_the_one_that_triggers(
    make: Make, job: Job, meanwhile: Callable[..., list[float]], said: Said, holder: str
) -> None:  # semantics T10
    flights = make(apart=True)
    mine = holds(job, holder)
    waits = meanwhile(
        lambda: None,
        lambda: job.trigger("r1", *EXPECTED),
        lambda: job.coordinator.trigger_right.give_back(mine),
    )
    running = {("epoch.m", 1): "running"} if holder == "m-1" else {}
    assert run(flights, "b", task_states=running)["checkpoint"] == 1
    assert len(waits) == 2, "once the attempt is pending it begins, and the right may come back later"
    assert flights.xcoms == {}
    assert said.text.count("triggers the checkpoint; waiting for it") == 1


def test_it_waits_for_the_hooks_that_the_other_one_asks(
    make: Make, job: Job, meanwhile: Callable[..., list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics T7, T10
    feed = Feed()
    flights = make(apart=True, master_hooks=[feed])
    asks = TriggerCheckpointOperator._ask
    pending: list[Triggered] = []

    def dies_before_the_hooks(*given: Any) -> Any:
        answer = expect(Triggered, asks(*given))
        pending.append(answer)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TriggerCheckpointOperator, "_ask", dies_before_the_hooks)
        with pytest.raises(KeyboardInterrupt):
            run(flights, "a")
    assert len(pending) == 1
    waits = meanwhile(lambda: None, lambda: job.coordinator.ask_hooks(pending[0].pending, [feed]))
    assert run(flights, "b")["checkpoint"] == 1
    assert len(waits) == 2
    assert feed.calls.count("trigger") == 1


@pytest.mark.parametrize("state", ["failed", "up_for_retry", "deferred", "queued", "success", "removed"])
def test_it_takes_the_place_of_one_that_no_longer_runs(make: Make, job: Job, state: str) -> None:  # semantics T10
    """The holder's process was killed, or waits for long; nobody has said that it failed to trigger."""
    flights = make(apart=True)
    holds(job, "a")
    assert run(flights, "b", task_states=states(a=state))["checkpoint"] == 1
    assert triggering(job) == []


def test_it_takes_the_place_of_one_that_dies_while_it_waits(
    make: Make, job: Job, meanwhile: Callable[..., list[float]]
) -> None:  # semantics T10
    flights = make(apart=True)
    holds(job, "a")
    known = states(a="running")
    waits = meanwhile(lambda: known.update(states(a="up_for_retry")))
    assert run(flights, "b", task_states=known)["checkpoint"] == 1
    assert len(waits) == 1


def test_a_failure_counts_once_and_all_come_back(make: Make, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """semantics T1, T10: the task that triggered is the one to try again."""
    flights = make(apart=True)
    tried: list[str] = []

    def away(*_: Any, **__: Any) -> None:
        tried.append("asked")
        raise UnavailableError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(TriggerCheckpointOperator, "_ask", away)
        with pytest.raises(AirflowRescheduleException):
            run(flights, "a")
        assert triggering(job) == [("epoch.a", True)]
        for state in ("up_for_reschedule", "up_for_retry"):
            with pytest.raises(AirflowRescheduleException):
                run(flights, "b", task_states=states(a=state))
        assert tried == ["asked"]
        for count in (1, 2):
            with pytest.raises(UnavailableError if count == 2 else AirflowRescheduleException):
                run(flights, "a", task_reschedule_count=count)
        with pytest.raises(AirflowFailException, match=r"epoch\.a was to trigger it and has failed"):
            run(flights, "b", task_states=states(a="failed"))
        assert len(tried) == 3
    assert run(flights, "b", try_number=2, max_tries=1, task_states=states(a="failed"))["checkpoint"] == 1
    assert triggering(job) == [], "a person has asked"


def test_who_has_waited_fails_with_it_although_a_person_asked(
    make: Make, job: Job, meanwhile: Callable[..., list[float]]
) -> None:  # semantics T10
    """The whole run was cleared, and both tasks are tries that a person asked for; or it waited in another process."""
    flights = make(apart=True)
    mine = holds(job, "a")
    known = states(a="running")
    cleared: dict[str, Any] = {"try_number": 2, "max_tries": 1, "task_states": known}

    def fail() -> None:
        job.coordinator.trigger_right.give_back(mine, failed=True)
        known.update(states(a="failed"))

    meanwhile(fail)
    for count in (0, 1):
        with pytest.raises(AirflowFailException, match=r"epoch\.a was to trigger it"):
            run(flights, "b", task_reschedule_count=count, **cleared)
    assert job.coordinator.head().next_id == 1
    assert run(flights, "b", **cleared)["checkpoint"] == 1


def test_each_return_is_later_than_the_one_before(make: Make, job: Job) -> None:  # semantics T10
    flights = make(apart=True)
    job.coordinator.trigger_right.give_back(holds(job, "a"), failed=True)
    waits = []
    for count in (0, 3, 100):
        with pytest.raises(AirflowRescheduleException) as later:
            run(flights, "b", task_reschedule_count=count, task_states=states(a="up_for_retry"))
        waits.append((later.value.reschedule_date - timezone.utcnow()).total_seconds())
    assert [round(each, -1) for each in waits] == [10, 80, 320]


def test_all_wait_for_one_place_in_the_triggerer(make: Make, job: Job) -> None:  # semantics T2, T10
    day = Day()
    flights = make(apart=True, source=day, reads_window=None)
    job.trigger("r0", "a")
    turns = {}
    for uid in ("a", "b"):
        with pytest.raises(TaskDeferred) as deferred:
            run(flights, uid, states={"r0": "running"}, task_states=states(a="deferred"))
        turns[uid] = deferred.value.trigger
    assert [each.epoch for each in job.coordinator.head().waiting] == ["r1"], "one place for both"
    assert day.asked == []
    job.acknowledge(job.begin("r0", "a"))
    job.coordinator.complete(1)
    waits = expect(RequestTrigger, turns["b"])
    woken = payload(waits)
    assert run(flights, "b", wakes=woken, task_states=states(a="deferred"))["checkpoint"] == 2
    assert run(flights, "a", wakes=woken)["checkpoint"] == 2
    assert day.asked == ["r1"]


@pytest.mark.parametrize("apart", [False, True])
def test_the_job_of_another_dag_is_left_as_it_is(make: Make, job: Job, apart: bool) -> None:
    """semantics W8: no retry cures that, so that the stage fails at once."""
    job.complete("r0")
    job.coordinator.ownership.adopt("another_dag")
    with pytest.raises(AirflowFailException, match="another_dag"):
        run(make(apart=apart), "a")
    assert job.coordinator.head().triggering == ()


def test_what_gives_the_right_away_fails_no_stage(
    make: Make, job: Job, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    """The attempt is pending by then, and another stage asks Airflow about this task before it takes the right."""
    flights = make(apart=True)
    monkeypatch.setattr("airflow_cairn.checkpoint.acts.trigger.TriggerRight.give_back", away)
    assert run(flights, "a")["checkpoint"] == 1
    assert "This task keeps the right to trigger until another stage sees that it has ended" in said.text
    assert run(flights, "b")["checkpoint"] == 1


def test_two_that_were_cleared_take_up_what_the_dag_has_become(make: Make, job: Job) -> None:  # semantics T9, T10
    flights = make(apart=True)
    job.trigger("r1", "a", "old")
    first = run(flights, "a", try_number=2, max_tries=1)["checkpoint"]
    assert first > 1
    assert run(flights, "b", try_number=2, max_tries=1)["checkpoint"] == first
