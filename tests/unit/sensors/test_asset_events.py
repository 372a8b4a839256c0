"""The sensor's asset events say which checkpoint completed, so that other DAGs may be scheduled on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

from airflow_cairn.checkpoint import Coordinator, TriggerRequest
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidConfigError, ListenerError
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.sensors import CheckpointSensor
from tests.support.airflow_stage import Job, Ti, context
from tests.support.world.listeners import Listener

RUN = "manual__r1"
FLIGHTS, ROUTES = Asset("flights", uri="x-lake://flights"), Asset("routes", uri="x-lake://routes")


def at() -> Any:
    """Give a context of a task, with the events that Airflow would register with its success."""
    return context(Ti(run_id=RUN, task_id="wait"), outlet_events=OutletEventAccessors())


def sensor(job: Job, **options: Any) -> CheckpointSensor:
    return CheckpointSensor(
        task_id="wait", storage=job.storage, job=job.name, outlets=[FLIGHTS, ROUTES, AssetAlias("later")], **options
    )


def sent(context: Any) -> dict[str, Any]:
    """Give what the task sends with its success, as Airflow's own task runner writes it."""
    events: Iterable[Any] = _serialize_outlet_events(context["outlet_events"])
    return {each["dest_asset_key"]["name"]: each["extra"] for each in events}


def expected(job: Job, **more: Any) -> dict[str, Any]:
    facts = {"storage": job.storage, "run_id": RUN, "job": "flights", "checkpoint": 1, "epoch": RUN}
    return {**facts, "attempt": 1, "acks": 1, "size_bytes": 0, **more}


@pytest.mark.parametrize("deferrable", [True, False])
def test_each_asset_learns_which_checkpoint_completed(job: Job, deferrable: bool) -> None:  # semantics C1
    job.complete(RUN)
    here = at()
    result = sensor(job, deferrable=deferrable).execute(here)
    said = expected(job, duration_ms=result["duration_ms"])
    assert sent(here) == {"flights": said, "routes": said}


def test_a_wait_in_the_triggerer_ends_with_the_events(job: Job) -> None:  # semantics C1
    job.trigger(RUN)
    before = at()
    with pytest.raises(TaskDeferred) as caught:
        sensor(job).execute(before)
    assert sent(before) == {}, "nothing has completed"
    job.acknowledge(job.begin(RUN))
    here, kwargs = at(), caught.value.kwargs
    assert kwargs is not None
    sensor(job).execute_complete(here, {"status": "ready", "checkpoint": 1}, **kwargs)
    assert sent(here)["flights"]["checkpoint"] == 1


def test_the_tables_are_named(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.complete(RUN)
    head = job.coordinator.head()
    (entry,) = head.completed
    published = replace(head, completed=(replace(entry, tables={"totals": "b", "league": "a"}),))
    monkeypatch.setattr(Coordinator, "head", lambda self: published)
    here = at()
    sensor(job).execute(here)
    assert sent(here)["flights"]["tables"] == ["league", "totals"]


def test_what_the_author_says_of_an_event_stays(job: Job) -> None:
    """As a `pre_execute` may have put it there."""
    job.complete(RUN)
    here = at()
    here["outlet_events"][FLIGHTS].extra = {"team": "routes", "job": "ours"}
    sensor(job).execute(here)
    assert (sent(here)["flights"]["team"], sent(here)["flights"]["job"]) == ("routes", "ours")
    assert sent(here)["flights"]["checkpoint"] == 1


def test_a_listener_that_fails_holds_the_events_back(job: Job) -> None:  # semantics C4
    """The task fails, so Airflow registers none; the next try tells the listener again."""

    listening = Listener(failures=1)
    job.coordinator.trigger(
        TriggerRequest(epoch_name(RUN), Slice(), (StageSpec("routes"),), listeners=(listening.name,))
    )
    job.acknowledge(job.begin(RUN))
    here = at()
    with pytest.raises(ListenerError):
        sensor(job, listeners=[listening]).execute(here)
    assert sent(here) == {}


def test_a_group_gives_its_assets_to_the_task_that_waits() -> None:
    with (
        DAG("flights", schedule=None, default_args={"outlets": [ROUTES]}) as dag,
        CheckpointedTaskGroup("epoch", storage="file:///lake", reads_window=False, outlets=[FLIGHTS]),
    ):
        SparkEpochOperator(task_id="routes", application="a.py")
    assert dag.get_task("epoch.wait_for_checkpoint").outlets == [ROUTES, FLIGHTS]


@pytest.mark.parametrize("outlets", [FLIGHTS, "flights", ["flights"], [AssetAlias("flights")], {FLIGHTS: 1}])
def test_what_is_no_list_of_assets_is_refused(outlets: Any) -> None:
    with (
        pytest.raises(InvalidConfigError, match=r"outlets=\[Asset\('flights'\)\].*epoch"),
        DAG("flights", schedule=None),
    ):
        CheckpointedTaskGroup("epoch", storage="file:///lake", reads_window=False, outlets=outlets)
