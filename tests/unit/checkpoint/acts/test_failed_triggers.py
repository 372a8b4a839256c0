"""Triggers that fail on the way to a checkpoint: what the head keeps of them, and what counts (semantics T1, D5)."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import pytest

from airflow_cairn.checkpoint.answers import Triggered, TriggerRequest
from airflow_cairn.checkpoint.documents.attempt import Owner
from airflow_cairn.checkpoint.documents.head import Head
from airflow_cairn.checkpoint.documents.strict_json import Json
from airflow_cairn.checkpoint.errors import InvalidConfigError, NoCheckpointError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.checkpoint.sources.values import Offsets
from airflow_cairn.checkpoint.views import checkpoint_list
from airflow_cairn.storage import CairnError, ForbiddenError, UnavailableError, WriteResult
from tests.support.errors import raises_code
from tests.support.world.failing import tolerant
from tests.support.world.world import World
from tests.support.wrapped_stores import WrappedStore

T = TypeVar("T")


class NoRoom(WrappedStore):
    """Refuses whatever is new of an epoch or a checkpoint; the head can be written, unless `all_of_it`."""

    error: type[CairnError] = UnavailableError
    all_of_it = False

    def create(self, key: str, data: bytes) -> WriteResult:
        raise self.error("the store is told to fail", key=key)

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        if self.all_of_it:
            raise self.error("the store is told to fail", key=key)
        return super().replace(key, data, expected_etag=expected_etag)


def fail(world: World, epoch: str, store: NoRoom | None = None) -> Head:
    """Trigger an epoch where the store makes no room for it; gives the head after that."""
    with pytest.raises((UnavailableError, ForbiddenError), match="the store is told to fail"):
        world.trigger(epoch, store or NoRoom(world.store))
    return world.coordinator().head()


def asking(world: World, error: Exception) -> TriggerRequest:
    """A request whose source raises this."""

    def ask(position: Json, run: RunFacts) -> tuple[Json, Json]:
        raise error

    return replace(world.request("a"), sources=(Offsets(ask, name="ledger"),), run=RunFacts("a"))


@pytest.mark.parametrize("error", [UnavailableError, ForbiddenError])
def test_a_storage_that_fails_is_kept_as_the_reason(error: type[CairnError]) -> None:  # semantics T1
    world = tolerant(2)
    world.run_epoch("a")
    store = NoRoom(world.store)
    store.error = error
    head = fail(world, "b", store)
    (declined,) = head.declined
    assert (declined.epoch, declined.reason) == ("b", Reason.IO_EXCEPTION)
    assert declined.detail.startswith("the store is told to fail [key=`")
    assert (head.next_id, head.pending) == (2, ()), "no id was handed out (T5)"
    assert world.trigger("b").pending.checkpoint == 2


def test_each_failed_trigger_counts_until_one_succeeds() -> None:  # semantics D5
    world = tolerant(2)
    world.run_epoch("z", "a")
    assert [fail(world, "b").failures for _ in range(2)] == [1, 2], "there is no id that could be counted once"
    assert fail(world, "c").failures == 0, "the job failed, and the count starts anew"
    assert fail(world, "c").failures == 1
    world.clock.advance(timedelta(seconds=1))
    newest = fail(world, "b").declined[-1]
    assert (newest.epoch, newest.at_ms) == ("b", world.clock.now_ms), "the last time that it failed"
    world.run_epoch("b")
    assert world.coordinator().head().failures == 0
    world.audit("z", "a", "b")


def test_above_the_limit_what_is_pending_ends() -> None:  # semantics D5
    world = tolerant(0, concurrent=2)
    world.run_epoch("z")
    world.bulky = True
    world.trigger("a")
    head = fail(world, "b")
    assert head.pending == ()
    newest = head.history[-1]
    assert (newest.epoch, newest.reason) == ("a", Reason.JOB_FAILURE)
    assert newest.detail.startswith(
        "1 checkpoint failed and tolerable_failed_checkpoints is 0: the store is told to fail [key=`"
    )
    world.run_epoch("a", "b")
    world.audit("z", "a", "b")


def test_what_cannot_be_set_aside_does_not_end() -> None:  # semantics D3, D5
    """The head holds what the pending checkpoint expects; it goes on, because nothing could go on from its end."""
    world = tolerant(0, concurrent=2)
    world.trigger("a")
    before = world.coordinator().head()
    assert fail(world, "b") == before
    world.run_epoch("a")
    world.audit("a")


def test_what_else_goes_wrong_is_kept_and_does_not_count_towards_the_limit(world: World) -> None:  # semantics T1, D5
    world.run_epoch("a")
    (entry,) = world.coordinator().head().completed
    world.store.delete([world.files.full(entry.metadata.key)])
    for _ in range(2):
        with pytest.raises(NoCheckpointError):
            world.trigger("b")
    head = world.coordinator().head()
    assert [(each.epoch, each.reason) for each in head.declined] == [("b", Reason.TRIGGER_CHECKPOINT_FAILURE)]
    assert head.failures == 0
    assert (head.counters.triggered, head.counters.failed) == (3, 2), "one has completed"


def test_a_source_that_raises_is_a_trigger_that_failed(world: World) -> None:  # semantics T1, T8, O1
    """The head has the cause and the counts, as when a master hook raises."""
    request = asking(world, KeyError("no partition 2001-01-02"))
    for _ in range(2):
        world.clock.advance(timedelta(seconds=1))
        with raises_code("source", match="the source ledger failed in read: KeyError") as raised:
            world.coordinator().trigger(request)
        assert isinstance(raised.value.__cause__, KeyError), "whose traceback the task's log shows"
    head = world.coordinator().head()
    (declined,) = head.declined
    assert (declined.epoch, declined.reason) == ("a", Reason.TRIGGER_CHECKPOINT_FAILURE)
    assert "KeyError('no partition 2001-01-02')" in declined.detail
    assert declined.at_ms == world.clock.now_ms, "the last time"
    assert (head.counters.triggered, head.counters.failed, head.failures) == (2, 2, 0)
    (row,) = checkpoint_list.listing(world.coordinator()).declined
    assert row == declined, "what `cairn checkpoints` shows"
    world.run_epoch("a")


def test_so_is_one_that_raises_when_its_position_is_moved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics T1, T8
    world.count()
    monkeypatch.setattr(Offsets, "advance", lambda *_: 1 / 0)
    with raises_code("source", match="the source ledger failed in advance: ZeroDivisionError"):
        world.trigger("a")
    assert world.coordinator().head().counters.failed == 1


@pytest.mark.parametrize(
    ("error", "reason", "detail"),
    [
        (
            InvalidConfigError("the connection ledger is not defined", conn_id="ledger"),
            Reason.TRIGGER_CHECKPOINT_FAILURE,
            "conn_id=`ledger` source=`ledger`",
        ),
        (UnavailableError("the store did not answer"), Reason.IO_EXCEPTION, "the store did not answer"),
    ],
    ids=["no retry cures it", "its store does not answer"],
)
def test_an_error_of_cairn_in_a_source_stays_that(
    world: World, error: CairnError, reason: Reason, detail: str
) -> None:  # semantics T1, D5, O1
    with pytest.raises(type(error), match=error.message):
        world.coordinator().trigger(asking(world, error))
    head = world.coordinator().head()
    assert head.declined[0].reason is reason
    assert detail in head.declined[0].detail
    assert (head.counters.triggered, head.counters.failed) == (1, 1)


def test_a_head_that_cannot_be_written_keeps_nothing() -> None:  # semantics T1
    world = tolerant(2)
    world.run_epoch("a")
    before = world.coordinator().head()
    store = NoRoom(world.store)
    store.all_of_it = True
    with pytest.raises(UnavailableError, match="epochs/b"):
        world.trigger("b", store)
    assert world.coordinator().head() == before


def test_who_was_first_in_the_line_stays_so(world: World) -> None:  # semantics T2
    world.trigger("a")
    request = world.request("b", Owner("d", "b"))
    world.coordinator().trigger(request)
    world.run_epoch("a")
    with pytest.raises(UnavailableError):
        world.coordinator(NoRoom(world.store)).trigger(request)
    assert [each.epoch for each in world.coordinator().head().waiting] == ["b"]
    assert isinstance(world.coordinator().trigger(request), Triggered)


def test_a_checkpoint_that_stands_has_not_failed() -> None:  # semantics D5, T9
    """Triggering again fails at the document of what is pending; the checkpoint itself goes on."""
    world = tolerant(2)
    world.bulky = True
    world.run_epoch("a")
    pending = world.trigger("b").pending

    class Unreadable(WrappedStore):
        """Does not give the pending document."""

        def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
            if pending.token in key:
                raise UnavailableError("the store is told to fail", key=key)
            return super()._read(verb, key, call)

    before = world.coordinator().head()
    with pytest.raises(UnavailableError):
        world.trigger("b", Unreadable(world.store))
    assert world.coordinator().head() == before
