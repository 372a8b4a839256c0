"""A task of another DAG waits until a job has completed an epoch, or has read a window; it changes nothing."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.operator import TriggerFailureReason
from airflow.sdk.exceptions import AirflowSensorTimeout, AirflowSkipException, TaskDeferred

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.documents.read_windows import MAX_WINDOWS
from airflow_cairn.checkpoint.errors import CheckpointFailedError, InvalidConfigError
from airflow_cairn.cli.main import main
from airflow_cairn.sensors import CompletedEpochSensor
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import CairnError, DocumentError, ForbiddenError, UnavailableError
from airflow_cairn.triggers import CompletedEpochTrigger
from airflow_cairn.triggers.completed_epoch import completed_in
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.narrowing import known
from tests.support.trigger_events import event_of, payload
from tests.support.world.world import World
from tests.support.wrapped_stores import RecordingStore

DAYS = ("manual__d1", "manual__d2", "manual__d3")
"""Each reads a day, from the first of January 2026 on."""
FIRST_TWO = {"start": "2026-01-01 00:00:00+00:00", "end": "2026-01-03T00:00:00Z"}


@pytest.fixture
def daily(job: Job) -> World:
    world = World(open_store(job.storage))
    world.read_days(*map(epoch_name, DAYS))
    return world


def sensor(job: Job, **options: Any) -> CompletedEpochSensor:
    return CompletedEpochSensor(task_id="wait", storage=job.storage, job=job.name, **options)


def at() -> Any:
    return context(Ti(run_id="scheduled__of_another_dag", dag_id="report", task_id="wait"))


def waits(task: CompletedEpochSensor) -> CompletedEpochTrigger:
    """See that a task waits in the triggerer; gives its trigger, as the triggerer builds it."""
    with pytest.raises(TaskDeferred) as caught:
        task.execute(at())
    path, arguments = caught.value.trigger.serialize()
    assert path == f"{CompletedEpochTrigger.__module__}.{CompletedEpochTrigger.__qualname__}"
    return CompletedEpochTrigger(**{**arguments, "poll_interval": 0.01})


def test_a_window_is_there_when_all_of_it_was_read(job: Job, daily: World) -> None:  # semantics T8
    """By several runs."""
    waits(sensor(job, **FIRST_TWO))
    daily.run_epoch(epoch_name(DAYS[0]))
    waits(sensor(job, **FIRST_TWO))
    daily.run_epoch(epoch_name(DAYS[1]))
    before = job.coordinator.head()
    for deferrable in (True, False):
        assert sensor(job, **FIRST_TWO, deferrable=deferrable).execute(at()) == {"job": "flights", "checkpoint": 2}
    daily.run_epoch(epoch_name(DAYS[2]))
    assert sensor(job, **FIRST_TWO).execute(at())["checkpoint"] == 3, "the newest holds it, too"
    assert before.revision < job.coordinator.head().revision


def test_moments_are_taken_as_texts_are(job: Job, daily: World) -> None:
    """A DAG may render its templates to Python's own types."""
    for run in DAYS[:2]:
        daily.run_epoch(epoch_name(run))
    task = sensor(job)
    task.start, task.end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC)  # type: ignore[assignment]
    assert task.execute(at()) == {"job": "flights", "checkpoint": 2}
    task.end = datetime(2026, 1, 4, tzinfo=UTC)  # type: ignore[assignment]
    assert waits(task).end == "2026-01-04T00:00:00+00:00"


def test_a_job_that_reads_no_windows_is_not_waited_for(job: Job) -> None:
    World(open_store(job.storage)).run_epoch(epoch_name(DAYS[0]))
    with pytest.raises(InvalidConfigError, match=r"reads no windows of time .* wait for the run"):
        sensor(job, **FIRST_TWO).execute(at())


@pytest.mark.parametrize("which", ["left_out", "owing"])
def test_a_window_is_not_there_while_a_stage_has_still_to_read_it(job: Job, daily: World, which: str) -> None:
    """semantics B2, B3"""
    for run in DAYS[:2]:
        daily.run_epoch(epoch_name(run))
    entry = known(job.coordinator.head().latest_completed())
    for read, found in ((entry, 2), (replace(entry, **{which: ("report",)}), None)):  # type: ignore[arg-type]
        head = SimpleNamespace(latest_completed=partial(lambda each: each, read), completed=(read,))
        coordinator: Any = SimpleNamespace(head=partial(lambda each: each, head), job=job.name)
        assert completed_in(coordinator, None, **FIRST_TWO, wait_for_tables=False) == found


def test_an_epoch_is_there_however_many_came_after_it(job: Job, daily: World) -> None:
    daily.run_epoch(epoch_name(DAYS[0]))
    waits(sensor(job, run_id=DAYS[1]))
    for number in range(2, 5):
        daily.run_epoch(epoch_name(f"manual__more{number}"))
    assert sensor(job, run_id=DAYS[0]).execute(at()) == {"job": "flights", "checkpoint": 1}
    daily.coordinator().rewind(3)
    waits(sensor(job, run_id="manual__more4"))


def test_the_trigger_sees_it_and_the_task_ends(job: Job, daily: World) -> None:
    trigger = waits(sensor(job, **FIRST_TWO))

    async def both() -> dict[str, Any]:
        waiting = asyncio.create_task(event_of(trigger))
        for run in DAYS[:2]:
            assert not waiting.done()
            await asyncio.to_thread(daily.run_epoch, epoch_name(run))
        return dict((await asyncio.wait_for(waiting, 300)).payload)

    event = asyncio.run(both())
    assert event == {"status": "completed", "checkpoint": 2}
    assert sensor(job, **FIRST_TWO).execute_complete(at(), event) == {"job": "flights", "checkpoint": 2}


EPOCH, WINDOW = {"run_id": DAYS[1]}, FIRST_TWO
BOTH = "orders (since checkpoint 1), totals (since checkpoint 2)"


@pytest.mark.parametrize(
    ("given_up", "asked", "found"),
    [
        ("", EPOCH, BOTH),
        ("", WINDOW, BOTH),
        ("orders 2, totals 2", EPOCH, "orders (since checkpoint 1)"),
        ("orders 1, totals 2", EPOCH, "orders (since checkpoint 2)"),
        ("orders 1, orders 2, totals 2", EPOCH, 2),
        ("orders 1, orders 2, totals 2", WINDOW, 2),
        ("orders 1, orders 2, orders 3, totals 2, totals 3", WINDOW, 3),
        ("", {**EPOCH, "wait_for_tables": False}, 2),
        ("", {**WINDOW, "wait_for_tables": False}, 3),
    ],
    ids=str,
)
def test_commits_that_are_owed_to_tables_are_waited_for(
    job: Job, daily: World, said: Said, given_up: str, asked: Any, found: Any
) -> None:  # semantics C7
    """Up to the checkpoint, not those after it; one that is given up is not waited for, and no other listener is."""
    daily.config = replace(daily.config, retained=3)
    for run, names in zip(DAYS, (("orders",), ("totals", "orders"), ("totals", "orders")), strict=True):
        daily.listen("pager", *(f"table.{each}" for each in names))
        daily.run_epoch(epoch_name(run))
    for name, checkpoint in re.findall(r"(\w+) (\d)", given_up):
        daily.coordinator().forget_listener(f"table.{name}", checkpoint=int(checkpoint))
    store = RecordingStore(open_store(job.storage))
    look: dict[str, Any] = {"run_id": None, "start": None, "end": None, "wait_for_tables": True, **asked}
    assert isinstance(completed_in(daily.coordinator(store), **look), int) is isinstance(found, int)
    assert store.total == 1, "the head says it"
    for deferrable in (True, False):
        task = sensor(job, deferrable=deferrable, poke_interval=0.01, timeout=0.02, **asked)
        if isinstance(found, int):
            assert task.execute(at()) == {"job": "flights", "checkpoint": found}
            continue
        line = f" of flights has completed, and commits to tables are owed: {found}. If"
        before = said.text.count(line)
        with pytest.raises(TaskDeferred if deferrable else AirflowSensorTimeout):
            task.execute(at())
        assert said.text.count(line) > before


def test_a_commit_ends_the_wait_in_the_triggerer(job: Job, daily: World, said: Said) -> None:  # semantics C7
    """The command that the wait logs gives the commits up, and so ends the wait."""
    daily.listen("table.orders", "table.totals")
    trigger = waits(sensor(job, run_id=DAYS[0]))

    async def both() -> dict[str, Any]:
        waiting = asyncio.create_task(event_of(trigger))
        await asyncio.to_thread(daily.run_epoch, epoch_name(DAYS[0]))
        while "forget-listener" not in said.text:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(daily.coordinator().deliver, daily.ears[:1])
        while "are owed: totals (since" not in said.text:
            await asyncio.sleep(0.01)
        assert not waiting.done()
        command = re.findall(r': cairn (forget-listener [^"\n]*)', said.text)[-1]
        assert await asyncio.to_thread(main, command.split()) == 0
        return dict((await asyncio.wait_for(waiting, 300)).payload)

    assert asyncio.run(both()) == {"status": "completed", "checkpoint": 1}
    assert said.text.count("commits to tables are owed") == 2, "each state once"


def test_looking_changes_nothing(job: Job, daily: World) -> None:
    """An attempt whose time has run out stays as it is: its own DAG's tasks end it."""
    daily.trigger(epoch_name(DAYS[0]))
    before = {each.key: each.etag for each in open_store(job.storage).list("")}
    waits(sensor(job, run_id=DAYS[0]))
    waits(sensor(job, **FIRST_TWO))
    assert {each.key: each.etag for each in open_store(job.storage).list("")} == before


def test_without_an_answer_it_asks_again_and_a_refusal_that_lasts_ends_it(
    job: Job, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    monkeypatch.setattr("airflow_cairn.triggers.polling.LONGEST_S", 0.0)
    trigger = waits(sensor(job, run_id=DAYS[0]))
    answers: list[Exception] = [ForbiddenError("no right"), UnavailableError("connect timeout")]

    def answer(*_given: Any) -> Any:
        raise answers.pop()

    monkeypatch.setattr("airflow_cairn.checkpoint.coordinator.Coordinator.completed_in", answer)
    event = payload(trigger)
    assert (event["status"], event["kind"], answers) == ("error", "forbidden", [])
    with pytest.raises(CheckpointFailedError, match="waiting for the job's checkpoint failed: no right"):
        sensor(job, run_id=DAYS[0]).execute_complete(at(), event)
    answers[:] = [ForbiddenError("no right"), UnavailableError("connect timeout")]
    waits(sensor(job, run_id=DAYS[0]))
    waits(sensor(job, run_id=DAYS[0]))
    assert "The storage cannot be reached, asking again" in said.text
    assert "The storage refuses the credentials, asking again: no right" in said.text, "the triggerer waits for it"


@pytest.mark.parametrize("options", [{}, {"soft_fail": True}, {"never_fail": True}], ids=str)
@pytest.mark.parametrize("found", ["at once", "after the wait", "by a poke"])
def test_each_look_that_fails_ends_the_same_way(
    job: Job, monkeypatch: pytest.MonkeyPatch, said: Said, found: str, options: dict[str, bool]
) -> None:
    """Options work as in Airflow's sensors: `never_fail` skips; `soft_fail` skips only when the time has run out."""

    def refuses(*_given: Any) -> Any:
        raise DocumentError("broken")

    monkeypatch.setattr("airflow_cairn.checkpoint.coordinator.Coordinator.completed_in", refuses)
    task = sensor(job, run_id=DAYS[0], deferrable=found != "by a poke", **options)
    event = {"event": {"status": "error", "detail": "broken", "kind": "damaged"}}
    after = found == "after the wait"
    look = partial(task.resume_execution, "execute_complete", event) if after else task.execute
    expected = AirflowSkipException if "never_fail" in options else CairnError
    with pytest.raises(expected, match="broken" if expected is CairnError else "never_fail"):
        look(at())
    assert ("Skipped: Skipping due to never_fail is set to True. " in said.text) is (expected is AirflowSkipException)


@pytest.mark.parametrize(
    ("option", "expected"),
    [(None, AirflowSensorTimeout), ("soft_fail", AirflowSkipException), ("never_fail", AirflowSkipException)],
)
def test_time_that_runs_out_in_the_triggerer(job: Job, option: str | None, expected: type[Exception]) -> None:
    task = sensor(job, run_id=DAYS[0], **({option: True} if option else {}))
    with pytest.raises(expected):
        task.resume_execution("__fail__", {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, at())


def test_a_poke_ends_with_its_time(job: Job) -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(job, run_id=DAYS[0], deferrable=False, poke_interval=0.01, timeout=0.02).execute(at())


def test_a_run_without_an_interval_names_what_it_waits_for(job: Job) -> None:
    with pytest.raises(InvalidConfigError, match=r"no window of time to wait for: give run_id.*task=`wait`"):
        sensor(job, start="", end="").execute(at())
    task = sensor(job, run_id=DAYS[0])
    assert (task.start, task.end) == (None, None), "not to be rendered, because the run may have none"
    assert (sensor(job).start, sensor(job).end) == ("{{ data_interval_start }}", "{{ data_interval_end }}")


def test_what_was_read_so_long_ago_that_it_is_forgotten_ends_the_wait() -> None:  # semantics T8
    """A job has forgotten the oldest windows after a hundred gaps; what it does not know it does not claim."""
    world = World(stages=(StageSpec("clean"),))
    world.read_days(*(f"e{number}" for number in range(2 * MAX_WINDOWS + 6)))
    world.run_epoch(*(f"e{number}" for number in range(0, 2 * MAX_WINDOWS + 6, 2)))
    with pytest.raises(InvalidConfigError, match="so old that the job no longer knows whether it has read it"):
        completed_in(world.coordinator(), None, **FIRST_TWO, wait_for_tables=True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"storage": None}, "no storage is given"),
        ({"job": None}, "no job is given"),
        ({"job": "a/b"}, "job name cannot be used"),
        ({"poke_interval": 0}, "poke_interval must be above 0"),
        ({"runid": "x"}, "run_id"),
        ({"wait_for_tables": ["orders"]}, "wait_for_tables must be True or False"),
    ],
)
def test_it_refuses_at_parse_what_cannot_be(options: dict[str, Any], why: str) -> None:
    build: Callable[..., Any] = CompletedEpochSensor
    with pytest.raises(CairnError, match=why), DAG("report", schedule=None):
        build(**{"task_id": "wait", "storage": "file:///lake", "job": "flights", **options})
