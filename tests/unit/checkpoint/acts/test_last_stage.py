"""The stage that acknowledges last completes the checkpoint; everything else is left to the waiting task (C1, D3)."""

from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.answers import EpochCompleted
from airflow_cairn.checkpoint.config import CheckpointConfig
from airflow_cairn.checkpoint.coordinator import Coordinator
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason, Status
from airflow_cairn.checkpoint.store import acks
from tests.support.narrowing import known
from tests.support.world.world import STAGES, World
from tests.support.wrapped_stores import RecordingStore

LAST = ("report", "airports")
"""Stages that nobody reads from."""


def run(world: World, *stages: str) -> None:
    world.trigger("e1")
    world.run_stage("e1", *stages)


def last(world: World, stage: str = "report", coordinator: Coordinator | None = None) -> EpochCompleted | None:
    return (coordinator or world.coordinator()).complete_if_last("e1", stage)


def acknowledged(world: World, stage: str) -> AckDocument:
    document = known(world.coordinator().pending_document(world.coordinator().head().pending[0]))
    return acks.read_ack(world.files, stage, document.executions[stage])


@pytest.mark.parametrize("stage", LAST)
def test_whoever_is_last_completes_it(world: World, stage: str) -> None:  # semantics C1
    world.listen("warehouse")
    run(world, *(each.uid for each in STAGES if each.uid != stage))
    for other in LAST:
        assert last(world, other) is None, f"{stage} has not acknowledged"
    world.run_stage("e1", stage)
    assert last(world, stage) == EpochCompleted("e1", 1)
    assert last(world, stage) == EpochCompleted("e1", 1), "asked again by its next try"
    head = world.coordinator().head()
    assert [each.status for each in head.history] == [Status.COMPLETED]
    assert [each.checkpoint for each in head.notices] == [1], "to be told by a task that knows the listeners (C4)"


def test_a_stage_that_another_one_reads_from_lists_nothing(world: World) -> None:
    """The stage that reads acknowledges later, so this one is never the last."""
    run(world)
    store = RecordingStore(world.store)
    coordinator = world.coordinator(store)
    assert last(world, "routes", coordinator) is None
    assert world.coordinator().head().completed == ()
    assert store.requests == {"get": 1}, "the head"
    store.requests.clear()
    assert last(world, "routes", coordinator) is None
    assert store.total == 0, "it knows the head"


@pytest.mark.parametrize(("meanwhile", "completed"), [("", 1), ("aborted", None), ("the next attempt", 2)])
def test_a_task_that_has_not_looked_goes_by_the_head_that_it_knows(
    world: World, meanwhile: str, completed: int | None
) -> None:
    """semantics D3, F2: by one that has changed since nothing completes, because the swap fails."""
    run(world)
    own = acknowledged(world, "report")
    store = RecordingStore(world.store)
    coordinator = world.coordinator(store)
    coordinator.head()
    if meanwhile:
        world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
    if meanwhile == "the next attempt":
        world.trigger("e1")
    store.requests.clear()
    found = coordinator.complete_if_last("e1", "report", looked=False, own=own)
    assert found == (EpochCompleted("e1", completed) if completed else None)
    if not meanwhile:
        assert store.requests == {"get": len(STAGES) - 1, "create": 1, "replace": 1}, "neither head nor its own"
    world.run_epoch("e1")
    world.coordinator().clean()
    world.audit("e1")


def test_beside_other_epochs_it_completes_by_the_newest_head(world: World) -> None:  # semantics C1, W2
    """The head has changed while the last stage ran: by the older one the metadata would be written for nothing."""
    world.config = replace(world.config, max_concurrent_checkpoints=2)
    run(world)
    store = RecordingStore(world.store)
    coordinator = world.coordinator(store)
    coordinator.head()
    world.trigger("e2")
    store.requests.clear()
    assert coordinator.complete_if_last("e1", "routes", looked=False) is None
    assert store.total == 0, "another stage reads from it"
    assert coordinator.complete_if_last("e1", "report", looked=False) == EpochCompleted("e1", 1)
    assert [write.verb for write in store.writes] == ["create", "replace"]
    assert store.requests["get"] == 1 + len(STAGES), "the head, once, and the acknowledgements"


@pytest.mark.parametrize("missing", [*LAST, "clean", None])
def test_the_last_stage_lists_nothing(world: World, missing: str | None) -> None:
    """The last stage knows the head; an acknowledgement that is missing shows while they are read."""
    run(world, *(each.uid for each in STAGES))
    world.files.delete([key for key in world.standing() if f"/acks/{missing}/" in key])
    store = RecordingStore(world.store)
    coordinator = world.coordinator(store)
    coordinator.head()
    store.requests.clear()
    assert last(world, "report", coordinator) == (None if missing else EpochCompleted("e1", 1))
    assert "list" not in store.requests
    if missing is None:
        assert store.requests == {"get": len(STAGES), "create": 1, "replace": 1}
    if missing == "airports":
        assert store.requests == {"get": 1}
    assert bool(world.coordinator().head().pending) is bool(missing)


def test_an_acknowledgement_of_another_execution_completes_nothing(world: World) -> None:  # semantics A2, D3
    """The task has read the marker of a driver that another try has failed over since."""
    run(world, "clean", "routes", "airports")
    own = world.write(world.submit("e1", "report").handover)
    world.submit("e1", "report")
    assert world.coordinator().acknowledge(own) is AckAnswer.DISCARDED
    assert world.coordinator().complete_if_last("e1", "report", own=own) is None
    assert [each.id for each in world.coordinator().head().pending] == [2]


def test_a_head_that_is_outdated_decides_nothing(world: World) -> None:  # semantics D3, F2
    """The process knows an attempt that has been replaced since: the stage runs anew, so nothing is whole."""
    run(world, *(each.uid for each in STAGES))
    coordinator = world.coordinator()
    coordinator.head()
    world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
    assert last(world, "report", coordinator) is None
    assert last(world) is None, "nor by the head that says so"
    assert [each.status for each in world.coordinator().head().history] == [Status.FAILED]


def test_a_stage_that_does_not_wait_for_its_upstreams_may_be_overtaken(world: World) -> None:  # semantics B2
    world.config = replace(world.config, mode="at_least_once")
    run(world)
    assert last(world, "clean") == EpochCompleted("e1", 1)


@pytest.mark.parametrize("why", ["others may be left out", "no hook has answered", "a stage declined", "overtaken"])
def test_what_is_left_to_whoever_waits_or_reports(world: World, why: str) -> None:  # semantics B3, T7, D1, C2
    """The stage that acknowledges first would always leave out the others."""
    stage = "airports" if why in ("others may be left out", "a stage declined") else "report"
    match why:
        case "others may be left out":
            world.config = CheckpointConfig(unaligned=True)
            run(world, "clean", "airports")
        case "no hook has answered":
            world.hook()
            run(world)
            entry = world.coordinator().head().pending[0]
            asked = known(known(world.coordinator().pending_document(entry)).hooks)
            world.files.delete([layout.hook_answers(asked.home, asked.token)])
        case "a stage declined":
            run(world, "clean", "airports", "routes")
            world.decline(world.submit("e1", "report").handover)
        case "overtaken":
            world.config = replace(world.config, max_concurrent_checkpoints=2)
            run(world)
            world.run_epoch("e2")
    before = world.coordinator().head()
    assert last(world, stage) is None
    assert world.coordinator().head() == before


def test_one_that_cannot_complete_fails_as_it_would_for_whoever_waits(world: World) -> None:  # semantics C6
    run(world)
    (marker,) = (key for key in world.standing() if "/acks/report/" in key)
    world.files.delete([marker])
    world.files.create_bytes(marker, b"{")
    assert last(world) is None
    (ended,) = world.coordinator().head().history
    assert (ended.status, ended.reason) == (Status.FAILED, Reason.IO_EXCEPTION)
