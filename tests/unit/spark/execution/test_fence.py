"""A driver asks before each write whether it still counts, and stops where it does not (semantics B4, F3)."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import pytest

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.checkpoint.reasons import AckAnswer, Reason
from airflow_cairn.checkpoint.rules import history
from airflow_cairn.spark.execution.fence import LOOK_EVERY_MS, Fence
from airflow_cairn.storage import ObjectStore, UnavailableError
from tests.support.acking import ack_of
from tests.support.world.lagging import UNALIGNED, complete_without
from tests.support.world.world import CONFIG, TIMEOUT, World
from tests.support.wrapped_stores import RecordingStore, WrappedStore

T = TypeVar("T")

LATER = timedelta(milliseconds=LOOK_EVERY_MS)


@dataclass
class Driver:
    """A driver that has entered its block, in front of its next write."""

    world: World
    handover: Handover
    fence: Fence

    def writes(self) -> None:
        """Come to the next write, a while after the last."""
        self.world.clock.advance(LATER)
        self.fence.check()

    @contextmanager
    def is_stopped(self, why: str) -> Iterator[None]:
        """See that it may write before the block of this, and not after it."""
        self.writes()
        yield
        with pytest.raises(FencedError, match=why):
            self.writes()
        answer = self.world.coordinator().acknowledge(ack_of(self.handover))
        assert answer is AckAnswer.DISCARDED, "the process that is stopped would not have counted"


def driver(world: World, stage: str, epoch: str = "a", store: ObjectStore | None = None) -> Driver:
    """Submit a stage, and let its driver enter the block."""
    handover = world.submit(epoch, stage).handover
    fence = Fence(world.reports(store), handover, world.clock)
    assert fence.enter() is not None
    return Driver(world, handover, fence)


def below_clean(world: World, store: ObjectStore | None = None) -> Driver:
    """Let `routes` run beside `airports`."""
    world.trigger("a")
    world.run_stage("a", "clean")
    return driver(world, "routes", store=store)


def test_a_replaced_driver_stops_at_its_next_write(world: World) -> None:  # semantics B4, F3
    routes = below_clean(world)
    with routes.is_stopped("replaced: attempt 2, checkpoint 2, runs the stage now"):
        world.submit("a", "routes")


def test_the_driver_of_an_expired_checkpoint_stops(world: World) -> None:  # semantics B4, D2
    routes = below_clean(world)
    with routes.is_stopped(r"has ended \(not complete after 600 s \(CHECKPOINT_EXPIRED\)\)"):
        world.clock.advance(TIMEOUT)
        assert isinstance(world.coordinator().progress("a"), Failed)


def test_the_driver_of_a_restored_job_stops(world: World) -> None:  # semantics B4, R5
    routes = below_clean(world)
    with routes.is_stopped("CHECKPOINT_COORDINATOR_SUSPEND"):
        world.coordinator().restore_latest()


def test_a_lagging_driver_stops_once_the_epoch_has_completed_without_it() -> None:  # semantics B3, B4
    world = World(config=UNALIGNED)
    routes = below_clean(world)
    world.run_stage("a", "airports")
    with routes.is_stopped("checkpoint 1 has completed the epoch without this stage"):
        complete_without(world, "a", "routes", "report")


def test_a_sibling_of_a_stage_that_declined_goes_on(world: World) -> None:
    """semantics F1, F2: the next try of the stage that declined takes the running sibling over."""
    routes = below_clean(world)
    world.decline(world.submit("a", "airports").handover)
    assert isinstance(world.coordinator().progress("a"), Failed)
    routes.writes()
    world.run_stage("a", "airports")
    routes.writes()
    assert world.drive(routes.handover) is AckAnswer.SUCCESS


def test_the_driver_of_a_checkpoint_whose_failure_is_tolerated_goes_on() -> None:  # semantics D5, F2
    world = World(config=replace(CONFIG, tolerable_failed_checkpoints=1))
    routes = below_clean(world)
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    routes.writes()
    world.coordinator().go_on("a")
    routes.writes()
    assert world.drive(routes.handover) is AckAnswer.SUCCESS


def test_nobody_waits_for_a_driver_that_was_told_so(world: World) -> None:
    """semantics A2: the acknowledgement between two attempts was discarded, so no later attempt takes it over."""
    routes = below_clean(world)
    world.decline(world.submit("a", "airports").handover)
    world.coordinator().progress("a")
    assert world.drive(routes.handover) is AckAnswer.DISCARDED
    with pytest.raises(FencedError, match=r"airports: .*CHECKPOINT_DECLINED"):
        routes.writes()


def test_a_driver_learns_that_it_is_not_wanted_however_long_ago_that_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_HISTORY", 3)
    monkeypatch.setattr(history, "MAX_UNFINISHED", 4)
    routes = below_clean(world)
    world.clock.advance(TIMEOUT)
    world.coordinator().progress("a")
    for number in range(12):
        world.trigger(f"b{number}")
        world.coordinator().abort(world.pending_id(f"b{number}"), Reason.JOB_FAILURE, "by hand")
    with pytest.raises(FencedError, match="so long ago that the history has forgotten how"):
        routes.writes()


def test_many_writes_cost_one_look(world: World) -> None:
    store = RecordingStore(world.store)
    world.trigger("a")
    clean = driver(world, "clean", store=store)
    before = store.total
    for _ in range(1000):
        clean.fence.check()
    assert store.total == before, "entering was a look"
    world.clock.advance(LATER)
    for _ in range(1000):
        clean.fence.check()
    assert store.total == before + 1


def test_who_was_stopped_stays_stopped_without_another_look(world: World) -> None:
    routes = below_clean(world)
    with routes.is_stopped("runs the stage now"):
        world.submit("a", "routes")
    for again in (routes.fence.check, routes.fence.raise_if_stopped):
        with pytest.raises(FencedError, match="runs the stage now"):
            again()


def test_a_clock_that_is_set_back_asks_again(world: World) -> None:
    routes = below_clean(world)
    world.submit("a", "routes")
    world.clock.advance(timedelta(days=-1))
    with pytest.raises(FencedError):
        routes.fence.check()


@pytest.mark.parametrize("durable", [True, False])
def test_a_second_driver_looks_for_an_acknowledgement_where_a_cluster_starts_it(world: World, *, durable: bool) -> None:
    """semantics A2: elsewhere only its work is in vain, as the first marker counts."""
    world.trigger("a")
    first = replace(world.submit("a", "clean").handover, durable=durable)
    assert world.drive(first) is AckAnswer.SUCCESS
    store = RecordingStore(world.store)
    second = Fence(world.reports(store), first, world.clock)
    if durable:
        with pytest.raises(FencedError, match="has been acknowledged already"):
            second.enter()
    else:
        second.enter()
        assert store.requests == {"get": 1}, "the head"
    assert world.drive(first) is AckAnswer.DUPLICATE


class _Silent(WrappedStore):
    """A store that stops answering when told to."""

    silent = False

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if self.silent:
            raise UnavailableError("the store did not answer", key=key)
        return call()


def test_a_look_that_fails_stops_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    store = _Silent(world.store)
    routes = below_clean(world, store)
    store.silent = True
    with caplog.at_level(logging.WARNING):
        routes.writes()
    assert "this attempt still counts; the driver goes on. the store did not answer" in caplog.text
    store.silent = False
    world.submit("a", "routes")
    with pytest.raises(FencedError):
        routes.writes()
