"""A listener is told how a checkpoint ended, at least once, also when the notifier died (semantics C4, D4)."""

from contextlib import suppress
from dataclasses import replace

import pytest

from airflow_cairn.checkpoint.acts import opening
from airflow_cairn.checkpoint.documents import head
from airflow_cairn.checkpoint.documents.entries import PendingEntry
from airflow_cairn.checkpoint.documents.head import Head, InvariantError, check_invariants
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.checkpoint.rules.transitions import Ending
from airflow_cairn.storage import UnavailableError
from tests.support.errors import raises_code
from tests.support.world.listeners import Listener, complete_told, trigger_told
from tests.support.world.world import TIMEOUT, World
from tests.support.wrapped_stores import Crashed, Fault, FaultyStore


def test_nobody_listens_and_nothing_is_kept(world: World) -> None:  # semantics C4
    world.run_epoch("a")
    assert world.coordinator().head().notices == ()
    assert world.coordinator().deliver([Listener()]) == 0


@pytest.mark.parametrize("reason", [Reason.CHECKPOINT_EXPIRED, Reason.JOB_FAILOVER_REGION])
def test_an_attempt_that_is_taken_up_has_the_same_listeners(world: World, reason: Reason) -> None:
    """semantics D2, D4, F2"""
    trigger_told(world, "a")
    world.submit("a", "clean")
    if reason is Reason.CHECKPOINT_EXPIRED:
        world.clock.advance(TIMEOUT)
    world.submit("a", "clean")
    head = world.coordinator().head()
    assert [(n.checkpoint, n.reason) for n in head.notices] == [(1, reason)]
    assert [(entry.id, entry.listeners) for entry in head.pending] == [(2, ("warehouse",))]
    listener = Listener()
    world.coordinator().deliver([listener])
    assert listener.told == [(1, reason, None)]


def test_a_listener_that_fails_keeps_its_notices_in_order_and_stops_nobody(world: World) -> None:  # semantics C4
    complete_told(world, "a", "warehouse", "mail")
    complete_told(world, "b", "warehouse", "mail")
    broken, sound = Listener(failures=1), Listener("mail")
    with raises_code("listener", match="its notice is kept") as caught:
        world.coordinator().deliver([broken, sound])
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert (caught.value.fields["listener"], caught.value.fields["checkpoint"]) == ("warehouse", 1)
    assert broken.told == []
    assert sound.told == [(1, "complete", 1), (2, "complete", 2)]
    assert [notice.listeners for notice in world.coordinator().head().notices] == [("warehouse",)] * 2
    assert world.coordinator().deliver([broken, sound]) == 2
    assert broken.told == [(1, "complete", 1), (2, "complete", 2)]
    assert world.coordinator().head().notices == ()


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many notices may wait, so few that a test is soon there."""
    for module in (opening, head):
        monkeypatch.setattr(module, "MAX_NOTICES", 10)
    return 10


def test_at_the_bound_nothing_is_dropped_and_nothing_is_triggered(world: World, few: int) -> None:  # semantics C4, D4
    for number in range(few):
        checkpoint = trigger_told(world, f"e{number}").pending.checkpoint
        world.coordinator().abort(checkpoint, Reason.CHECKPOINT_DECLINED, "bad row")
    with raises_code("undelivered_notices", match="none was dropped"):
        trigger_told(world, "late")
    assert len(world.coordinator().head().notices) == few
    world.trigger("quiet")  # who has no listeners is not held up
    world.coordinator().abort(few + 1, Reason.CHECKPOINT_DECLINED, "")
    assert world.coordinator().forget_listener("warehouse") == few
    trigger_told(world, "late")


def test_a_failover_at_the_bound_leaves_the_attempt_pending(world: World, few: int) -> None:  # semantics C4, F2
    for number in range(few - 1):
        checkpoint = trigger_told(world, f"e{number}").pending.checkpoint
        world.coordinator().abort(checkpoint, Reason.CHECKPOINT_DECLINED, "")
    trigger_told(world, "a")
    world.submit("a", "clean", "first")
    with raises_code("undelivered_notices"):
        world.coordinator().fail("a", "clean", "first", "killed")
    assert world.pending_id("a") == few
    world.coordinator().deliver([Listener()])
    world.coordinator().fail("a", "clean", "first", "killed")
    assert world.pending_id("a") == few + 1


def test_two_listeners_of_one_name_are_refused(world: World) -> None:
    with pytest.raises(InvalidConfigError, match="one name"):
        world.coordinator().deliver([Listener(), Listener()])


def test_a_head_that_ends_a_checkpoint_without_its_notice_is_refused() -> None:  # semantics C4, D4
    entry = PendingEntry(1, "a", 1, "00000000000000b1", 0, 10, listeners=("warehouse",))
    before = Head("flights", next_id=2, pending=(entry,))
    after = transitions.abort(before, entry, Ending(Reason.CHECKPOINT_DECLINED, ""), 5)
    check_invariants(before, after)
    with pytest.raises(InvariantError, match="every listener is notified"):
        check_invariants(before, replace(after, notices=()))


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("at", range(2))
def test_delivering_is_at_least_once_at_every_write(world: World, at: int, fault: Fault) -> None:  # semantics C4
    complete_told(world, "a")
    complete_told(world, "b")
    listener = Listener()
    store = FaultyStore(world.store, at, fault)
    with suppress(Crashed, UnavailableError):
        world.coordinator(store).deliver([listener])
    assert store.struck
    world.coordinator().deliver([listener])
    again = 1 if fault in (Fault.CRASH_BEFORE, Fault.FAILS) else 0
    ids = [told[0] for told in listener.told]
    assert sorted(set(ids)) == [1, 2]
    assert ids == sorted(ids), "in the order of ids"
    assert len(ids) == 2 + again, "a lost answer is settled; only what did not land is told again"
    assert world.coordinator().head().notices == ()
