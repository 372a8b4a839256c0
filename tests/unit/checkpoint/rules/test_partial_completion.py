"""Checkpoints that complete without some stages: unaligned ones (semantics B3) and regional ones (F6)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import (
    AbandonedRegion,
    EpochCompleted,
    Failed,
    Ready,
    Waiting,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from tests.support.errors import raises_code
from tests.support.narrowing import expect
from tests.support.world.lagging import (
    ALIGNMENT,
    REGIONAL,
    UNALIGNED,
    complete_without,
    fail_permanently,
    run_some,
)
from tests.support.world.world import STAGES, TIMEOUT, World

pytestmark = pytest.mark.usefixtures("parsed_documents")


def test_a_stage_that_reads_from_nobody_is_waited_for(world: World) -> None:  # semantics B3
    world.config = UNALIGNED
    world.trigger("a")
    world.clock.advance(2 * ALIGNMENT)
    assert isinstance(world.coordinator().progress("a"), Waiting)


def test_no_more_is_owed_than_documents_hold(world: World) -> None:  # semantics B3, W5
    world.config = UNALIGNED
    request = world.request("a")
    large = replace(request, slice=replace(request.slice, detail={"list": "x" * 300_000}))
    world.coordinator().trigger(large)
    world.run_stage("a", "clean", "routes", "report")
    world.clock.advance(2 * ALIGNMENT)
    assert isinstance(world.coordinator().progress("a"), Waiting)


@pytest.mark.parametrize("before", [(), ("a",)], ids=["of the first epoch", "of a later one"])
def test_a_late_acknowledgement_is_discarded_and_its_input_is_kept(world: World, before: tuple[str, ...]) -> None:
    """semantics A2, B3"""
    world.config = UNALIGNED
    for epoch in before:
        world.run_epoch(epoch)
    run_some(world, "b", "clean", "routes", "report")
    ack = world.write(world.submit("b", "airports").handover)
    checkpoint = complete_without(world, "b", "airports")
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert world.coordinator().begin("b", "airports", "again") == EpochCompleted("b", checkpoint)
    world.coordinator().clean()
    world.run_epoch("c")
    world.audit(*before, "b", "c")


def test_finishers_that_see_different_stages_lag_do_not_disturb_each_other(world: World) -> None:  # semantics D3
    world.config = UNALIGNED
    run_some(world, "a", "clean", "routes", "report")
    ack = world.write(world.submit("a", "airports").handover)
    world.clock.advance(ALIGNMENT)
    before = world.fork()
    before.coordinator().complete(1)
    other = next(key for key in before.memory.all_keys() if "_metadata" in key)
    world.memory.put(other, before.memory.get(other).data)  # a finisher that died before its swap
    world.coordinator().acknowledge(ack)
    world.coordinator().clean()
    assert other in world.memory.all_keys(), "the checkpoint is pending, and that finisher may be alive"
    assert world.coordinator().progress("a") == Ready(1)
    world.coordinator().complete(1)
    world.audit("a")


def test_a_stage_that_owes_may_not_vanish(world: World) -> None:  # semantics R3
    world.config = UNALIGNED
    run_some(world, "a", "clean", "routes", "report")
    complete_without(world, "a", "airports")
    world.stages = tuple(each for each in STAGES if each.uid != "airports")
    with raises_code("non_restored_state", match="no stage claims") as caught:
        world.trigger("b")
    assert caught.value.fields["unclaimed"] == "airports"
    world.config = replace(UNALIGNED, allow_non_restored_state=True)
    world.run_epoch("b")
    world.audit("a", "b")


def test_what_is_in_flight_may_not_lose_its_reader(world: World) -> None:  # semantics R3
    world.config = UNALIGNED
    run_some(world, "a", "clean", "routes", "report")
    complete_without(world, "a", "airports")
    world.stages = tuple(StageSpec("airports") if each.uid == "airports" else each for each in STAGES)
    with raises_code("non_restored_state", match="airports from clean"):
        world.trigger("b")
    world.config = replace(UNALIGNED, allow_non_restored_state=True)
    assert [each.inputs for each in world.trigger("b").pending.backlogs["airports"]] == [{}]


def test_the_long_list_of_an_epoch_is_kept_as_long_as_the_epoch_is_owed(world: World) -> None:  # semantics C3, T8
    world.config = replace(UNALIGNED, retained=1)
    listed = f"flights/{layout.epoch_list('a', 'files')}"
    world.memory.put(listed, b"")
    for epoch in ("a", "b"):
        run_some(world, epoch, "clean", "routes", "report")
        complete_without(world, epoch, "airports")
    assert listed in world.memory.all_keys(), "the checkpoint of the epoch has left, and the epoch is still owed"
    world.run_epoch("c")
    world.coordinator().clean()
    assert listed not in world.memory.all_keys()


# Regional checkpoints.


def test_whoever_clears_a_stage_that_was_given_up_runs_it_again(world: World) -> None:  # semantics F2, F6
    world.config = REGIONAL
    run_some(world, "a", "clean")
    assert isinstance(fail_permanently(world, "a", "routes"), AbandonedRegion)
    assert world.run_stage("a", "routes") is AckAnswer.SUCCESS, "before the others are done"
    world.run_epoch("a")
    assert world.coordinator().head().completed[-1].left_out == ()
    world.audit("a")


def test_a_last_try_that_declined_fails_the_checkpoint_as_a_failed_task(world: World) -> None:  # semantics D1, D5
    world.config = UNALIGNED
    run_some(world, "a", "clean")
    world.decline(world.submit("a", "routes", "last").handover)
    answer = world.coordinator().fail("a", "routes", "last", "exit 1", final=True)
    assert answer == Failed(1, 1, Reason.JOB_FAILURE, "routes: ValueError: bad row")


# Options (semantics S3).


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unaligned": 1}, "unaligned must be True or False"),
        ({"unaligned": True, "max_concurrent_checkpoints": 2}, "unaligned checkpoints need"),
        ({"unaligned": True, "alignment_timeout": timedelta(-1)}, "alignment_timeout must be"),
        ({"unaligned": True, "alignment_timeout": timedelta(hours=6)}, "less than timeout"),
        ({"unaligned": True, "alignment_timeout": 5}, "alignment_timeout must be"),
        ({"alignment_timeout": timedelta(1)}, "less than timeout"),
        ({"alignment_timeout": timedelta(seconds=1)}, "does nothing without unaligned"),
        ({"max_backlog": 0}, "max_backlog must be a whole number"),
        ({"regional": True}, "regional must be a RegionalCheckpoints"),
        ({"mode": "at_most_once"}, "mode must be one of exactly_once, at_least_once"),
        ({"mode": None}, "mode must be one of"),
        ({"mode": "at_least_once", "unaligned": True}, "does not go with unaligned or regional"),
        ({"mode": "at_least_once", "regional": RegionalCheckpoints()}, "does not go with unaligned or regional"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:  # semantics B2, S3
    with pytest.raises(InvalidConfigError, match=message):
        CheckpointConfig(**options)


@pytest.mark.parametrize(
    "options",
    [(0.0, 1), (1.0, 1), (-0.1, 1), (float("nan"), 1), (True, 1), ("0.3", 1), (0.3, 0), (0.3, 1.5), (0.3, True)],
)
def test_regional_options_out_of_their_bounds_are_refused(options: tuple[Any, Any]) -> None:  # semantics S3, F6
    with pytest.raises(InvalidConfigError, match="max_"):
        RegionalCheckpoints(*options)


def test_options_at_their_bounds_are_taken() -> None:  # semantics S3
    CheckpointConfig(unaligned=True, alignment_timeout=timedelta(0), max_backlog=1)
    CheckpointConfig(unaligned=True, timeout=TIMEOUT, alignment_timeout=TIMEOUT - timedelta(milliseconds=1))
    RegionalCheckpoints(0.999, 1)


def test_a_region_that_failed_is_left_out(world: World) -> None:  # semantics F6
    world.config = REGIONAL
    world.run_epoch("a")
    run_some(world, "b", "clean")
    assert fail_permanently(world, "b", "routes") == AbandonedRegion(2, ("report", "routes"))
    assert isinstance(world.coordinator().progress("b"), Waiting), "the others go on"
    world.run_stage("b", "airports")
    assert world.coordinator().progress("b") == Ready(2, ("report", "routes"))
    world.coordinator().complete(2)
    assert world.coordinator().head().completed[-1].regional_in_a_row == 1
    world.audit("a", "b")
    world.run_epoch("c")
    assert world.coordinator().head().completed[-1].regional_in_a_row == 0
    world.audit("a", "b", "c")


def test_a_decline_waits_for_what_the_operator_says(world: World) -> None:  # semantics D1, F6
    world.config = REGIONAL
    run_some(world, "a", "clean", "airports")
    world.decline(world.submit("a", "routes", "first").handover)
    assert isinstance(world.coordinator().progress("a"), Waiting)
    assert isinstance(world.coordinator().fail("a", "routes", "first", "x", final=True), AbandonedRegion)
    world.coordinator().complete(1)
    world.audit("a")


def test_too_many_failed_regions_fail_the_attempt(world: World) -> None:  # semantics F6
    world.config = replace(REGIONAL, regional=RegionalCheckpoints(0.3, 2))
    run_some(world, "a", "clean")
    answer = fail_permanently(world, "a", "routes")
    assert answer == Failed(1, 1, Reason.JOB_FAILURE, "routes: killed"), "with what reads from it: two of four"
    assert world.coordinator().progress("a") == answer
    assert isinstance(fail_permanently(world, "a", "airports"), AbandonedRegion), (
        "one of four, in the attempt that the next try opens"
    )
    assert isinstance(fail_permanently(world, "a", "routes"), Failed)
    world.run_epoch("a")
    world.audit("a")


def test_after_so_many_in_a_row_the_next_must_be_whole(world: World) -> None:  # semantics F6
    world.config = REGIONAL
    for epoch in ("a", "b"):
        run_some(world, epoch, "clean", "airports")
        assert isinstance(fail_permanently(world, epoch, "routes"), AbandonedRegion)
        world.coordinator().complete(world.pending_id(epoch))
    run_some(world, "c", "clean", "airports")
    assert isinstance(fail_permanently(world, "c", "routes"), Failed)
    world.run_epoch("c")
    world.audit("a", "b", "c")


@pytest.mark.parametrize("who", ["progress", "trigger", "begin", "acknowledge", "complete"])
def test_who_is_silent_at_the_timeout_has_failed(world: World, who: str) -> None:  # semantics D2, F6
    world.config = REGIONAL
    run_some(world, "a", "clean", "routes", "report")
    late = world.write(world.submit("a", "airports").handover)
    world.clock.advance(TIMEOUT)
    acts: dict[str, Any] = {
        "progress": lambda: world.coordinator().progress("a"),
        "trigger": lambda: world.coordinator().trigger(world.request("a")),
        "begin": lambda: world.coordinator().begin("a", "airports", "next"),
        "complete": lambda: world.coordinator().complete(1),
    }
    if who == "acknowledge":
        # The marker came after the timeout, and nobody had looked: the checkpoint is whole.
        assert world.coordinator().acknowledge(late) is AckAnswer.SUCCESS
        assert world.coordinator().head().completed[-1].left_out == ()
    else:
        assert acts[who]() == EpochCompleted("a", 1)
        assert world.coordinator().head().completed[-1].left_out == ("airports",)
    world.audit("a")


def test_too_many_silent_regions_expire_it(world: World) -> None:  # semantics D2, F6
    world.config = REGIONAL
    run_some(world, "a", "clean")
    world.clock.advance(TIMEOUT)
    answer = expect(Failed, world.coordinator().progress("a"))
    assert answer.reason is Reason.CHECKPOINT_EXPIRED


def test_of_two_that_fail_at_once_one_sees_both(world: World) -> None:  # semantics F6
    world.config = replace(REGIONAL, regional=RegionalCheckpoints(0.3, 2))
    run_some(world, "a", "clean")
    world.submit("a", "airports", "one")
    home = world.submit("a", "report", "two").handover
    world.memory.put(f"flights/{layout.failure(home.checkpoint, 'report', home.token)}", b"any")
    assert isinstance(world.coordinator().fail("a", "airports", "one", "killed", final=True), Failed)


def test_where_it_is_on_the_ratio_is_0_3_and_two_in_a_row_are_allowed() -> None:  # semantics F6
    assert RegionalCheckpoints() == RegionalCheckpoints(max_failure_ratio=0.3, max_consecutive_failures=2)
