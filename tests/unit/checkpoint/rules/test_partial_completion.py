"""Checkpoints that complete without some stages: unaligned ones (semantics B3) and regional ones (F6)."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, RegionalCheckpoints
from airflow_cairn.checkpoint.answers import (
    AbandonedRegion,
    EpochCompleted,
    Failed,
    FailedOver,
    Ready,
    StageAcknowledged,
    Submit,
    Triggered,
    Waiting,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import AckDocument
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.checkpoint.rules.partial_completion import closed
from tests.support.errors import raises_code
from tests.support.narrowing import expect, known
from tests.support.world.lagging import (
    ALIGNMENT,
    REGIONAL,
    UNALIGNED,
    complete_without,
    fail_permanently,
    lose_a_file,
    random_job,
    run_some,
)
from tests.support.world.world import CONFIG, STAGES, TIMEOUT, World

pytestmark = pytest.mark.usefixtures("parsed_documents")


def test_a_stage_that_reads_from_nobody_is_waited_for(world: World) -> None:  # semantics B3
    world.config = UNALIGNED
    world.trigger("a")
    world.clock.advance(2 * ALIGNMENT)
    assert isinstance(world.coordinator().progress("a"), Waiting)


def test_an_upstream_that_catches_up_covers_what_its_reader_owes(world: World) -> None:  # semantics B3
    world.config = UNALIGNED
    run_some(world, "a", "clean", "airports")
    complete_without(world, "a", "routes", "report")
    run_some(world, "b", "clean", "airports", "routes")
    complete_without(world, "b", "report")
    assert world.owed()["report"] == ["a", "b"]
    world.run_epoch("c")
    world.audit("a", "b", "c")


def test_no_more_is_owed_than_documents_hold(world: World) -> None:  # semantics B3, W5
    world.config = UNALIGNED
    request = world.request("a")
    large = replace(request, slice=replace(request.slice, detail={"list": "x" * 300_000}))
    world.coordinator().trigger(large)
    world.run_stage("a", "clean", "routes", "report")
    world.clock.advance(2 * ALIGNMENT)
    assert isinstance(world.coordinator().progress("a"), Waiting)


def test_a_late_acknowledgement_is_discarded_and_its_input_is_kept(world: World) -> None:  # semantics A2, B3
    world.config = UNALIGNED
    world.run_epoch("a")
    run_some(world, "b", "clean", "routes", "report")
    late = world.submit("b", "airports").handover
    ack = world.write(late)
    complete_without(world, "b", "airports")
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED
    assert world.coordinator().begin("b", "airports", "again") == EpochCompleted("b", 2)
    world.coordinator().clean()
    world.run_epoch("c")
    world.audit("a", "b", "c")


def test_a_late_first_acknowledgement_is_discarded_too(world: World) -> None:  # semantics A2, B3
    world.config = UNALIGNED
    run_some(world, "a", "clean", "routes", "report")
    ack = world.write(world.submit("a", "airports").handover)
    complete_without(world, "a", "airports")
    assert world.coordinator().acknowledge(ack) is AckAnswer.DISCARDED


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


def test_damage_falls_back_to_the_lender_and_replays_for_all(world: World) -> None:  # semantics R1, B3
    world.config = UNALIGNED
    world.run_epoch("a")
    run_some(world, "b", "clean", "routes", "report")
    complete_without(world, "b", "airports")
    in_flight = next(key for key in sorted(world.referred()) if "exchange" in key)
    world.store.delete([f"flights/{in_flight}"])
    answer = world.trigger("c")
    assert known(answer.pending.restore).checkpoint == 1
    assert [each.epoch for each in answer.pending.replay] == ["b"]
    assert answer.pending.backlogs == {}
    world.run_epoch("c")
    assert world.folded() == {each.uid: ["a", "b", "c"] for each in STAGES}


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


def test_a_failover_keeps_the_backlog(world: World) -> None:  # semantics F2, B3
    world.config = UNALIGNED
    run_some(world, "a", "clean", "routes", "report")
    complete_without(world, "a", "airports")
    world.trigger("b")
    world.submit("b", "airports", "first")
    answer = expect(FailedOver, world.coordinator().fail("b", "airports", "first", "killed"))
    assert list(answer.pending.backlogs) == ["airports"]
    world.run_epoch("b")
    world.audit("a", "b")


# Regional checkpoints.


def test_whoever_clears_a_stage_that_was_given_up_runs_it_again(world: World) -> None:  # semantics F2, F6
    world.config = REGIONAL
    run_some(world, "a", "clean")
    assert isinstance(fail_permanently(world, "a", "routes"), AbandonedRegion)
    assert world.run_stage("a", "routes") is AckAnswer.SUCCESS, "before the others are done"
    world.run_epoch("a")
    assert world.coordinator().head().completed[-1].left_out == ()
    world.audit("a")


def test_a_source_stage_that_failed_reads_its_own_slices_later(world: World) -> None:  # semantics F6, T8
    world.config = replace(CONFIG, regional=RegionalCheckpoints(0.9, 2))
    world.stages = (StageSpec("left"), StageSpec("right"))
    run_some(world, "a", "right")
    assert isinstance(fail_permanently(world, "a", "left"), AbandonedRegion)
    world.coordinator().complete(1)
    assert [each.slice for each in world.trigger("b").pending.backlogs["left"]] == [Slice(detail={"of": "a"})]
    world.run_epoch("b")
    world.audit("a", "b")


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


# Any sequence.


class _Life:
    """A random life of a job; `World.write` checks that each driver is given each epoch once and in order."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        config = replace(UNALIGNED, retained=3, max_backlog=3, regional=RegionalCheckpoints(0.6, 2))
        self.world = World(config=config, stages=random_job(self.chance, 5, 0.5))
        self.late: list[AckDocument] = []
        self.done: list[str] = []
        self.left_out = 0

    def epoch(self, name: str) -> None:
        """Run one epoch to its end, with whatever may happen on the way."""
        world, chance = self.world, self.chance
        assert isinstance(world.coordinator().trigger(world.request(name)), Triggered)
        for _ in range(40):
            for stage in world.stages:
                self.stage(name, stage)
                if chance.random() < 0.1:
                    world.coordinator().clean()
            world.clock.advance(ALIGNMENT * chance.choice([0, 1, 11]))
            progress = world.coordinator().progress(name)
            if isinstance(progress, Ready):
                world.coordinator().complete(progress.checkpoint)
            if world.coordinator().head().pending_of_epoch(name) is None and isinstance(
                world.coordinator().trigger(world.request(name)), EpochCompleted
            ):
                break
        else:
            raise AssertionError("the epoch never completes")
        self.done.append(name)
        self.left_out += bool(world.coordinator().head().completed[-1].left_out)
        while self.late and chance.random() < 0.5:
            ack = self.late.pop()
            # Of a checkpoint that left the store nobody can tell any more.
            retained = ack.epoch in {entry.epoch for entry in world.coordinator().head().completed}
            answer = world.coordinator().acknowledge(ack)
            assert answer is AckAnswer.DISCARDED or (answer is AckAnswer.SUCCESS and not retained)
        world.coordinator().clean()
        self.check()

    def stage(self, epoch: str, stage: StageSpec) -> None:
        """Let one stage do something, if what it reads from has acknowledged: run, lag, fail for now or for good."""
        world, chance = self.world, self.chance
        progress = world.coordinator().progress(epoch)
        if not isinstance(progress, Waiting) or not set(stage.upstream) <= set(progress.acknowledged):
            return
        claimant = world.new_claimant()
        fate = chance.choice(["run", "run", "run", "lag", "wait", "fail", "fail for good", "decline"])
        if fate == "wait":
            return
        begun = world.coordinator().begin(epoch, stage.uid, claimant)
        if not isinstance(begun, Submit):
            assert isinstance(begun, StageAcknowledged), begun
            return
        if fate == "run":
            assert world.drive(begun.handover) is AckAnswer.SUCCESS
        elif fate == "lag":
            self.late.append(world.write(begun.handover))
        elif fate == "decline":
            world.decline(begun.handover)
        else:
            world.coordinator().fail(epoch, stage.uid, claimant, "killed", final=fate == "fail for good")

    def check(self) -> None:
        """Every retained checkpoint's state and backlog are all the epochs up to it, for each stage."""
        world = self.world
        head = world.coordinator().head()
        for entry in head.completed:
            folded, owed = world.folded(entry.id), world.owed(entry.id)
            upto = self.done[: self.done.index(entry.epoch) + 1]
            assert {uid: folded.get(uid, []) + owed[uid] for uid in owed} == {each.uid: upto for each in world.stages}
            assert closed(world.stages, entry.left_out) == set(entry.left_out)
        assert all(found.whole for found in world.coordinator().verify())
        if not head.pending:
            assert world.standing() == world.referred(), "no orphan, and nothing missing"


@pytest.mark.simulation
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.soak) for part in (1, 2, 3))])
def test_every_epoch_is_folded_in_once_and_in_order_whatever_happens(part: int) -> None:  # semantics B1, B3, F6, R1
    left_out = 0
    for seed in range(part, 24, 4):
        life = _Life(seed)
        try:
            for number in range(7):
                life.epoch(f"e{number}")
                if life.chance.random() < 0.2:
                    lose_a_file(life.world, life.chance)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        left_out += life.left_out
    assert left_out > 10, "the lives are about checkpoints that leave somebody out"


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
