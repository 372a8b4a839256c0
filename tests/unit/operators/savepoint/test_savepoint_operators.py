"""Savepoints from DAGs: taken, waited for, kept by number and age, thrown away (semantics P1, P3, T4)."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowRescheduleException, TaskDeferred
from airflow.triggers.base import TriggerEvent

from airflow_cairn.checkpoint.errors import InvalidConfigError, NoCheckpointError, NoSavepointError, RefusedError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.operators import DisposeSavepointOperator, SavepointOperator, savepoint_dag
from airflow_cairn.storage import InvalidKeyError, UnsupportedStorageError, open_store
from airflow_cairn.triggers import SavepointTrigger
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.narrowing import expect


@pytest.fixture
def target(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'kept'}"


def operator(job: Job, target: str | None, **options: Any) -> SavepointOperator:
    return SavepointOperator(task_id="take", storage=job.storage, job=job.name, target=target, **options)


def take(job: Job, target: str | None, ti: Ti | None = None, **options: Any) -> dict[str, Any]:
    return operator(job, target, **options).execute(context(ti or Ti(run_id="nightly")))


def dispose(job: Job, ti: Ti | None = None, **options: Any) -> dict[str, Any]:
    task = DisposeSavepointOperator(task_id="dispose", storage=job.storage, **options)
    return task.execute(context(ti or Ti(run_id="nightly")))


def test_of_an_idle_job(job: Job, target: str, said: Said) -> None:  # semantics P1
    job.complete("r1")
    found = take(job, target)
    assert (found["job"], found["id"], found["checkpoint"], found["epoch"]) == ("flights", 2, 1, "r1")
    folder = open_store(found["savepoint"])
    assert integrity.load(folder).header.request == "flights/epoch.routes/nightly"
    assert f"Savepoint 2 of job flights: {found['savepoint']}" in said.text


def test_a_retry_finds_the_same_one(job: Job, target: str) -> None:  # semantics P1
    job.complete("r1")
    first = take(job, target)
    job.complete("r2")
    assert take(job, target, Ti(run_id="nightly", try_number=2)) == first
    assert take(job, target, Ti(run_id="the next night"))["checkpoint"] == 3
    assert take(job, target, Ti(run_id="nightly", map_index=1))["id"] != first["id"]


def _deferred(job: Job, target: str, **options: Any) -> tuple[SavepointOperator, SavepointTrigger]:
    task = operator(job, target, poll_interval=0.01, **options)
    with pytest.raises(TaskDeferred) as caught:
        task.execute(context(Ti(run_id="nightly")))
    assert caught.value.method_name == "execute_complete"
    trigger = expect(SavepointTrigger, caught.value.trigger)
    return task, trigger


def _event(trigger: SavepointTrigger) -> dict[str, Any]:
    async def run() -> list[TriggerEvent]:
        return [event async for event in trigger.run()]

    (event,) = asyncio.run(run())
    payload: dict[str, Any] = event.payload
    return payload


def test_a_running_epoch_is_waited_for_in_the_triggerer(job: Job, target: str) -> None:  # semantics T4
    job.trigger("r1")
    task, trigger = _deferred(job, target)
    assert trigger.epoch == "r1"
    path, arguments = trigger.serialize()
    again = SavepointTrigger(**arguments)
    assert again.serialize() == (path, arguments)
    job.complete("r1")
    event = _event(again)
    assert event["status"] == "ask"
    found = task.execute_complete(context(Ti(run_id="nightly")), event)
    assert (found["checkpoint"], found["epoch"]) == (1, "r1")


def test_it_may_be_rescheduled_instead(job: Job, target: str) -> None:
    job.trigger("r1")
    with pytest.raises(AirflowRescheduleException):
        take(job, target, deferrable=False)
    job.complete("r1")
    assert take(job, target, deferrable=False)["checkpoint"] == 1


def test_it_fails_with_its_epoch_and_the_next_try_takes_another(job: Job, target: str) -> None:  # semantics P1
    job.complete("r1")
    job.trigger("r2")
    task, trigger = _deferred(job, target)
    job.coordinator.abort(2, Reason.JOB_FAILURE, "the run failed")
    with raises_code("savepoint_failed", match=r"the savepoint failed: checkpoint 2, which it.* .JOB_FAILURE"):
        task.execute_complete(context(Ti(run_id="nightly")), _event(trigger))
    assert take(job, target, Ti(run_id="nightly", try_number=2))["checkpoint"] == 1


def test_a_triggerer_that_cannot_look_says_so(job: Job, target: str) -> None:
    job.trigger("r1")
    task, trigger = _deferred(job, target)
    (job.folder / "flights/head.json").write_text("{")
    event = _event(trigger)
    assert event["status"] == "error"
    with raises_code("savepoint_failed", match="waiting for the epoch that the savepoint is to hold failed"):
        task.execute_complete(context(Ti(run_id="nightly")), event)


def test_nothing_completed(job: Job, target: str) -> None:
    with pytest.raises(NoCheckpointError, match="there is nothing to take a savepoint of"):
        take(job, target)


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"storage": None}, InvalidConfigError, "no storage is given"),
        ({"job": None}, InvalidConfigError, "no job is given"),
        ({"job": "../x"}, InvalidKeyError, "this job name cannot be used"),
        ({"target": None}, InvalidConfigError, "no target is given: write target='s3://bucket/prefix'.*task=`take`"),
        ({"target": "ftp://bucket/x"}, UnsupportedStorageError, r"no storage for the scheme ftp.*ftp://bucket/x"),
        ({"target": "/kept"}, InvalidKeyError, "this is not a storage URI: it has no scheme"),
        ({"target": 7}, InvalidKeyError, "this is not a storage URI: it is not a text"),
        (
            {"target": "file:///s/flights/kept"},
            RefusedError,
            r"lies in the job's own folder.*name a folder outside of it.*task=`take`.*folder=`file:///s/flights`",
        ),
        ({"target": "file:///s/flights/"}, RefusedError, "lies in the job's own folder"),
        ({"target": "file:///s"}, RefusedError, r"lies among the storage's jobs.*storage=`file:///s`"),
        ({"request_id": "a\nb"}, InvalidKeyError, "a request id has 1 to 500 char"),
        ({"timeout": timedelta(0)}, InvalidConfigError, "timeout must be a timedelta of more than zero"),
        ({"parallel": 0}, InvalidConfigError, "parallel"),
        ({"poll_interval": 0}, InvalidConfigError, "poll_interval must be above 0 seconds"),
    ],
)
def test_bad_options_are_refused_where_the_dag_is_parsed(
    options: dict[str, Any], error: type[Exception], problem: str
) -> None:
    good = {"storage": "file:///s", "job": "flights", "target": "file:///kept"}
    with pytest.raises(error, match=problem):
        SavepointOperator(task_id="take", **{**good, **options})


def test_templates_are_checked_when_rendered() -> None:
    SavepointOperator(task_id="take", storage="{{ x }}", job="{{ y }}", target="{{ z }}", request_id="{{ w }}")
    SavepointOperator(task_id="take", storage="file:///s", job="{{ y }}", target="file:///s/flights")
    SavepointOperator(task_id="take", storage="file:///s", job="flights", target="file:///s/flights-kept")


@pytest.mark.parametrize("named", ["", "/_metadata"])
def test_one_is_thrown_away(job: Job, target: str, named: str) -> None:  # semantics P1, P3
    job.complete("r1")
    uri = take(job, target)["savepoint"]
    assert dispose(job, savepoint=f"{uri}{named}") == {"disposed": [uri], "kept": {}}
    assert job.coordinator.head().savepoints == ()
    assert dispose(job, Ti(try_number=2), savepoint=uri) == {"disposed": [], "kept": {}}, "an earlier try did it"
    with pytest.raises(NoSavepointError):
        dispose(job, savepoint=uri)


def test_the_only_way_back_is_not(job: Job, target: str, said: Said) -> None:  # semantics P3
    job.complete("r1")
    uri = take(job, target)["savepoint"]
    (metadata,) = (job.folder / "flights/chk-0000000001").glob("_metadata*")
    metadata.write_bytes(b"?")
    with raises_code("savepoint_refused", match="has no other way back"):
        dispose(job, savepoint=uri)
    assert dispose(job, savepoint=uri, force=True)["disposed"] == [uri]
    assert "Disposed although the job flights has no other way back" in said.text


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give either the savepoint to dispose of, or the job whose history to cut"),
        ({"savepoint": "file:///x", "job": "flights"}, "give either the savepoint"),
        ({"job": "flights"}, "force is for one savepoint; keep and max_age cut a history"),
        ({"job": "flights", "keep": 3, "force": True}, "force is for one savepoint"),
        ({"job": "flights", "keep": 3}, "no target is given: write target='s3://bucket/prefix'"),
        ({"savepoint": "file:///x", "target": "file:///kept"}, "give either the savepoint"),
        ({"job": "flights", "keep": 0, "target": "file:///kept"}, "keep"),
        ({"job": "flights", "max_age": timedelta(0), "target": "file:///k"}, "max_age must be a timedelta of more"),
        ({"savepoint": "file:///x", "storage": None}, "no storage is given"),
        ({"savepoint": "file:///x", "force": "no"}, r"force must be True or False.*force=`'no'`"),
        ({"savepoint": "ftp://bucket/x"}, r"no storage for the scheme ftp.*task=`dispose`"),
    ],
)
def test_it_has_to_be_clear_what_to_throw_away(options: dict[str, Any], problem: str) -> None:
    with pytest.raises((InvalidConfigError, UnsupportedStorageError), match=problem):
        DisposeSavepointOperator(**{"task_id": "dispose", "storage": "file:///s", **options})


def test_ten_nights_of_which_three_are_kept(job: Job, target: str) -> None:  # semantics P1, P3
    job.complete("r1")
    by_hand = take(job, target, request_id="by hand")["savepoint"]
    dag = savepoint_dag("flights", "@daily", target, storage=job.storage, keep=3)
    assert (dag.dag_id, dag.catchup, dag.max_active_runs) == ("flights-savepoints", False, 1)
    first, second = dag.task_dict["take_savepoint"], dag.task_dict["dispose_of_old_ones"]
    assert isinstance(first, SavepointOperator)
    assert isinstance(second, DisposeSavepointOperator)
    assert second.upstream_task_ids == {"take_savepoint"}
    taken = []
    for night in range(10):
        ti = Ti(dag_id=dag.dag_id, task_id="take_savepoint", run_id=f"scheduled__{night}")
        taken.append(first.execute(context(ti))["savepoint"])
        second.execute(context(ti))
    assert [entry.uri for entry in job.coordinator.head().savepoints] == [by_hand, *taken[-3:]]
    stand = [uri for uri in (by_hand, *taken) if Path(uri.removeprefix("file://"), "_metadata").exists()]
    assert stand == [by_hand, *taken[-3:]]


def test_a_dag_that_keeps_all_throws_none_away() -> None:
    dag = savepoint_dag("flights", None, "file:///kept", storage="file:///s", keep=None, dag_id="mine", tags=["x"])
    assert isinstance(dag, DAG)
    assert (dag.dag_id, list(dag.task_dict), dag.tags) == ("mine", ["take_savepoint"], {"x"})
    with raises_code("savepoint_refused", match="lies in the job's own folder"):  # semantics P1
        savepoint_dag("flights", "@daily", "file:///s/flights/kept", storage="file:///s")
