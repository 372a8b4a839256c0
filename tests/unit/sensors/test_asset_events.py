"""The sensor's asset events say which checkpoint completed, so that other DAGs may be scheduled on it."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias
from airflow.sdk.exceptions import TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

from airflow_cairn.checkpoint import TriggerRequest
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, StateHandle
from airflow_cairn.checkpoint.documents.attempt import Handover, Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.store import metadata_file
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import CairnError, UnavailableError
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.errors import raises_code
from tests.support.world.listeners import Listener
from tests.support.world.world import World

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


class Published(World):
    """A job whose last stage publishes a table and appends to another; each file has five rows, if that is known."""

    unknown = ""
    """The output whose files do not tell."""
    kept: AckDocument | None = None
    """Acknowledgement of the last stage in an earlier epoch, whose table it keeps."""

    def write(self, handover: Handover, **more: Any) -> AckDocument:
        ack = super().write(handover, **more)
        if handover.stage != "report":
            return ack

        def said(handle: StateHandle) -> StateHandle:
            if self.kept is not None and handle.output == "table.league":
                (handle,) = (old for old in self.kept.subtasks[0].handles if old.output == handle.output)
            return handle if handle.output == self.unknown else replace(handle, rows=5)

        kept = {} if self.kept is None else {old.id: old for old in self.kept.outputs if old.id == "table.league"}
        subtasks = tuple(replace(each, handles=tuple(map(said, each.handles))) for each in ack.subtasks)
        return replace(ack, subtasks=subtasks, outputs=tuple(kept.get(each.id, each) for each in ack.outputs))


@pytest.fixture
def published(job: Job) -> Published:
    world = Published(open_store(job.storage))
    world.appends = True
    return world


def wait_for(job: Job, run: str = RUN, **options: Any) -> dict[str, Any]:
    """Run the task that waits; gives its events."""
    here = context(Ti(run_id=run, task_id="wait"), outlet_events=OutletEventAccessors())
    CheckpointSensor(task_id="wait", storage=job.storage, job=job.name, **options).execute(here)
    return sent(here)


LOG = Asset("log", uri="x-lake://log")
TABLES = {"league": ROUTES, "log": LOG}


def test_each_table_has_an_event_with_its_rows(job: Job, published: Published) -> None:  # semantics A1
    """Rows that this epoch wrote: those of a table that grows from the epochs before are not among them."""
    for run in ("manual__r0", RUN):
        published.run_epoch(epoch_name(run))
    found = wait_for(job, outlets=[FLIGHTS], table_outlets=TABLES)
    assert {name: (each["checkpoint"], each["epoch"]) for name, each in found.items()} == dict.fromkeys(
        ("flights", "routes", "log"), (2, epoch_name(RUN))
    )
    assert (found["flights"]["rows"], found["flights"]["tables"]) == ({"league": 5, "log": 5}, ["league", "log"])
    assert (found["routes"]["table"], found["routes"]["rows"]) == ("league", 5)
    assert (found["log"]["table"], found["log"]["rows"]) == ("log", 5)


def test_rows_that_are_not_known_are_not_said(job: Job, published: Published) -> None:
    published.unknown = "table.league"
    published.run_epoch(epoch_name(RUN))
    found = wait_for(job, outlets=[FLIGHTS], table_outlets=TABLES)
    assert found["flights"]["rows"] == {"log": 5}
    assert found["routes"]["table"] == "league"
    assert "rows" not in found["routes"]


def test_what_an_attempt_before_has_written_counts(job: Job, published: Published) -> None:  # semantics F2
    epoch = epoch_name(RUN)
    published.trigger(epoch)
    published.run_stage(epoch, "clean", "routes", "report")
    airports = published.submit(epoch, "airports").handover
    published.coordinator().fail(epoch, "airports", airports.claimant, "killed")
    assert published.run_epoch(epoch) == 2
    assert wait_for(job, table_outlets=TABLES)["log"]["rows"] == 5


def test_a_table_that_the_epoch_has_not_touched_has_no_new_rows(job: Job, published: Published) -> None:
    first = epoch_name("manual__r0")
    published.trigger(first)
    published.run_stage(first, "clean", "routes", "airports")
    handover = published.submit(first, "report").handover
    written = published.write(handover)
    published.coordinator().acknowledge(written)
    published.coordinator().complete(1)
    published.kept = written
    published.run_epoch(epoch_name(RUN))
    found = wait_for(job, table_outlets=TABLES)
    assert (found["routes"]["rows"], found["log"]["rows"]) == (0, 5)


def test_a_store_that_does_not_answer_holds_no_event_back(
    job: Job, published: Published, monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    published.run_epoch(epoch_name(RUN))

    def away(*_given: Any) -> Any:
        raise UnavailableError("connect timeout")

    monkeypatch.setattr(metadata_file, "read", away)
    found = wait_for(job, outlets=[FLIGHTS], table_outlets=TABLES)
    assert found["flights"]["tables"] == ["league", "log"]
    assert {"rows"} & {*found["flights"], *found["routes"]} == set()
    assert "The asset events say no rows: connect timeout" in said.text


def test_a_table_that_is_not_published_is_named(job: Job, published: Published, said: Said) -> None:
    published.run_epoch(epoch_name(RUN))
    found = wait_for(job, table_outlets={"leage": ROUTES})
    assert found["routes"]["table"] == "leage"
    assert (
        "option table_outlets names 'leage', which the checkpoint does not publish; it publishes: league, log"
        in said.text
    )


def test_what_the_author_says_of_an_event_stays(job: Job) -> None:
    """A `pre_execute` may have put it there."""
    job.complete(RUN)
    here = at()
    here["outlet_events"][FLIGHTS].extra = {"team": "routes", "job": "ours"}
    sensor(job).execute(here)
    assert (sent(here)["flights"]["team"], sent(here)["flights"]["job"]) == ("routes", "ours")
    assert sent(here)["flights"]["checkpoint"] == 1


def test_a_listener_that_fails_holds_the_events_back(job: Job) -> None:  # semantics C4, C7
    """The task fails, so Airflow registers none; the next try tells the listener again."""

    listening = Listener(failures=1)
    job.coordinator.trigger(
        TriggerRequest(epoch_name(RUN), Slice(), (StageSpec("routes"),), listeners=(listening.name,))
    )
    job.acknowledge(job.begin(RUN))
    here = at()
    with raises_code("listener"):
        sensor(job, listeners=[listening]).execute(here)
    assert sent(here) == {}


@pytest.mark.parametrize(
    ("defaults", "given", "outlets"),
    [
        ({"outlets": [ROUTES]}, {"outlets": [FLIGHTS]}, [ROUTES, FLIGHTS]),
        ({}, {"table_outlets": TABLES}, [ROUTES, LOG]),
    ],
)
def test_a_group_gives_its_assets_to_the_task_that_waits(defaults: Any, given: Any, outlets: Any) -> None:
    with (
        DAG("flights", schedule=None, default_args=defaults) as dag,
        CheckpointedTaskGroup("epoch", storage="file:///lake", reads_window=False, **given),
    ):
        SparkEpochOperator(task_id="routes", application="a.py")
    assert dag.get_task("epoch.wait_for_checkpoint").outlets == outlets


@pytest.mark.parametrize(
    ("option", "given", "why"),
    [
        *(
            ("outlets", given, r"outlets=\[Asset\('flights'\)\].*epoch")
            for given in (FLIGHTS, "flights", ["flights"], [AssetAlias("flights")], {FLIGHTS: 1})
        ),
        ("table_outlets", [FLIGHTS], "must give an asset for each table"),
        ("table_outlets", {"totals": "flights"}, "must give an asset for each table"),
        ("table_outlets", {"totals": AssetAlias("flights")}, "must give an asset for each table"),
        ("table_outlets", {"a/b": FLIGHTS}, "this table name cannot be used"),
        ("table_outlets", {"a": FLIGHTS, "b": FLIGHTS}, "an asset of its own.*table=.?b"),
        ("table_outlets", {"a": ROUTES}, "in outlets too"),
    ],
)
def test_what_is_no_asset_or_none_for_each_table_is_refused(option: str, given: Any, why: str) -> None:
    options: dict[str, Any] = {"storage": "file:///lake", "reads_window": False, "outlets": [ROUTES], option: given}
    with pytest.raises(CairnError, match=why), DAG("flights", schedule=None):
        CheckpointedTaskGroup("epoch", **options)
