"""Every acknowledgement that can come, what it is told, and what becomes of its state and its marker (A2, A3, A6).

One row a case. Afterwards the epoch is brought to its end and cleaned, and nothing may be left that nobody refers to.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from airflow_cairn.checkpoint.answers import Ready
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from tests.support.acking import wide_ack
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import RecordingStore

KEPT, DELETED = "kept", "deleted"


def _current(world: World) -> AckDocument:
    return world.write(world.submit("a", "clean").handover)


def _first(world: World) -> AckDocument:
    return _current(world)


def _again(world: World) -> AckDocument:
    ack = _current(world)
    world.coordinator().acknowledge(ack)
    return ack


def _second_driver(world: World) -> AckDocument:
    handover = world.submit("a", "clean").handover
    world.drive(handover)
    return world.write(handover)


def _second_driver_after_completion(world: World) -> AckDocument:
    handover = world.submit("a", "clean").handover
    world.drive(handover)
    world.run_epoch("a")
    return world.write(handover)


def _replaced_by_a_retry(world: World) -> AckDocument:
    ack = _current(world)
    world.submit("a", "clean")
    return ack


def _aborted(world: World) -> AckDocument:
    ack = _current(world)
    world.coordinator().abort(world.pending_id("a"), Reason.JOB_FAILURE, "by hand")
    return ack


def _expired(world: World) -> AckDocument:
    ack = _current(world)
    world.clock.advance(TIMEOUT)
    return ack


def _carried_over(world: World) -> AckDocument:
    ack = _current(world)
    claim = world.submit("a", "airports").handover
    world.coordinator().fail("a", "airports", claim.claimant, "killed")
    return ack


def _completed_with_another(world: World) -> AckDocument:
    ack = _current(world)
    world.run_epoch("a")
    return ack


def _completed_with_it(world: World) -> AckDocument:
    ack = _current(world)
    world.coordinator().acknowledge(ack)
    world.run_epoch("a")
    return ack


def _unknown_stage(world: World) -> AckDocument:
    return world.write(replace(world.submit("a", "clean").handover, stage="weather"))


def _unknown_id(world: World) -> AckDocument:
    return world.write(replace(world.submit("a", "clean").handover, checkpoint=77))


@dataclass(frozen=True)
class Case:
    """One row."""

    make: Callable[[World], AckDocument]
    answer: AckAnswer
    state: str
    marker: str
    log: tuple[int, str] | None = None


CASES = {
    "the first of an expected execution": Case(_first, AckAnswer.SUCCESS, KEPT, KEPT),
    "the same one again": Case(_again, AckAnswer.SUCCESS, KEPT, KEPT),
    "of an execution that a failover of others carried over": Case(_carried_over, AckAnswer.SUCCESS, KEPT, KEPT),
    "of the execution that the epoch completed with": Case(_completed_with_it, AckAnswer.SUCCESS, KEPT, KEPT),
    "of a second driver": Case(_second_driver, AckAnswer.DUPLICATE, KEPT, KEPT, (logging.INFO, "left to the cleaner")),
    "of a second driver, when the first one's marker has been cleaned": Case(
        _second_driver_after_completion, AckAnswer.SUCCESS, KEPT, KEPT
    ),
    "of one that a retry replaced": Case(
        _replaced_by_a_retry, AckAnswer.DISCARDED, DELETED, DELETED, (logging.WARNING, "Acknowledged late")
    ),
    "of an aborted attempt": Case(
        _aborted, AckAnswer.DISCARDED, DELETED, DELETED, (logging.WARNING, "Acknowledged late")
    ),
    "of an expired attempt": Case(
        _expired, AckAnswer.DISCARDED, DELETED, DELETED, (logging.WARNING, "Acknowledged late")
    ),
    "of one that the epoch completed without, when it has been cleaned": Case(
        _completed_with_another, AckAnswer.DISCARDED, DELETED, DELETED, (logging.WARNING, "Acknowledged late")
    ),
    "of a stage that nobody expects": Case(
        _unknown_stage, AckAnswer.UNKNOWN, KEPT, KEPT, (logging.DEBUG, "Never expected")
    ),
    "of an id that was never handed out": Case(
        _unknown_id, AckAnswer.UNKNOWN, DELETED, DELETED, (logging.DEBUG, "Never expected")
    ),
}


def _of(world: World, ack: AckDocument, kind: str) -> list[str]:
    """Give what stands of the driver's state, or of its execution's marker."""
    if kind == "marker":
        return [key for key in world.standing() if key == layout.ack(ack.checkpoint, ack.stage, ack.token)]
    folder = layout.execution_folder(ack.checkpoint, ack.stage, ack.attempt, ack.token)
    return [key for key in world.standing() if key.startswith(f"{folder}{ack.run}/")]


@pytest.mark.parametrize("name", CASES)
def test_each_ack_is_told_what_it_is_and_its_state_meets_its_fate(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:  # semantics A2, A3
    case = CASES[name]
    world.run_epoch("z")
    world.trigger("a")
    ack = case.make(world)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "airflow_cairn"):
        assert world.coordinator().acknowledge(ack) is case.answer
    assert bool(_of(world, ack, "state")) == (case.state == KEPT)
    assert bool(_of(world, ack, "marker")) == (case.marker == KEPT)
    said = [(each.levelno, each.getMessage()) for each in caplog.records if "execution" in each.getMessage()]
    assert [level for level, _ in said] == ([case.log[0]] if case.log else [])
    if case.log:
        assert case.log[1] in said[0][1]
        assert f"stage {ack.stage}, execution {ack.token}" in said[0][1]
    world.run_epoch("a")
    world.coordinator().clean()
    world.audit("z", "a")
    if case.answer is not AckAnswer.SUCCESS:
        assert not _of(world, ack, "state"), "the cleaner takes what was left to it"


def test_an_ack_of_another_job_changes_nothing_at_all(world: World) -> None:  # semantics A3
    world.trigger("a")
    ack = _current(world)
    before = world.memory.all_keys()
    recording = RecordingStore(world.store)
    with pytest.raises(InvalidStateError, match="of another job") as caught:
        world.coordinator(recording).acknowledge(replace(ack, job="weather"))
    assert (caught.value.fields["expected"], caught.value.fields["found"]) == (JOB, "weather")
    assert recording.total == 0
    assert world.memory.all_keys() == before


@pytest.mark.parametrize(("many", "files", "a_request"), [(100_000, 0, 10_000), (10_000, 10_000, 2_000)])
def test_many_subtasks_cost_a_request_for_thousands_of_them(
    many: int, files: int, a_request: int
) -> None:  # semantics A6
    costs: dict[int, tuple[int, int]] = {}
    for subtasks in (1, many):
        world = World(stages=(StageSpec("wide"),))
        world.trigger("a")
        ack = wide_ack(world.submit("a", "wide").handover, subtasks, min(files, subtasks))
        acknowledging, polling = RecordingStore(world.store), RecordingStore(world.store)
        assert world.coordinator(acknowledging).acknowledge(ack) is AckAnswer.SUCCESS
        assert world.coordinator(polling).progress("a") == Ready(1)
        assert polling.requests["read_range"] == 0, "progress lists markers and reads none"
        costs[subtasks] = acknowledging.total, polling.total
    assert 0 < costs[many][0] - costs[1][0] <= many // a_request, "what grows is parts of 768 KiB"
    assert costs[many][1] == costs[1][1]
