"""Claims and failovers: who may submit, what a failed try means, what carries over or restarts (F1, F2, F5, V2, W4)."""

from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from typing import Literal

import pytest

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.checkpoint.acts.carry_over import MAX_REPLACED, replaced_executions
from airflow_cairn.checkpoint.answers import (
    AlreadyRead,
    EpochCompleted,
    Failed,
    FailedOver,
    NothingToDo,
    Queued,
    Restarted,
    StageAcknowledged,
    Submit,
    TriggerFirst,
    UpstreamsNotReady,
)
from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.attempt import Handover, StageSpec
from airflow_cairn.checkpoint.documents.programs import Program
from airflow_cairn.checkpoint.errors import FencedError, InvalidConfigError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.storage.errors import UnavailableError
from tests.support.airflow_stage import Job
from tests.support.narrowing import expect, known
from tests.support.world.exchanges import ALL_PIPELINED, BLOCKING, CHAIN, DIAMOND
from tests.support.world.world import JOB, TIMEOUT, World
from tests.support.wrapped_stores import InterleavingStore


def _executions(world: World, epoch: str = "a") -> dict[str, str]:
    return {uid: each.token for uid, each in world.trigger(epoch).pending.executions.items()}


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


def test_a_failure_reported_any_number_of_times_is_one_failover(world: World) -> None:  # semantics F5, T9
    def fail() -> object:
        return world.coordinator().fail("a", "clean", "try-1", "boom")

    assert isinstance(fail(), NothingToDo)
    world.trigger("a")
    assert isinstance(fail(), NothingToDo), "it never began"
    assert world.submit("a", "clean", "try-1") == world.submit("a", "clean", "try-1")
    assert world.pending_id("a") == 1
    assert [type(fail()) for _ in range(3)] == [FailedOver, NothingToDo, NothingToDo]
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
        before = twin.coordinator().head()
        assert "another try holds" in expect(NothingToDo, twin.coordinator().fail("a", "clean", "try-1", "late")).why
        assert twin.coordinator().head() == before


def test_an_ack_that_lands_before_the_failover_s_swap_is_discarded_by_it(world: World) -> None:  # semantics A2, F2
    world.run_epoch("z")
    world.trigger("a")
    handover = world.submit("a", "clean", "try-1").handover
    answers: list[AckAnswer] = []
    store = InterleavingStore(world.store, "replace", 0, lambda: answers.append(world.drive(handover)))
    failed = world.coordinator(store).fail("a", "clean", "try-1", "boom")
    # The ack did not touch the head, so the failover's swap wins; the next look at that execution is its own doom.
    assert answers == [AckAnswer.SUCCESS]
    assert expect(FailedOver, failed).created
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


@pytest.fixture
def begun(world: World) -> World:
    """An epoch of which `routes` runs; it is a region with `airports`, which no try has claimed."""
    world.stages = DIAMOND
    world.trigger("a")
    world.run_stage("a", "clean")
    world.submit("a", "routes", "routes-1")
    return world


def _fail_routes(world: World) -> FailedOver:
    return expect(FailedOver, world.coordinator().fail("a", "routes", "routes-1", "boom"))


def test_a_claim_that_comes_too_late_is_stopped_by_its_driver(begun: World) -> None:  # semantics W4, F5
    """The execution is replaced between the look and the claim: its driver stops, and the same try begins anew."""
    store = InterleavingStore(begun.store, "create", 0, lambda: _fail_routes(begun), suffix=".json")
    vain = expect(Submit, begun.coordinator(store).begin("a", "airports", "airports-1")).handover
    assert vain.checkpoint == 1
    assert not begun.reports().standing(vain).may_count, "what a driver asks when its block begins"
    assert begun.coordinator().was_missed(vain)
    answer = expect(Submit, begun.coordinator().begin("a", "airports", "airports-1", rescheduled=True))
    assert answer.handover.checkpoint == 2
    assert not begun.coordinator().was_missed(vain), "its new execution is claimed"
    assert begun.run_stage("a", "routes") is AckAnswer.SUCCESS
    assert begun.drive(vain) is AckAnswer.DISCARDED, "had it not looked"
    assert begun.drive(answer.handover) is AckAnswer.SUCCESS
    begun.run_epoch("a")
    begun.audit("a")


@pytest.mark.parametrize(("verb", "program", "own"), [("create", Program(), False), ("stat", None, True)])
def test_a_claim_that_no_driver_judges_is_judged_by_the_try(
    begun: World, verb: str, program: Program | None, own: bool
) -> None:  # semantics W4, A7, F5
    """A program without a block looks at no head; and a handover that was there may be of an attempt that has ended."""
    if own:
        begun.submit("a", "airports", "airports-1")
    store = InterleavingStore(begun.store, verb, 0, lambda: _fail_routes(begun), suffix=".json")
    answer = expect(Submit, begun.coordinator(store).begin("a", "airports", "airports-1", program=program))
    assert answer.handover.checkpoint == 2


@pytest.mark.parametrize(
    "how", ["its task is cleared", "it had failed", "it declined", "it goes on", "none follows", "another try has it"]
)
def test_a_try_that_was_not_missed_does_not_begin_anew(begun: World, how: str) -> None:  # semantics F5, D1
    if how == "it goes on":
        begun.stages = BLOCKING
        begun.run_epoch("a")
        begun.trigger("b")
        begun.run_stage("b", "clean")
        begun.submit("b", "routes", "routes-1")
    epoch = "b" if how == "it goes on" else "a"
    mine = begun.submit(epoch, "airports", "airports-1").handover
    match how:
        case "its task is cleared":
            assert Restarted("airports", "airports-1") in _fail_routes(begun).restarted
        case "it had failed":
            begun.coordinator().fail("a", "airports", "airports-1", "boom")
        case "it declined":
            begun.decline(mine)
            _fail_routes(begun)
        case "it goes on":
            begun.submit(epoch, "routes", "routes-2")
        case "none follows":
            begun.coordinator().abort(1, Reason.JOB_FAILURE, "by hand")
        case "another try has it":
            begun.submit(epoch, "airports", "airports-2")
    assert not begun.coordinator().was_missed(mine)


def test_who_was_replaced_while_claiming_submits_nothing(world: World) -> None:  # semantics W4
    world.trigger("a")

    def newer_try() -> None:
        world.submit("a", "clean", "try-2")

    # The second read of the head is the judgement; by then the newer try has failed this one over, and claimed.
    store = InterleavingStore(world.store, "get", 1, newer_try)
    with pytest.raises(FencedError, match="another try of the stage has taken over") as caught:
        world.coordinator(store).begin("a", "clean", "try-1", program=Program())
    assert caught.value.fields["holder"] == "try-2"
    assert world.submit("a", "clean", "try-2").handover.checkpoint == 2, "the newer try keeps its claim"


def test_a_broken_handover_is_nobody_s_claim(world: World) -> None:  # semantics W5
    world.trigger("a")
    answer = world.submit("a", "clean", "try-1")
    world.memory.put(f"{JOB}/{answer.handover_key}", b'{"half')
    assert world.submit("a", "clean", "try-2").handover.checkpoint == 2
    world.run_epoch("a")
    world.audit("a")


@pytest.mark.parametrize(
    ("declined", "reason", "told", "said"),
    [
        (
            "ZeroDivisionError: by zero\n  at line 3",
            Reason.CHECKPOINT_DECLINED,
            "exit status 1",
            "clean: ZeroDivisionError: by zero at line 3",
        ),
        # A driver that a signal ends declines for that; the task that sent it knows why.
        ("SystemExit: 143", Reason.CHECKPOINT_DECLINED_TASK_CLOSING, "a person did it", "clean: a person did it"),
        (None, Reason.CHECKPOINT_DECLINED, "boom", "its decline cannot be read"),
    ],
    ids=["the driver's", "the task's", "broken"],
)
def test_a_decline_names_the_root_cause_of_its_failover(
    world: World, declined: str | None, reason: Reason, told: str, said: str
) -> None:  # semantics D1, W5
    world.trigger("a")
    clean = world.submit("a", "clean", "try-1").handover
    world.decline(clean, declined or "", reason=reason)
    if declined is None:
        world.memory.put(f"{JOB}/{layout.decline(clean.checkpoint, 'clean', clean.token)}", b"{")
    answer = expect(FailedOver, world.coordinator().fail("a", "clean", "try-1", told))
    assert said in answer.pending.cause
    assert said in world.coordinator().head().history[-1].detail


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
    """The restored checkpoint is the same, but another epoch has completed since: its input must be replayed."""
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
    assert known(pending.restore).checkpoint == 1, "as before"
    assert [each.epoch for each in pending.replay] == ["a"]
    assert {each.home for each in pending.executions.values()} == {pending.checkpoint}
    world.run_epoch("b")
    assert world.folded()["clean"] == ["z", "a", "b"]


def test_a_completed_epoch_begins_and_fails_no_more(world: World) -> None:  # semantics T9, F5
    world.run_epoch("a")
    assert world.coordinator().begin("a", "clean", "try-9") == EpochCompleted("a", 1)
    assert world.coordinator().fail("a", "clean", "try-9", "late") == EpochCompleted("a", 1)


def test_beginning_what_nobody_expects_says_what_to_do(world: World) -> None:
    with pytest.raises(InvalidConfigError, match="run \\(or clear\\) the task that triggers") as caught:
        world.coordinator().begin(layout.epoch_name("manual__2026-01-01T00:00:00+00:00"), "clean", "try-1")
    assert caught.value.fields["epoch"] == "manual__2026-01-01T00:00:00+00:00"
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
    """The epoch could neither complete nor fail over; another trigger gave it back (`tests/protocol/simulation`)."""
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


def _begun(world: World, stages: tuple[StageSpec, ...], *done: str) -> None:
    """An epoch of which these have acknowledged, each held by the try that has its name."""
    world.stages = stages
    world.run_epoch("z")
    world.trigger("a")
    for uid in done:
        world.drive(world.submit("a", uid, f"{uid}-1").handover)


def _failed(world: World, stage: str, claimant: str = "", detail: str = "boom") -> FailedOver:
    return expect(FailedOver, world.coordinator().fail("a", stage, claimant or f"{stage}-1", detail))


def _damage(world: World, handover: Handover, how: str) -> None:
    """Delete, shorten or alter what an execution wrote for its readers."""
    ack = acks.read_ack(world.files, handover.stage, handover.execution)
    (path,) = (h.path for s in acks.subtasks_of(world.files, ack) for h in s.handles if h.output == "exchange.rows")
    if how == "gone":
        world.files.delete([path])
    else:
        data = world.files.get(path, max_bytes=10_000).data
        world.memory.put(f"{JOB}/{path}", data[:-1] if how == "truncated" else data.swapcase()[::-1])


@pytest.mark.parametrize(
    ("stages", "failover", "done", "running", "restarted"),
    [
        (DIAMOND, "region", ["clean"], [], []),
        (CHAIN, "region", ["clean"], [], ["clean"]),
        (CHAIN, "region", ["clean", "airports"], [], ["airports", "clean"]),
        (ALL_PIPELINED, "region", ["clean"], ["airports"], ["airports", "clean"]),
        (BLOCKING, "full", ["clean", "airports"], [], ["airports", "clean"]),
    ],
    ids=["alone", "who writes to it, pipelined", "who reads from the region", "running siblings", "the job wants all"],
)
def test_what_restarts_with_a_failed_stage(
    world: World,
    stages: tuple[StageSpec, ...],
    failover: Literal["region", "full"],
    done: list[str],
    running: list[str],
    restarted: list[str],
) -> None:  # semantics F1, F2, F3, A2
    world.config = replace(world.config, failover=failover)
    _begun(world, stages, *done)
    world.submit("a", "routes", "routes-1")
    siblings = [world.submit("a", uid, f"{uid}-1").handover for uid in running]
    answer = _failed(world, "routes")
    assert (answer.created, answer.restarted) == (True, tuple(Restarted(uid, f"{uid}-1") for uid in restarted))
    entry = world.coordinator().head().history[-1]
    assert (entry.reason, entry.detail) == (Reason.JOB_FAILOVER_REGION, "routes: boom")
    assert entry.restarted == (*restarted, "routes")
    assert all(world.drive(each) is AckAnswer.DISCARDED for each in siblings), "they stop"
    assert world.run_epoch("a") == 3
    world.audit("z", "a")


@pytest.mark.parametrize("how", ["gone", "truncated", "altered"])
@pytest.mark.parametrize("who", ["the report", "the next try"])
def test_output_that_does_not_stand_pulls_its_writer_in(world: World, how: str, who: str) -> None:  # semantics F1, R1
    _begun(world, CHAIN[:3])
    written = world.submit("a", "clean", "clean-1").handover
    world.drive(written)
    routes = world.submit("a", "routes", "routes-1").handover
    world.drive(routes)
    world.submit("a", "report", "report-1")
    if who == "the report":
        _damage(world, routes, how)
        answer = _failed(world, "report")
        restarted = answer.restarted
    else:
        assert _failed(world, "report").restarted == ()
        _damage(world, routes, how)
        begin = expect(UpstreamsNotReady, world.coordinator().begin("a", "report", "report-2"))
        assert begin.upstreams == ("routes",)
        restarted = begin.restarted
    # Pipelined with it, the first stage is of the same region.
    assert restarted == (Restarted("clean", "clean-1"), Restarted("routes", "routes-1"))
    world.run_epoch("a")
    world.audit("z", "a")


@pytest.mark.parametrize("who", ["the report", "the sensor"])
def test_output_that_a_driver_could_not_read_is_missing(world: World, who: str) -> None:  # semantics F1
    """The output is there, unaltered since it was written, and broken all the same; another upstream is fine."""
    _begun(world, BLOCKING, "clean", "routes", "airports")
    world.decline(world.submit("a", "report", "report-1").handover, unreadable=("routes",))
    if who == "the report":
        assert _failed(world, "report").restarted == (Restarted("routes", "routes-1"),)
    else:
        world.coordinator().progress("a")
        begin = expect(UpstreamsNotReady, world.coordinator().begin("a", "report", "report-2"))
        assert begin.restarted == (Restarted("routes", "routes-1"),)
    world.run_epoch("a")
    world.audit("z", "a")


def test_a_store_that_does_not_answer_makes_nothing_missing(world: World) -> None:  # semantics R1, F1
    _begun(world, CHAIN[:3], "clean", "routes")
    world.submit("a", "report", "report-1")
    head = world.coordinator().head()

    def fails() -> None:
        raise UnavailableError("SlowDown")

    store = InterleavingStore(world.store, "list", 0, fails, suffix="/state/")
    with pytest.raises(UnavailableError):
        world.coordinator(store).fail("a", "report", "report-1", "boom")
    assert world.coordinator().head() == head


@pytest.mark.parametrize("failover", ["region", "full"])
def test_who_never_began_takes_nobody_along(
    world: World, failover: Literal["region", "full"]
) -> None:  # semantics F1, D2
    world.config = replace(world.config, failover=failover)
    _begun(world, CHAIN[:2], "clean")
    world.clock.advance(TIMEOUT)
    answer = expect(Submit, world.coordinator().begin("a", "routes", "routes-1"))
    assert (answer.handover.attempt, answer.handover.upstream["clean"].home) == (2, 2), "its writer stands"
    assert world.drive(answer.handover) is AckAnswer.SUCCESS


def test_who_triggers_again_keeps_a_region_that_is_half_done_and_not_begun(world: World) -> None:  # semantics F1, T9
    _begun(world, CHAIN[:2], "clean")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    document = world.trigger("a").pending
    assert document.cause == "not complete after 600 s (CHECKPOINT_EXPIRED)"
    assert document.executions["clean"].home == 2
    world.submit("a", "routes", "routes-1")
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    document = world.trigger("a").pending
    assert document.executions["clean"].home == 4, "its reader had begun"


def test_what_is_still_to_be_run_again_outlives_who_replaced_it(world: World) -> None:  # semantics F2, F5
    """The process that recorded the failover dies; a second callback, the next try and a later failover find it."""
    _begun(world, CHAIN, "clean")
    world.submit("a", "routes", "routes-1")
    other = world.submit("a", "airports", "airports-1").handover
    _failed(world, "routes")
    due = (Restarted("airports", "airports-1"), Restarted("clean", "clean-1"))
    again = _failed(world, "routes")
    assert (again.created, again.restarted) == (False, due)
    assert _failed(world, "airports", detail="fenced").restarted == due
    assert world.drive(other) is AckAnswer.DISCARDED
    world.drive(world.submit("a", "clean", "clean-2").handover)
    assert _failed(world, "routes").restarted == due[:1], "who has begun since is done"
    world.submit("a", "routes", "routes-2")
    assert _failed(world, "routes", "routes-2").restarted == (due[0], Restarted("clean", "clean-2"))
    world.run_epoch("a")
    world.audit("z", "a")


@pytest.mark.parametrize(("other", "restarted"), [("airports", "routes"), ("routes", "airports")])
def test_two_failures_of_one_region_at_once_are_one_failover(
    world: World, other: str, restarted: str
) -> None:  # semantics F5, D3
    """Of two stages, or of one that is reported twice."""
    _begun(world, DIAMOND, "clean")
    world.submit("a", "routes", "routes-1")
    world.submit("a", "airports", "airports-1")

    def also() -> None:
        assert _failed(world, other).created

    store = InterleavingStore(world.store, "replace", 0, also)
    answer = expect(FailedOver, world.coordinator(store).fail("a", "routes", "routes-1", "boom"))
    assert (answer.created, answer.restarted) == (False, (Restarted(restarted, f"{restarted}-1"),))
    assert world.pending_id("a") == 3


def test_where_another_checkpoint_is_restored_all_run_again(world: World) -> None:  # semantics F2, R1
    """A region cannot go back by itself where what the others computed came from a checkpoint that is lost."""
    world.stages = CHAIN
    world.run_epoch("y")
    _begun(world, CHAIN, "clean", "airports")
    world.submit("a", "routes", "routes-1")
    world.drive(world.submit("a", "routes", "routes-1").handover)
    world.submit("a", "report", "report-1")
    entry = world.coordinator().head().completed[-1]
    world.files.delete([entry.metadata.key])
    assert [each.stage for each in _failed(world, "report").restarted] == ["airports", "clean", "routes"]
    world.run_epoch("a")
    world.audit("y", "z", "a")


def test_a_failover_is_of_the_region_or_full() -> None:  # semantics F1, S3
    with pytest.raises(InvalidConfigError, match="failover") as caught:
        CheckpointConfig(failover="all")  # type: ignore[arg-type]
    assert "region" in str(caught.value)
    assert "full" in str(caught.value)
    assert CheckpointConfig().failover == "region"


@pytest.mark.parametrize("content", [None, b'{"half'], ids=["deleted", "broken"])
def test_a_lost_handover_has_its_ended_task_cleared(
    world: World, content: bytes | None
) -> None:  # semantics W5, F2, F5
    """The task that held the stage is unknown; that it has to run again is known."""
    _begun(world, CHAIN[:2], "clean")
    execution = world.trigger("a").pending.executions["clean"]
    key = layout.handover(execution.home, "clean", execution.token)
    world.files.delete([key])
    if content is not None:
        world.memory.put(f"{JOB}/{key}", content)
    world.submit("a", "routes", "routes-1")
    assert _failed(world, "routes").restarted == (), "a callback compares with the holder"
    begin = world.coordinator().begin("a", "routes", "routes-2")
    assert begin == UpstreamsNotReady(3, 2, ("clean",), (Restarted("clean", ""),))
    assert world.coordinator().unclaimed("a") >= {"clean", "routes"}
    world.run_epoch("a")
    world.audit("z", "a")


@pytest.mark.parametrize("cleaned", [False, True])
def test_who_was_told_that_it_does_not_count_had_begun(world: World, cleaned: bool) -> None:  # semantics A2, F1
    """A cleaner takes what it wrote and its handover; its region runs again all the same."""
    _begun(world, CHAIN, "clean")
    late = world.submit("a", "routes").handover
    world.coordinator().abort(world.pending_id("a"), Reason.JOB_FAILURE, "by hand")
    assert world.drive(late) is AckAnswer.DISCARDED
    if cleaned:
        world.coordinator().clean()
    pending = world.trigger("a").pending
    assert {execution.home for execution in pending.executions.values()} == {pending.checkpoint}
    world.run_epoch("a")
    world.audit("z", "a")


def test_the_tries_before_are_named_newest_first(job: Job) -> None:  # semantics V2
    job.trigger("r1")
    tries = [job.begin("r1", claimant=f"try {each}").token for each in range(3)]
    head = job.coordinator.head()
    assert replaced_executions(head, "routes", tries[2]) == (tries[1], tries[0])
    job.begin("r1", claimant="try 4")
    tries += [job.begin("r1", claimant=f"later {each}").token for each in range(MAX_REPLACED + 2)]
    found = replaced_executions(job.coordinator.head(), "routes", tries[-1])
    assert len(found) == MAX_REPLACED
    assert found[0] == tries[-2]


def test_a_stage_that_was_left_out_may_still_be_running(job: Job) -> None:  # semantics V2, B3
    stages = StageSpec("clean"), StageSpec("routes", ("clean",))
    unaligned = CheckpointConfig(unaligned=True, alignment_timeout=timedelta(0))
    checkpoint = job.trigger("r1", *stages, config=unaligned)
    lags = job.begin("r1").token
    job.acknowledge(job.begin("r1", "clean"))
    job.coordinator.complete(checkpoint)
    job.trigger("r2", *stages, config=unaligned)
    now = job.begin("r2").token
    assert replaced_executions(job.coordinator.head(), "routes", now) == (lags,)


def test_an_execution_that_goes_on_in_a_later_attempt_is_not_replaced(job: Job) -> None:  # semantics F2
    job.trigger("r1", "routes", "airports")
    routes = job.begin("r1", "routes").token
    job.begin("r1", "airports", claimant="one")
    job.begin("r1", "airports", claimant="two")
    head = job.coordinator.head()
    assert head.pending[0].attempt == 2
    assert replaced_executions(head, "routes", routes) == ()
    assert len(replaced_executions(head, "airports", "the newest")) == 1


def test_what_another_epoch_has_left_running_is_named_too(job: Job) -> None:  # semantics V2
    job.complete("r0")
    job.trigger("r1")
    dead = job.begin("r1")
    assert replaced_executions(job.coordinator.head(), "routes", dead.token) == (), "r0 has completed"
    job.coordinator.abort(dead.checkpoint, Reason.JOB_FAILURE, "given up")
    job.trigger("r2")
    assert replaced_executions(job.coordinator.head(), "routes", job.begin("r2").token) == (dead.token,)
