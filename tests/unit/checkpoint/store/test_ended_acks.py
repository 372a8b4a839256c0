"""Acknowledgements of a failed checkpoint, and those that came too late, as the head counts them (semantics O1)."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.config import CheckpointConfig
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument, AckMetrics
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.documents.entries import EndedEntry
from airflow_cairn.checkpoint.documents.head import MAX_LATE
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason, Status
from airflow_cairn.checkpoint.views import checkpoint_list
from airflow_cairn.checkpoint.views.details import details
from airflow_cairn.cli.output.detail_lines import lines
from tests.support.acking import ack_of
from tests.support.narrowing import known
from tests.support.shut_down import shut_down
from tests.support.world.world import STAGES, TIMEOUT, World


def expire(world: World) -> None:
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("e1")


def fail_the_job(world: World) -> None:
    """Another checkpoint is one failure too many, and takes this one along."""
    other = world.trigger("e2").pending.checkpoint
    world.coordinator().abort(other, Reason.CHECKPOINT_DECLINED, "boom")


def change_the_dag(world: World) -> None:
    world.stages = (*STAGES, StageSpec("new"))
    world.ask("e1")


ENDS: dict[str, Callable[[World], object]] = {
    "it expires": expire,
    "a newer one completes": lambda world: world.run_epoch("e2"),
    "the DAG is paused": lambda world: world.coordinator().pause(),
    "the job is shut down": lambda world: shut_down(world.coordinator()),
    "it is aborted": lambda world: world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand"),
    "the job fails": fail_the_job,
    "the job is restored": lambda world: world.coordinator().restore_latest(),
    "the DAG has changed": change_the_dag,
}


def first(world: World) -> EndedEntry:
    return known(world.coordinator().head().ended_by_id(1))


@pytest.fixture
def world(world: World) -> World:
    """A job of which two epochs may run at once; the first is under way, and half of its stages have acknowledged."""
    world.config = CheckpointConfig(timeout=TIMEOUT, max_concurrent_checkpoints=2)
    world.trigger("e1")
    world.run_stage("e1", "clean", "airports")
    return world


@pytest.mark.parametrize("end", ENDS)
def test_however_it_ends_it_says_who_had_acknowledged(world: World, end: str) -> None:  # semantics O1
    ENDS[end](world)
    assert (first(world).status, first(world).acks, first(world).stages) == (Status.FAILED, 2, 4)
    world.coordinator().clean()
    row = next(row for row in checkpoint_list.checkpoints(world.coordinator()) if row.id == 1)
    assert (row.acks, row.stages) == (2, 4)


def late(world: World, stage: str = "routes") -> tuple[AckDocument, World]:
    """Let a driver of the first epoch write its files, and be late: its checkpoint has expired."""
    ack = world.write(world.submit("e1", stage).handover)
    metrics = AckMetrics(start_delay_ms=5_000, sync_ms=2_000, end_to_end_ms=700_000)
    expire(world)
    return replace(ack, metrics=metrics), world


def test_a_late_acknowledgement_is_told_of_the_failed_one(world: World) -> None:  # semantics O1, A3
    ack, _ = late(world)
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert [(each.stage, each.metrics) for each in first(world).late] == [("routes", ack.metrics)]
    assert first(world).acks == 2, "when it ended"
    found = details(world.coordinator(), 1)
    (row,) = (each for each in found.stages if each.stage == "routes")
    assert (row.acknowledged, row.late, row.took_ms) == (False, True, 700_000)
    said = "\n".join(lines(world.files, found, 10))
    assert "late acks      routes, 11m 40s after the trigger" in said
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert len(first(world).late) == 1, "its files are gone, and it comes again: once is enough"


def test_so_is_one_whose_stage_runs_anew(world: World) -> None:  # semantics O1, F2
    handover = world.submit("e1", "routes").handover
    world.submit("e1", "routes")
    assert world.coordinator().acknowledge(world.write(handover)) is AckAnswer.DISCARDED
    assert [each.stage for each in first(world).late] == ["routes"]


def test_one_that_the_next_attempt_takes_over_is_not_late(world: World) -> None:  # semantics S1
    handover = world.submit("e1", "routes").handover
    world.coordinator().pause()
    assert world.coordinator().acknowledge(world.write(handover)) is AckAnswer.SUCCESS
    assert first(world).late == ()


def test_so_many_are_remembered_and_no_more() -> None:
    stages = tuple(StageSpec(f"s{number}") for number in range(MAX_LATE + 2))
    world = World(stages=stages)
    world.trigger("e1")
    handovers = [world.submit("e1", stage.uid).handover for stage in stages]
    expire(world)
    for handover in handovers:
        assert world.coordinator().acknowledge(ack_of(handover)) is AckAnswer.DISCARDED
    assert [each.stage for each in first(world).late] == [stage.uid for stage in stages[:MAX_LATE]]


@pytest.mark.parametrize("cleaned", [False, True])
def test_what_came_late_is_deleted_on_arrival(world: World, cleaned: bool, caplog: pytest.LogCaptureFixture) -> None:
    """semantics A2: a cleaner may have taken the handover that said whose it is."""
    ack, _ = late(world)
    world.run_epoch("e2")
    if cleaned:
        world.coordinator().clean()
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert {key.split("/")[1] for key in world.standing() - world.lent() if ack.token in key} == {"handover"}
    assert "what it wrote is deleted" in caplog.text


def test_what_cannot_be_told_is_left_to_the_cleaner(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics A2
    """The history has forgotten the checkpoint, and a cleaner has taken the handover: the log says what is true."""
    monkeypatch.setattr("airflow_cairn.checkpoint.rules.history.MAX_HISTORY", 1)
    caplog.set_level(logging.WARNING)
    ack, _ = late(world)
    world.run_epoch("e2")
    world.coordinator().clean()
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert "what it wrote is left to the cleaner" in caplog.text
    assert [key for key in world.standing() if ack.token in key]
    world.coordinator().clean()
    assert not [key for key in world.standing() if ack.token in key]
