"""Claims and failovers: who may submit, what a failed try means, what carries over (semantics F2, F5, W4)."""

from dataclasses import replace
from itertools import permutations

import pytest

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.answers import (
    AlreadyRead,
    EpochCompleted,
    Failed,
    FailedOver,
    NothingToDo,
    Queued,
    StageAcknowledged,
    Submit,
    TriggerFirst,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.errors import FencedError, InvalidConfigError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from tests.support.narrowing import expect
from tests.support.world.exchanges import DIAMOND
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore


def _executions(world: World, epoch: str = "a") -> dict[str, str]:
    return {uid: each.token for uid, each in world.trigger(epoch).pending.executions.items()}


def test_beginning_twice_is_one_claim(world: World) -> None:  # semantics F5, T9
    world.trigger("a")
    assert world.submit("a", "clean", "try-1") == world.submit("a", "clean", "try-1")
    assert world.pending_id("a") == 1


def test_the_next_try_s_begin_is_a_failover_though_no_callback_ran(world: World) -> None:  # semantics F2, F5
    world.trigger("a")
    world.run_stage("a", "clean", "airports")
    before = _executions(world)
    dead = world.submit("a", "routes").handover
    alive = world.submit("a", "routes").handover
    after = _executions(world)
    assert (dead.checkpoint, alive.checkpoint) == (1, 2)
    assert {uid for uid in before if before[uid] != after[uid]} == {"routes", "report"}, "what reads from it, no more"
    ended = world.coordinator().head().history[-1]
    assert (ended.reason, ended.acks, ended.stages) == (Reason.JOB_FAILOVER_REGION, 2, 4)
    assert ended.detail == "routes: the try before ended without acknowledging"
    assert isinstance(world.coordinator().begin("a", "clean", "try-x"), StageAcknowledged)
    world.run_epoch("a")
    world.audit("a")


@pytest.mark.parametrize("times", [1, 2, 5])
def test_a_failure_reported_any_number_of_times_is_one_failover(world: World, times: int) -> None:  # semantics F5
    world.trigger("a")
    world.submit("a", "clean", "try-1")
    answers = [world.coordinator().fail("a", "clean", "try-1", "boom") for _ in range(times)]
    assert isinstance(answers[0], FailedOver)
    assert all(isinstance(answer, NothingToDo) for answer in answers[1:])
    assert world.pending_id("a") == 2
    assert world.coordinator().head().history[-1].detail == "clean: boom"


def test_reports_and_the_next_try_in_any_order_are_one_failover(world: World) -> None:  # semantics F5
    for order in permutations(["callback", "callback again", "next try"]):
        twin = World()
        twin.trigger("a")
        twin.submit("a", "clean", "try-1")
        for who in order:
            if who == "next try":
                twin.submit("a", "clean", "try-2")
            else:
                twin.coordinator().fail("a", "clean", "try-1", "boom")
        assert twin.pending_id("a") == 2, order
        assert twin.submit("a", "clean", "try-2").handover.claimant == "try-2"


def test_two_reports_at_once_are_one_failover(world: World) -> None:  # semantics F5, D3
    world.run_epoch("z")
    world.trigger("a")
    world.submit("a", "clean", "try-1")

    def also() -> None:
        assert isinstance(world.coordinator().fail("a", "clean", "try-1", "boom"), FailedOver)

    store = InterleavingStore(world.store, "replace", 0, also)
    answer = expect(FailedOver, world.coordinator(store).fail("a", "clean", "try-1", "boom"))
    assert not answer.created
    assert world.pending_id("a") == 3


def test_a_report_of_an_older_try_changes_nothing(world: World) -> None:  # semantics F5
    world.trigger("a")
    world.submit("a", "clean", "try-1")
    world.submit("a", "clean", "try-2")
    before = world.coordinator().head()
    answer = expect(NothingToDo, world.coordinator().fail("a", "clean", "try-1", "late"))
    assert "another try holds" in answer.why
    assert world.coordinator().head() == before


def test_a_report_of_who_never_began_changes_nothing(world: World) -> None:  # semantics F5
    assert isinstance(world.coordinator().fail("a", "clean", "try-1", "boom"), NothingToDo)
    world.trigger("a")
    assert isinstance(world.coordinator().fail("a", "clean", "try-1", "boom"), NothingToDo)
    assert world.pending_id("a") == 1


def test_failing_after_acknowledging_loses_nothing(world: World) -> None:  # semantics F2
    world.trigger("a")
    handover = world.submit("a", "clean", "try-1").handover
    world.drive(handover)
    assert isinstance(world.coordinator().fail("a", "clean", "try-1", "killed while it exited"), NothingToDo)
    assert isinstance(world.coordinator().begin("a", "clean", "try-2"), StageAcknowledged)
    assert world.pending_id("a") == 1


def test_an_ack_that_lands_before_the_failover_s_swap_is_discarded_by_it(world: World) -> None:  # semantics A2, F2
    world.run_epoch("z")
    world.trigger("a")
    handover = world.submit("a", "clean", "try-1").handover
    answers: list[AckAnswer] = []
    store = InterleavingStore(world.store, "replace", 0, lambda: answers.append(world.drive(handover)))
    failed = world.coordinator(store).fail("a", "clean", "try-1", "boom")
    # The ack did not touch the head, so the failover's swap wins; the next look at that execution is its own doom.
    assert answers == [AckAnswer.SUCCESS]
    assert isinstance(failed, FailedOver)
    assert failed.created
    world.run_epoch("a")
    world.audit("z", "a")


def test_two_tries_at_once_leave_one_holder(world: World) -> None:  # semantics F5, W4
    world.trigger("a")
    rival: list[Submit] = []
    store = InterleavingStore(
        world.store, "create", 0, lambda: rival.append(world.submit("a", "clean", "try-2")), suffix=".json"
    )
    answer = expect(Submit, world.coordinator(store).begin("a", "clean", "try-1"))
    # The rival claimed first and this one came after: it is taken for the newer try, and the rival for a zombie.
    assert world.drive(rival[0].handover) is AckAnswer.DISCARDED
    assert world.drive(answer.handover) is AckAnswer.SUCCESS
    world.run_epoch("a")
    world.audit("a")


def test_a_claim_is_judged_by_the_head_after_it_was_made(world: World) -> None:  # semantics W4
    """The execution is replaced, for another stage's sake, between the look and the claim: it is claimed anew."""
    world.stages = DIAMOND
    world.trigger("a")
    world.run_stage("a", "clean")
    world.submit("a", "routes", "routes-1")

    def region_restarts() -> None:
        assert isinstance(world.coordinator().fail("a", "routes", "routes-1", "boom"), FailedOver)

    store = InterleavingStore(world.store, "create", 0, region_restarts, suffix=".json")
    answer = expect(Submit, world.coordinator(store).begin("a", "airports", "airports-1"))
    assert answer.handover.checkpoint == 2
    assert world.run_stage("a", "routes") is AckAnswer.SUCCESS
    assert world.drive(answer.handover) is AckAnswer.SUCCESS, "an outdated claim would be told DISCARDED"


def test_who_was_replaced_while_claiming_submits_nothing(world: World) -> None:  # semantics W4
    world.trigger("a")

    def newer_try() -> None:
        world.submit("a", "clean", "try-2")

    # The second read of the head is the judgement; by then the newer try has failed this one over, and claimed.
    store = InterleavingStore(world.store, "get", 1, newer_try)
    with pytest.raises(FencedError, match="another try of the stage has taken over") as caught:
        world.coordinator(store).begin("a", "clean", "try-1")
    assert caught.value.fields["holder"] == "try-2"
    assert world.submit("a", "clean", "try-2").handover.checkpoint == 2, "the newer try keeps its claim"


def test_a_broken_handover_is_nobody_s_claim(world: World) -> None:  # semantics W5
    world.trigger("a")
    answer = world.submit("a", "clean", "try-1")
    world.memory.put(f"{JOB}/{answer.handover_key}", b'{"half')
    assert world.submit("a", "clean", "try-2").handover.checkpoint == 2
    world.run_epoch("a")
    world.audit("a")


def test_an_expired_attempt_is_taken_up_by_the_next_try(world: World) -> None:  # semantics D2, F2
    world.trigger("a")
    world.run_stage("a", "clean")
    running = world.submit("a", "airports").handover
    world.clock.advance(TIMEOUT)
    taken = world.submit("a", "routes").handover
    assert (taken.checkpoint, taken.attempt) == (2, 2)
    assert world.drive(running) is AckAnswer.SUCCESS, "a sibling that still runs carries over"
    assert taken.upstream["clean"].home == 1
    world.run_epoch("a")
    world.audit("a")


def test_stages_that_declined_are_not_carried(world: World) -> None:  # semantics D1, F2
    world.trigger("a")
    world.run_stage("a", "clean")
    world.submit("a", "routes", "routes-1")
    world.decline(world.submit("a", "airports", "airports-1").handover)
    before = _executions(world)
    assert isinstance(world.coordinator().fail("a", "routes", "routes-1", "boom"), FailedOver)
    after = _executions(world)
    assert {uid for uid in before if before[uid] == after[uid]} == {"clean"}
    assert isinstance(world.coordinator().fail("a", "airports", "airports-1", "boom"), NothingToDo), "one failover"


def test_a_decline_names_the_root_cause_of_its_failover(world: World) -> None:  # semantics D1
    world.trigger("a")
    world.decline(world.submit("a", "clean", "try-1").handover, "ZeroDivisionError: by zero\n  at line 3")
    assert isinstance(world.coordinator().fail("a", "clean", "try-1", "exit status 1"), FailedOver)
    assert world.coordinator().head().history[-1].detail == "clean: ZeroDivisionError: by zero at line 3"


def test_who_ended_a_driver_is_said_and_not_how_it_felt_that(world: World) -> None:  # semantics D1
    """A driver that a signal ends declines for that; the task that sent it knows why."""
    world.trigger("a")
    clean = world.submit("a", "clean").handover
    world.decline(clean, "SystemExit: 143", reason=Reason.CHECKPOINT_DECLINED_TASK_CLOSING)
    world.coordinator().fail("a", "clean", clean.claimant, "a person marked its task as failed")
    assert world.coordinator().head().history[-1].detail == "clean: a person marked its task as failed"


def test_a_decline_that_cannot_be_read_holds_no_failover_up(world: World) -> None:  # semantics W5, D1
    world.trigger("a")
    handover = world.submit("a", "clean", "try-1").handover
    world.decline(handover)
    world.memory.put(f"{JOB}/{layout.decline(handover.checkpoint, 'clean', handover.token)}", b"{")
    answer = expect(FailedOver, world.coordinator().fail("a", "clean", "try-1", "boom"))
    assert "its decline cannot be read" in answer.pending.cause


def test_what_was_computed_from_another_checkpoint_is_not_carried(world: World) -> None:  # semantics R1, F2
    """The checkpoint that the attempt restored turns out damaged: nothing computed from it survives the failover."""
    world.run_epoch("x", "y")
    world.trigger("a")
    world.run_stage("a", "clean")
    world.submit("a", "routes", "routes-1")
    victim = next(path for path in world.referred() if "chk-0000000002/state/clean" in path)
    world.memory.put(f"{JOB}/{victim}", b"[]")
    answer = expect(FailedOver, world.coordinator().fail("a", "routes", "routes-1", "boom"))
    assert {each.home for each in answer.pending.executions.values()} == {4}
    assert [each.epoch for each in answer.pending.replay] == ["y"]
    assert [str(damage.checkpoint) for damage in answer.damages] == ["2"]
    world.run_epoch("a")
    assert world.folded() == {uid: ["x", "y", "a"] for uid in ("clean", "routes", "airports", "report")}


def test_an_attempt_over_which_another_epoch_completed_lends_nothing(world: World) -> None:  # semantics F2, C2
    world.config = CheckpointConfig(timeout=TIMEOUT, max_concurrent_checkpoints=2)
    world.trigger("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    world.submit("b", "routes", "routes-1")
    world.run_epoch("a")
    answer = expect(Failed, world.coordinator().fail("b", "routes", "routes-1", "boom"))
    assert (answer.reason, answer.tolerated) == (Reason.CHECKPOINT_SUBSUMED, True)
    pending = world.next_attempt("b")
    assert pending.restore is not None
    assert {each.home for each in pending.executions.values()} == {pending.checkpoint}
    world.run_epoch("b")
    world.audit("a", "b")


def test_what_lacks_an_epoch_that_came_between_is_not_carried(world: World) -> None:  # semantics R1, F2
    """The same checkpoint is restored as before, but another epoch has completed, and its input must be replayed."""
    world.config = CheckpointConfig(timeout=TIMEOUT, retained=3, max_concurrent_checkpoints=2)
    world.run_epoch("z")
    world.trigger("a")
    world.trigger("b")
    world.run_stage("b", "clean")
    world.submit("b", "routes", "routes-1")
    completed = world.run_epoch("a")
    victim = next(path for path in world.referred() if path.startswith(f"{layout.folder(completed)}state/clean"))
    world.memory.put(f"{JOB}/{victim}", b"[]")
    pending = world.next_attempt("b")
    assert pending.restore is not None
    assert pending.restore.checkpoint == 1, "as before"
    assert [each.epoch for each in pending.replay] == ["a"]
    assert {each.home for each in pending.executions.values()} == {pending.checkpoint}
    world.run_epoch("b")
    assert world.folded()["clean"] == ["z", "a", "b"]


def test_a_completed_epoch_begins_and_fails_no_more(world: World) -> None:  # semantics T9, F5
    world.run_epoch("a")
    assert world.coordinator().begin("a", "clean", "try-9") == EpochCompleted("a", 1)
    assert world.coordinator().fail("a", "clean", "try-9", "late") == EpochCompleted("a", 1)


def test_beginning_what_was_never_triggered_says_what_to_do(world: World) -> None:
    with pytest.raises(InvalidConfigError, match="run \\(or clear\\) the task that triggers") as caught:
        world.coordinator().begin(layout.epoch_name("manual__2026-01-01T00:00:00+00:00"), "clean", "try-1")
    assert caught.value.fields["epoch"] == "manual__2026-01-01T00:00:00+00:00"


def test_a_stage_that_the_attempt_does_not_expect_is_named(world: World) -> None:
    world.trigger("a")
    with pytest.raises(InvalidConfigError, match="does not expect this stage") as caught:
        world.coordinator().begin("a", "weather", "try-1")
    assert caught.value.fields["expected"] == "airports, clean, report, routes"


def test_an_epoch_is_not_taken_up_beside_another(world: World) -> None:  # semantics T6
    world.trigger("a")
    world.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
    world.trigger("b")
    detail = "checkpoint 2 is pending, max_concurrent_checkpoints is 1, and the epoch has place 1 in the queue"
    assert world.coordinator().begin("a", "clean", "try-1") == Queued(1, detail)
    world.coordinator().abort(2, Reason.JOB_FAILURE, "by hand")
    assert isinstance(world.coordinator().begin("a", "clean", "try-1"), Submit)


def test_an_overtaken_epoch_lets_the_trigger_place_its_input_anew(world: World) -> None:  # T8, F2
    """It could neither complete nor fail over, and triggering again gave it back (`tests/protocol/simulation`)."""
    world.count()
    world.config = replace(world.config, max_concurrent_checkpoints=2)
    world.run_epoch("z")
    world.trigger("a")
    world.trigger("b")
    world.submit("b", "clean", "try-1")
    world.run_epoch("a")
    answer = world.coordinator().fail("b", "clean", "try-1", "killed")
    why = "checkpoint 2 completed after this one had started from 1"
    assert answer == Failed(3, 1, Reason.CHECKPOINT_SUBSUMED, why, tolerated=True)
    assert world.coordinator().begin("b", "clean", "try-2") == TriggerFirst(3)
    assert world.coordinator().go_on("b") == replace(answer, trigger_first=True)
    assert isinstance(world.coordinator().trigger(world.request("b")), AlreadyRead), "another epoch has read its input"
    world.audit("z", "a")
