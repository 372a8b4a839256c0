"""A store that refuses, or gives no answer, uses up no restart, for an hour at most (F4, W3)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, NoRestart
from airflow_cairn.checkpoint.answers import Failed, FailedOver
from airflow_cairn.checkpoint.config import RestartStrategy
from airflow_cairn.checkpoint.documents.attempt import RestartMemory
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.failures import OUTAGE_MS, Exhausted, Restart
from tests.support.narrowing import expect
from tests.support.world.world import World
from tests.unit.checkpoint.rules.one_restart import ONE, weighed

FIRST = 5_000


def fail(
    strategy: RestartStrategy, before: Restart, at_ms: int, *, of_store: bool = True, completed_ms: int = 0
) -> Restart | Exhausted:
    return weighed(strategy, before, at_ms, of_store=of_store, completed_ms=completed_ms)


@pytest.mark.parametrize("strategy", ONE)
def test_what_the_store_refuses_counts_for_nothing_for_an_hour(strategy: RestartStrategy) -> None:  # semantics F4
    at = Restart(0)
    for at_ms in (FIRST, 400_000, FIRST + OUTAGE_MS - 1):
        found = expect(Restart, fail(strategy, at, at_ms))
        assert (found.count, found.delay_ms) == (0, 10_000)
        at = found
    own = fail(strategy, at, FIRST + OUTAGE_MS - 1, of_store=False)
    assert isinstance(own, Restart), "a failure of the stage's own has all restarts left"
    assert own.count == 1
    late = fail(strategy, at, FIRST + OUTAGE_MS)
    assert isinstance(late, Restart), "what lasts longer counts"
    assert late.count == 1
    assert isinstance(fail(strategy, late, FIRST + OUTAGE_MS + 400_000), Exhausted)


def test_a_checkpoint_that_has_completed_ends_an_outage() -> None:  # semantics F4
    first = expect(Restart, fail(ONE[0], Restart(0), FIRST))
    next_week = fail(ONE[0], first, FIRST + 100 * OUTAGE_MS, completed_ms=FIRST + 50 * OUTAGE_MS)
    assert next_week == replace(first, memory=RestartMemory(refused_ms=FIRST + 100 * OUTAGE_MS))


def test_a_clock_that_was_ahead_makes_no_outage_longer() -> None:  # semantics F4
    ahead = Restart(0, memory=RestartMemory(refused_ms=90_000_000))
    found = fail(ONE[0], ahead, FIRST)
    assert found == Restart(0, 10_000, RestartMemory(refused_ms=FIRST))


def test_without_restarts_the_first_failure_ends_the_epoch() -> None:  # semantics F4
    assert isinstance(fail(NoRestart(), Restart(0), FIRST), Exhausted)


@pytest.mark.parametrize("strategy", ONE)
def test_an_outage_leaves_the_restarts_to_the_stage(world: World, strategy: RestartStrategy) -> None:  # semantics F4
    """Whether the task says so, or the driver by its decline, seen by the task or by the sensor first."""
    world.config = CheckpointConfig(restart_strategy=strategy, tolerable_failed_checkpoints=9)
    world.trigger("a")

    def lose(claimant: str, *, declines: bool, of_store: bool) -> None:
        handover = world.submit("a", "clean", claimant).handover
        world.clock.advance(timedelta(minutes=5))
        if declines:
            world.decline(handover, reason=Reason.IO_EXCEPTION, of_store=of_store)

    def left() -> int | None:
        (entry,) = world.coordinator().head().pending
        return entry.restarts_left

    lose("one", declines=False, of_store=True)
    assert isinstance(world.coordinator().fail("a", "clean", "one", "refused", of_store=True), FailedOver)
    assert left() == 1
    lose("two", declines=True, of_store=True)
    assert isinstance(world.coordinator().fail("a", "clean", "two", "status 1"), FailedOver)
    assert left() == 1
    lose("three", declines=True, of_store=True)
    assert isinstance(world.coordinator().progress("a"), Failed), "the sensor sees the decline first"
    lose("four", declines=True, of_store=False)
    answer = world.coordinator().fail("a", "clean", "four", "what the task has seen of it", of_store=True)
    assert isinstance(answer, FailedOver)
    assert left() == 0, "what the driver declines for goes before it"
    lose("five", declines=False, of_store=False)
    assert isinstance(world.coordinator().fail("a", "clean", "five", "a bad row"), Failed)
