"""Failing over: what runs again (semantics F1 to F3, F5), and checkpoints without regions that failed (F6)."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from airflow_cairn.checkpoint import FixedDelayRestart, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import AbandonedRegion, EpochCompleted, Failed, FailedOver, Ready, Waiting
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from tests.support.narrowing import expect
from tests.support.world.exchanges import CHAIN
from tests.support.world.lagging import REGIONAL, fail_permanently, run_some
from tests.support.world.world import TIMEOUT, World


def test_exactly_the_stages_that_must_run_again_do(world: World) -> None:  # semantics F1
    """`clean` and `routes` are a region, `airports` reads from it, `report` has not begun."""
    world.stages = CHAIN
    run_some(world, "a", "clean", "airports")
    world.submit("a", "routes", "first")
    answer = expect(FailedOver, world.coordinator().fail("a", "routes", "first", "killed"))
    assert {each.stage for each in answer.restarted} == {"clean", "airports"}
    assert world.coordinator().head().history[-1].restarted == ("airports", "clean", "routes")


def test_what_need_not_run_again_carries_over(world: World) -> None:  # semantics F1, F2
    world.stages = CHAIN
    run_some(world, "a", "clean", "routes", "airports")
    world.submit("a", "report", "first")
    before = world.trigger("a").pending.executions
    answer = expect(FailedOver, world.coordinator().fail("a", "report", "first", "killed"))
    assert answer.restarted == ()
    after = answer.pending.executions
    assert {uid for uid in after if after[uid] != before[uid]} == {"report"}
    assert world.coordinator().head().history[-1].reason is Reason.JOB_FAILOVER_REGION


def test_the_whole_job_fails_over_where_another_checkpoint_is_restored(world: World) -> None:  # semantics F2
    world.stages = CHAIN
    world.run_epoch("y", "z")
    run_some(world, "a", "clean", "routes", "airports")
    world.submit("a", "report", "first")
    world.files.delete([world.coordinator().head().completed[-1].metadata.key])
    answer = expect(FailedOver, world.coordinator().fail("a", "report", "first", "killed"))
    assert {each.stage for each in answer.restarted} == {"clean", "routes", "airports"}


def test_however_often_a_failure_is_told_it_is_one_failover(world: World) -> None:  # semantics F5
    for order in permutations(["report", "report again", "next try"]):
        twin = World(stages=CHAIN)
        run_some(twin, "a", "clean")
        twin.submit("a", "routes", "first")
        for who in order:
            if who == "next try":
                twin.coordinator().begin("a", "routes", "second")
            else:
                twin.coordinator().fail("a", "routes", "first", "killed")
        assert twin.pending_id("a") == 2, order


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


def test_a_failure_that_is_tried_again_is_an_ordinary_failover(world: World) -> None:  # semantics F2, F6
    world.config = REGIONAL
    run_some(world, "a", "clean")
    world.submit("a", "routes", "first")
    assert isinstance(world.coordinator().fail("a", "routes", "first", "killed"), FailedOver)


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
        # Its marker came after the timeout, and nobody had looked: the checkpoint is whole.
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


def test_it_is_off_by_default(world: World) -> None:  # semantics F6
    run_some(world, "a", "clean", "airports")
    claimant = world.new_claimant()
    world.submit("a", "routes", claimant)
    assert isinstance(world.coordinator().fail("a", "routes", claimant, "killed", final=True), Failed | FailedOver)


def test_where_it_is_on_the_ratio_is_0_3_and_two_in_a_row_are_allowed() -> None:  # semantics F6
    assert RegionalCheckpoints() == RegionalCheckpoints(max_failure_ratio=0.3, max_consecutive_failures=2)


def test_a_lending_checkpoint_is_kept_while_it_is_named(world: World) -> None:  # semantics F6
    world.config = replace(REGIONAL, retained=1)
    world.run_epoch("a")
    lent = {key for key in world.referred() if "/state/routes/" in key}
    for epoch in ("b", "c"):
        run_some(world, epoch, "clean", "airports")
        fail_permanently(world, epoch, "routes")
        world.coordinator().complete(world.pending_id(epoch))
        world.coordinator().clean()
        assert [entry.epoch for entry in world.coordinator().head().completed] == [epoch]
        assert lent <= world.standing() & world.referred()
    world.run_epoch("d")
    assert not lent & world.standing()
    world.audit("a", "b", "c", "d")


def test_the_count_of_restarts_is_in_the_head_and_no_report_renews_it(world: World) -> None:  # semantics F4, F5
    world.config = replace(world.config, restart_strategy=FixedDelayRestart(2))
    world.run_epoch("z")
    world.trigger("a")
    for number in range(3):
        assert world.coordinator().head().pending[0].restarts == number
        world.submit("a", "clean", f"try-{number}")
        for _ in range(3):
            world.coordinator().fail("a", "clean", f"try-{number}", "boom")
    ended = world.coordinator().head().history[-1]
    assert (ended.reason, ended.for_good, world.coordinator().head().pending) == (Reason.JOB_FAILURE, True, ())
    assert ended.detail == "FixedDelayRestart allows 2 restarts of an epoch, and this was failure 3: clean: boom"
    assert world.run_epoch("b"), "the last checkpoint stays restorable"
    assert world.coordinator().head().history[-1].restored_from == 1


def test_what_no_retry_cures_fails_at_once(world: World) -> None:  # semantics F4
    world.trigger("a")
    world.submit("a", "clean", "only")
    answer = world.coordinator().fail("a", "clean", "only", "AnalysisException: no column", curable=False)
    why = "no retry cures this: clean: AnalysisException: no column"
    assert answer == Failed(1, 1, Reason.JOB_FAILURE, why, job_failed=True, for_good=True)
