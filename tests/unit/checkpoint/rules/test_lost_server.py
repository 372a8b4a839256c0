"""The end of a Spark server is one failure, however many stages it takes along and whenever they notice (F4, V4)."""

from datetime import timedelta

import pytest

from airflow_cairn.checkpoint import CheckpointConfig, FailureRateRestart, FixedDelayRestart
from airflow_cairn.checkpoint.answers import FailAnswer, Failed, FailedOver
from airflow_cairn.checkpoint.config import RestartStrategy
from airflow_cairn.checkpoint.documents.attempt import RestartMemory
from airflow_cairn.checkpoint.rules.failures import Exhausted, Restart, weigh
from tests.support.narrowing import expect
from tests.support.world.world import World
from tests.unit.checkpoint.rules.one_restart import ONE, S, weighed


def fail(
    strategy: RestartStrategy, before: Restart, at_ms: int, server: str = "", restart_at_ms: int = 0
) -> Restart | Exhausted:
    return weighed(strategy, before, at_ms, restart_at_ms=restart_at_ms, server=server)


@pytest.mark.parametrize("strategy", ONE)
def test_the_end_of_one_server_counts_once(strategy: RestartStrategy) -> None:  # semantics F4, V4
    first = expect(Restart, fail(strategy, Restart(0), 1_000, "s1"))
    assert first.delay_ms == 10_000
    at_once = fail(strategy, first, 2_000, "s1", restart_at_ms=11_000)
    assert at_once == Restart(1, 9_000, first.memory), "it waits for the restart that answers the first"
    assert fail(strategy, first, 61_000, "s1", restart_at_ms=11_000) == Restart(1, 0, first.memory)


@pytest.mark.parametrize("strategy", ONE)
def test_the_end_of_another_server_counts_by_itself(strategy: RestartStrategy) -> None:  # semantics F4
    first = expect(Restart, fail(strategy, Restart(0), 1_000, "s1"))
    assert isinstance(fail(strategy, first, 2_000, "s2"), Exhausted)
    assert isinstance(fail(strategy, first, 2_000), Exhausted), "and so does a stage's own error"


@pytest.mark.parametrize("strategy", [FixedDelayRestart(2, 10 * S), FailureRateRestart(2, 60 * S, 10 * S)])
def test_a_failure_in_between_does_not_make_it_count_again(strategy: RestartStrategy) -> None:  # semantics F4
    first = expect(Restart, fail(strategy, Restart(0), 1_000, "s1"))
    other = expect(Restart, fail(strategy, first, 20_000))
    assert other.memory is not None
    assert other.memory.server == "s1"
    late = expect(Restart, fail(strategy, other, 40_000, "s1"))
    assert late.count == other.count


def test_without_a_strategy_nothing_is_remembered() -> None:  # semantics F4
    memory = RestartMemory((7,))
    assert weigh(None, memory, 0, 1, job="j", epoch="a", server="s1") == Restart(0, memory=memory)


@pytest.mark.parametrize(("second", "expected"), [("s1", "pending"), ("s2", "failed"), ("", "failed")])
def test_an_attempt_that_ended_before_the_report_counts_with_its_server(
    world: World, second: str, expected: str
) -> None:  # semantics F4, V4
    world.config = CheckpointConfig(restart_strategy=FixedDelayRestart(1, 1 * S))
    world.trigger("a")
    world.coordinator().begin("a", "clean", "one")
    assert isinstance(world.coordinator().fail("a", "clean", "one", "its server is gone", server="s1"), FailedOver)
    world.clock.advance(timedelta(minutes=5))
    world.decline(world.submit("a", "clean", "two").handover, server=second)
    seen = world.coordinator().progress("a")
    assert isinstance(seen, Failed), "the sensor sees the decline first"
    answer = world.coordinator().begin("a", "clean", "three")
    assert ("failed" if isinstance(answer, Failed) else "pending") == expected


def test_what_one_server_takes_along_uses_up_one_restart(world: World) -> None:  # semantics F4, V4
    world.config = CheckpointConfig(restart_strategy=FixedDelayRestart(1, 1 * S))
    world.trigger("a")

    def lose(claimant: str, server: str) -> FailAnswer:
        world.coordinator().begin("a", "clean", claimant)
        return world.coordinator().fail("a", "clean", claimant, "its server is gone", server=server)

    assert isinstance(lose("one", "s1"), FailedOver)
    world.clock.advance(timedelta(minutes=5))
    assert isinstance(lose("two", "s1"), FailedOver)
    assert isinstance(lose("three", "s2"), Failed)
