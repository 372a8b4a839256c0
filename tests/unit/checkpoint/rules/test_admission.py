"""The decider, the line, and triggers that wait in it (semantics T1 to T4, T9, S1)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import CheckpointConfig, RequestKind, TriggerRequest
from airflow_cairn.checkpoint.answers import Declined, TriggerAnswer, Triggered
from airflow_cairn.checkpoint.documents.attempt import DocumentRef, Owner, Slice, StageSpec
from airflow_cairn.checkpoint.documents.entries import PendingEntry, Stopped, WaitingRequest
from airflow_cairn.checkpoint.documents.head import (
    MAX_DECLINED,
    MAX_HISTORY,
    MAX_WAITING,
    Head,
    InvariantError,
    check_invariants,
)
from airflow_cairn.checkpoint.errors import InvalidConfigError, NotTriggeredError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import admission, transitions
from airflow_cairn.checkpoint.rules.admission import RunState
from airflow_cairn.checkpoint.rules.partial_completion import Without
from airflow_cairn.checkpoint.rules.transitions import Assembled
from tests.support.narrowing import expect, known
from tests.support.shut_down import shut_down
from tests.support.world.world import CONFIG, TIMEOUT, World
from tests.support.wrapped_stores import RecordingStore

NOW = 1_000_000
PAUSED = CheckpointConfig(min_pause=timedelta(seconds=60))
A = PendingEntry(1, "a", 1, "0" * 16, NOW, NOW * 9)
FULL = tuple(WaitingRequest(f"m{i}", RequestKind.MANUAL, 0) for i in range(MAX_WAITING))
COMPLETED = transitions.complete(
    Head("j", next_id=2, pending=(A,)), A, Assembled(DocumentRef("chk-1", 1, "ab" * 32)), Without(), NOW
)
BUSY = Head("j", next_id=2, pending=(A,))
REQUEST = TriggerRequest("b", Slice(), (StageSpec("s"),), PAUSED, Owner("d", "b"), RequestKind.PERIODIC)


@pytest.mark.parametrize(
    ("head", "change", "reason"),
    [
        # Each row breaks every later condition too, so that the order shows.
        (replace(BUSY, stopped=Stopped.SHUTDOWN, waiting=FULL), {}, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN),
        (replace(BUSY, stopped=Stopped.PAUSED, waiting=FULL), {}, Reason.PERIODIC_SCHEDULER_SHUTDOWN),
        (replace(BUSY, waiting=FULL), {}, Reason.TOO_MANY_CHECKPOINT_REQUESTS),
        (replace(COMPLETED, pending=(replace(A, checkpoint=2),)), {}, Reason.TOO_MANY_CONCURRENT_CHECKPOINTS),
        (COMPLETED, {}, Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS),
        (replace(BUSY, stopped=Stopped.SHUTDOWN), {"kind": RequestKind.MANUAL}, Reason.CHECKPOINT_COORDINATOR_SHUTDOWN),
    ],
)
def test_the_checks_run_in_order(head: Head, change: dict[str, RequestKind], reason: Reason) -> None:  # semantics T1
    verdict = admission.decide(head, replace(REQUEST, **change), NOW)  # type: ignore[arg-type]
    assert not isinstance(verdict, admission.Admit)
    assert verdict.reason is reason


def test_paused_jobs_take_what_is_asked_by_hand() -> None:  # semantics T1
    head = Head("j", stopped=Stopped.PAUSED)
    assert admission.decide(head, replace(REQUEST, kind=RequestKind.MANUAL), NOW) == admission.Admit()


def test_the_pause_ends_to_the_millisecond() -> None:  # semantics T3
    early = expect(admission.Wait, admission.decide(COMPLETED, REQUEST, NOW + 59_999))
    assert early.retry_at_ms == NOW + 60_000
    assert admission.decide(COMPLETED, REQUEST, NOW + 60_000) == admission.Admit()
    assert admission.decide(COMPLETED, replace(REQUEST, kind=RequestKind.MANUAL), NOW) == admission.Admit()


def test_a_completion_by_a_clock_that_was_ahead_holds_no_schedule_up() -> None:  # semantics T3
    within = expect(admission.Wait, admission.decide(COMPLETED, REQUEST, NOW - 60_000))
    assert within.retry_at_ms == NOW + 60_000, "clocks differ a little"
    assert admission.decide(COMPLETED, REQUEST, NOW - 60_001) == admission.Admit()


WISHES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(RequestKind)), max_size=80)


@given(WISHES)
def test_the_line_is_by_kind_and_then_by_coming(wishes: list[tuple[int, RequestKind]]) -> None:  # semantics T2
    line: tuple[WaitingRequest, ...] = ()
    came: dict[str, tuple[int, int]] = {}
    for turn, (number, kind) in enumerate(wishes):
        epoch = f"e{number}"
        joined = known(transitions.join_queue(line, WaitingRequest(epoch, kind, 0)))
        line = joined
        if epoch not in came or came[epoch][0] != kind.rank:
            came[epoch] = (kind.rank, turn)
    assert [each.epoch for each in line] == sorted(came, key=lambda epoch: came[epoch])


def test_a_full_line_drops_its_last_periodic_request() -> None:  # semantics T2
    periodic = tuple(WaitingRequest(f"p{i}", RequestKind.PERIODIC, 0) for i in range(2))
    line = (*FULL[:-2], *periodic)
    joined = known(transitions.join_queue(line, WaitingRequest("x", RequestKind.MANUAL, 0)))
    assert [each.epoch for each in joined[-2:]] == ["x", "p0"]
    assert len(joined) == MAX_WAITING
    late = WaitingRequest("x", RequestKind.PERIODIC, 0)
    assert transitions.join_queue(line, late) is None, "it would be the last itself"
    assert transitions.join_queue(FULL, WaitingRequest("x", RequestKind.MANUAL, 0)) is None
    taken = known(transitions.join_queue(FULL[:-1], WaitingRequest("x", RequestKind.MANUAL, 0)))
    assert len(taken) == MAX_WAITING, "the last place is taken"
    assert transitions.join_queue(FULL, FULL[5]) == FULL, "who has a place keeps it"


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (replace(BUSY, waiting=(WaitingRequest("b", RequestKind.MANUAL, 0),) * 2), "no epoch waits twice"),
        (replace(BUSY, waiting=(WaitingRequest("a", RequestKind.MANUAL, 0),)), "waiting and pending exclude"),
        (
            replace(
                BUSY, waiting=(WaitingRequest("b", RequestKind.PERIODIC, 0), WaitingRequest("c", RequestKind.MANUAL, 0))
            ),
            "the line is in order",
        ),
        (replace(BUSY, waiting=(*FULL, WaitingRequest("b", RequestKind.MANUAL, 0))), "the line is bounded"),
    ],
)
def test_a_broken_line_is_not_written(broken: Head, name: str) -> None:  # semantics T2, T9
    with pytest.raises(InvariantError, match=name):
        check_invariants(BUSY, broken)


def ask(
    world: World, epoch: str, kind: RequestKind = RequestKind.PERIODIC, ended: frozenset[str] = frozenset()
) -> TriggerAnswer:
    request = replace(world.request(epoch, Owner("d", epoch)), kind=kind)
    return world.coordinator().trigger(
        request, state_of=lambda owner: RunState.ENDED if owner.run_id in ended else RunState.RUNNING
    )


def test_a_free_place_belongs_to_the_first_in_the_line(world: World) -> None:  # semantics T2, T9
    assert isinstance(ask(world, "a"), Triggered)
    for epoch in ("b", "c"):
        answer = expect(Declined, ask(world, epoch))
        assert answer.reason is Reason.TOO_MANY_CONCURRENT_CHECKPOINTS
    head = world.coordinator().head()
    again = expect(Declined, ask(world, "c"))
    assert (again.reason, again.position) == (Reason.ALREADY_QUEUED, 2)
    assert world.coordinator().head() == head, "asking again changes nothing"
    assert ([each.epoch for each in head.waiting], head.declined) == (["b", "c"], ()), "who waits was not declined"
    world.run_epoch("a")
    assert isinstance(ask(world, "c"), Declined), "b was first"
    manual = ask(world, "d", RequestKind.MANUAL)
    assert isinstance(manual, Triggered), "a person goes before a schedule"
    world.run_epoch("d")
    assert isinstance(ask(world, "b"), Triggered)
    assert [each.epoch for each in world.coordinator().head().waiting] == ["c"]
    world.run_epoch("b")
    assert isinstance(ask(world, "c"), Triggered)
    world.run_epoch("c")
    assert world.coordinator().head().waiting == ()
    world.audit("a", "d", "b", "c")


def test_who_waits_but_has_ended_is_passed_over(world: World) -> None:  # semantics T2
    for epoch in ("a", "b", "c"):
        ask(world, epoch)
    assert isinstance(ask(world.fork(), "c", ended=frozenset({"a", "b"})), Triggered), "all make way in one look"
    world.run_epoch("a")
    assert isinstance(ask(world, "c"), Declined)
    assert isinstance(ask(world, "c", ended=frozenset({"b"})), Triggered)
    assert world.coordinator().head().waiting == ()


def test_a_request_that_nobody_can_be_asked_about_keeps_no_place(world: World) -> None:  # semantics T2
    ask(world, "a")
    assert isinstance(world.coordinator().trigger(world.request("b")), Declined)
    assert world.coordinator().head().waiting == ()


def test_stopping_and_going_on(world: World) -> None:  # semantics S1
    ask(world, "a")
    ask(world, "b")
    world.coordinator().pause()
    head = world.coordinator().head()
    assert (head.pending, [each.epoch for each in head.waiting]) == ((), ["a"]), "what has begun keeps a place"
    assert head.history[-1].reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND
    world.coordinator().pause()
    assert world.coordinator().head() == head, "twice changes nothing"
    declined = expect(Declined, ask(world, "b"))
    assert (declined.reason, declined.position) == (Reason.PERIODIC_SCHEDULER_SHUTDOWN, None)
    shut_down(world.coordinator())
    world.coordinator().pause()
    declined = expect(Declined, ask(world, "b", RequestKind.MANUAL))
    assert declined.reason is Reason.CHECKPOINT_COORDINATOR_SHUTDOWN
    world.coordinator().resume()
    assert isinstance(ask(world, "b"), Triggered)


def test_declines_are_kept_for_people_and_asking_again_changes_nothing(world: World) -> None:  # semantics T1
    world.coordinator().pause()
    for number in range(MAX_DECLINED + 3):
        world.coordinator().trigger(replace(world.request(f"e{number}"), kind=RequestKind.PERIODIC))
    head = world.coordinator().head()
    assert [each.epoch for each in head.declined] == [f"e{number}" for number in range(3, MAX_DECLINED + 3)]
    assert {each.reason for each in head.declined} == {Reason.PERIODIC_SCHEDULER_SHUTDOWN}
    world.coordinator().trigger(replace(world.request("e7"), kind=RequestKind.PERIODIC))
    assert world.coordinator().head() == head
    shut_down(world.coordinator())
    world.coordinator().trigger(world.request("e7"))
    newest = world.coordinator().head().declined[-1]
    assert (newest.epoch, newest.reason) == ("e7", Reason.CHECKPOINT_COORDINATOR_SHUTDOWN)
    assert [each.epoch for each in world.coordinator().head().declined].count("e7") == 1


def test_many_that_find_the_line_full_swap_the_head_once() -> None:  # semantics T1, T2
    """Requests are made again by themselves, every few seconds each."""
    refused = admission.Decline(Reason.TOO_MANY_CHECKPOINT_REQUESTS, "1000 requests wait already")
    first = admission.noted(Head("j"), REQUEST, refused, NOW)
    assert len(first.declined) == 1
    assert admission.noted(first, replace(REQUEST, epoch="c"), refused, NOW + 1) == first


def test_a_later_try_does_not_bring_back_what_was_stopped(world: World) -> None:  # semantics S1, P2
    ask(world, "a")
    shut_down(world.coordinator())
    head = world.coordinator().head()
    with pytest.raises(
        InvalidConfigError, match=r"the job is shut down: let it go on \(`cairn resume flights --storage s3://memory"
    ):
        world.coordinator().begin("a", "clean", world.new_claimant())
    assert world.coordinator().head() == head
    world.coordinator().resume()
    with pytest.raises(NotTriggeredError, match="the task that triggers"):  # its epoch starts over
        world.coordinator().begin("a", "clean", world.new_claimant())
    world.trigger("a")
    world.submit("a", "clean")


def turn(epoch: str, kind: RequestKind = RequestKind.PERIODIC) -> admission.Turn:
    return admission.turn_of(replace(REQUEST, epoch=epoch, kind=kind))


IN_LINE = (WaitingRequest("p", RequestKind.MANUAL, 0), WaitingRequest("b", RequestKind.PERIODIC, 0))


@pytest.mark.parametrize(
    ("head", "now_ms", "expected"),
    [
        (replace(BUSY, waiting=IN_LINE), NOW, admission.StillWaits(Reason.ALREADY_QUEUED, 2)),
        (Head("j", waiting=IN_LINE), NOW, admission.StillWaits(Reason.ALREADY_QUEUED, 2)),
        (Head("j", waiting=IN_LINE[1:]), NOW, None),
        # An expired attempt counts as ended, though nobody has settled it.
        (replace(BUSY, waiting=IN_LINE[1:]), NOW * 9 - 1, admission.StillWaits(Reason.ALREADY_QUEUED, 1)),
        (replace(BUSY, waiting=IN_LINE[1:]), NOW * 9, None),
        (
            replace(COMPLETED, waiting=IN_LINE[1:]),
            NOW + 59_999,
            admission.StillWaits(Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS, 1, 1),
        ),
        (replace(COMPLETED, waiting=IN_LINE[1:]), NOW + 60_000, None),
        # The request has lost its place, and takes one when it asks.
        (BUSY, NOW, None),
        (replace(BUSY, waiting=FULL), NOW, admission.StillWaits(Reason.TOO_MANY_CHECKPOINT_REQUESTS, None)),
        (replace(BUSY, waiting=FULL[1:]), NOW, None),
        # The request would be declined.
        (replace(BUSY, waiting=IN_LINE, stopped=Stopped.PAUSED), NOW, None),
        (replace(BUSY, waiting=IN_LINE, stopped=Stopped.SHUTDOWN), NOW, None),
        # The request's epoch has gone on.
        (replace(BUSY, pending=(replace(A, epoch="b"), replace(A, checkpoint=2)), waiting=FULL), NOW, None),
    ],
)
def test_a_request_that_waits_can_see_that_in_the_head(
    head: Head, now_ms: int, expected: admission.StillWaits | None
) -> None:  # semantics T2, T3, D2
    assert admission.still_waits(head, turn("b"), now_ms) == expected


def test_a_completed_epoch_does_not_wait() -> None:  # semantics T9
    busy = replace(
        COMPLETED, pending=(replace(A, checkpoint=2, epoch="c"),), waiting=(WaitingRequest("a", RequestKind.MANUAL, 0),)
    )
    assert admission.still_waits(busy, turn("a", RequestKind.MANUAL), NOW) is None


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(RequestKind)), max_size=12), st.integers(0, 2))
def test_of_those_that_wait_exactly_who_would_be_admitted_is_woken(
    wishes: list[tuple[int, RequestKind]], pending: int
) -> None:  # semantics T2
    line: tuple[WaitingRequest, ...] = ()
    for number, kind in wishes:
        line = transitions.join_queue(line, WaitingRequest(f"e{number}", kind, 0, Owner("d", f"e{number}"))) or line
    busy = tuple(replace(A, checkpoint=10 + i, epoch=f"p{i}") for i in range(pending))
    head = Head("j", next_id=20, pending=busy, waiting=line)
    for each in line:
        request = replace(
            REQUEST, epoch=each.epoch, kind=each.kind, config=CheckpointConfig(max_concurrent_checkpoints=2)
        )
        admitted = admission.decide(head, request, NOW) == admission.Admit()
        assert (admission.still_waits(head, admission.turn_of(request), NOW) is None) == admitted


def test_looking_whether_one_still_waits_is_one_read(world: World) -> None:  # semantics T2
    ask(world, "a")
    ask(world, "b")
    recording = RecordingStore(world.store)
    still = admission.StillWaits(Reason.ALREADY_QUEUED, 1)
    assert world.coordinator(recording).still_waits(turn("b")) == still
    assert recording.total == 1


@pytest.mark.parametrize("how", ["expired", "shut down", "subsumed"])
def test_all_that_may_be_pending_may_end_at_once(how: str) -> None:  # semantics S1, C2, D2, D3
    world = World(config=replace(CONFIG, max_concurrent_checkpoints=MAX_HISTORY))
    epochs = [f"e{number}" for number in range(MAX_HISTORY)]
    for epoch in epochs:
        world.trigger(epoch)
    coordinator = world.coordinator()
    if how == "expired":
        world.clock.advance(TIMEOUT)
        coordinator.progress(epochs[0])
    elif how == "shut down":
        shut_down(coordinator)
    else:
        world.run_stage(epochs[-1])
        coordinator.complete(MAX_HISTORY)
    head = coordinator.head()
    assert head.pending == ()
    assert {each.id for each in head.history} == set(range(1, MAX_HISTORY + 1))
