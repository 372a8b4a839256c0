"""Restart strategies: what is allowed, when, what is remembered; a lost server, a store that is away (F4, V4, W3)."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cairn.checkpoint import (
    CheckpointConfig,
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
)
from airflow_cairn.checkpoint.answers import FailAnswer, Failed, FailedOver
from airflow_cairn.checkpoint.config import MAX_DELAY, RestartStrategy
from airflow_cairn.checkpoint.documents.attempt import RestartMemory, RestartRule
from airflow_cairn.checkpoint.documents.entries import MAX_FAILURES
from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.rules.failures import OUTAGE_MS, Exhausted, Restart, left, weigh
from tests.support.narrowing import expect, known
from tests.support.world.world import World

S = timedelta(seconds=1)
MS = timedelta(milliseconds=1)


def failures_at(
    strategy: RestartStrategy, *seconds: float, epoch: str = "a", job: str = "flights"
) -> list[float | str]:
    """Fail at these moments; gives the delay before each restart in seconds, and why there was none at last."""
    memory: RestartMemory | None = None
    restarts, found = 0, list[float | str]()
    for moment in seconds:
        answer = weigh(strategy.rule(), memory, restarts, round(moment * 1000), job=job, epoch=epoch)
        if isinstance(answer, Exhausted):
            return [*found, answer.why]
        found.append(answer.delay_ms / 1000)
        restarts, memory = answer.count, answer.memory
    return found


def test_without_a_strategy_nothing_is_counted() -> None:  # semantics F4
    memory = RestartMemory((7,))
    for server in ("", "s1"):
        assert weigh(None, memory, 3, 1, job="j", epoch="a", server=server) == Restart(0, memory=memory)


def test_no_restart() -> None:  # semantics F4
    assert failures_at(NoRestart(), 1) == ["NoRestart allows no restart"]
    in_an_incident = weigh(NoRestart().rule(), None, 0, 5, job="flights", epoch="a", restart_at_ms=10, began_ms=1)
    assert isinstance(in_an_incident, Exhausted)
    assert isinstance(refused(NoRestart(), Restart(0), FIRST), Exhausted)


def test_a_fixed_delay_restarts_so_often_and_no_more() -> None:  # semantics F4
    assert failures_at(FixedDelayRestart(3, 10 * S), 1, 2, 3, 4) == [
        10, 10, 10, "FixedDelayRestart allows 3 restarts of an epoch, and this was failure 4"
    ]  # fmt: skip
    assert failures_at(FixedDelayRestart(), 1, 2)[-1] == (
        "FixedDelayRestart allows 1 restart of an epoch, and this was failure 2"
    )


def test_an_exponential_delay_grows_up_to_its_bound() -> None:  # semantics F4
    strategy = ExponentialDelayRestart(1 * S, 10 * S, 2.0, 0.0, reset_after=3600 * S)
    assert failures_at(strategy, 1, 2, 3, 4, 5, 6) == [1, 2, 4, 8, 10, 10]


def test_a_quiet_time_after_the_restart_starts_it_anew() -> None:  # semantics F4
    strategy = ExponentialDelayRestart(4 * S, 60 * S, 2.0, 0.0, reset_after=100 * S, attempts=2)
    assert failures_at(strategy, 0, 103, 210.9) == [
        4, 8, "ExponentialDelayRestart allows 2 restarts in a row, and this was failure 3"
    ]  # fmt: skip
    assert failures_at(strategy, 0, 103, 211) == [4, 8, 4], "100 s after the restart, which was 8 s after the failure"
    assert failures_at(strategy, 0, 104, 208) == [4, 4, 4]


def test_jitter_is_within_its_bounds_and_the_same_for_every_party() -> None:  # semantics F4
    strategy = ExponentialDelayRestart(10 * S, 100 * S, 1.5, 0.2)
    drawn = {epoch: failures_at(strategy, 1, 2, epoch=epoch)[1] for epoch in map(str, range(50))}
    assert all(12 <= float(delay) <= 18 for delay in drawn.values())
    assert float(min(drawn.values())) < 13
    assert float(max(drawn.values())) > 17
    assert len(set(drawn.values())) > 40, "epochs that fail together do not restart together"
    assert drawn == {epoch: failures_at(strategy, 1, 2, epoch=epoch)[1] for epoch in drawn}
    assert failures_at(strategy, 1, 2) != failures_at(strategy, 1, 2, job="trains")
    first, second, third = failures_at(strategy, 1, 2, 3)
    assert (second, third) != (15, 22.5)
    assert 10 <= float(first) <= 12 <= float(second) <= 18 <= float(third) <= 27
    assert max(failures_at(ExponentialDelayRestart(9 * S, 10 * S, 1.5, 1.0), *range(40))) == 10, "never beyond"


def test_the_delay_is_bounded_after_chance_has_spoken() -> None:  # semantics F4
    """No delay is shorter than the first one, and jobs that have long failed wait for the longest one alike."""
    strategy = ExponentialDelayRestart(10 * S, 100 * S, 3.0, 0.5)
    firsts = [failures_at(strategy, 1, epoch=epoch)[0] for epoch in map(str, range(50))]
    assert min(map(float, firsts)) == 10
    fifths = {failures_at(strategy, *range(1, 6), epoch=epoch)[-1] for epoch in map(str, range(50))}
    assert fifths == {100}, "10 * 3 ** 4 = 810, and half of that is beyond the bound still"


def test_a_delay_is_not_rounded_up() -> None:  # semantics F4
    strategy = ExponentialDelayRestart(MS, 1000 * MS, 1.5, 0.0)
    assert failures_at(strategy, *range(8)) == [0.001, 0.001, 0.002, 0.003, 0.005, 0.007, 0.011, 0.017]


def test_a_delay_of_any_number_of_failures_is_a_number() -> None:  # semantics F4
    rule = ExponentialDelayRestart(1 * S, 60 * S, 100.0, 1.0).rule()
    long_ago = RestartMemory(times_ms=(1,), delay_ms=60_000, in_a_row=1_000_000)
    answer = expect(Restart, weigh(rule, long_ago, 5, 2, job="flights", epoch="a"))
    assert answer.delay_ms == 60_000


INCIDENT = {
    "fixed": FixedDelayRestart(2, 10 * S),
    "exponential": ExponentialDelayRestart(10 * S, 60 * S, 2.0, 0.0, attempts=2),
    "rate": FailureRateRestart(2, 3600 * S, 10 * S),
}


def again(strategy: RestartStrategy, at: float, *, began: float | None) -> Restart | Exhausted:
    """Fail at 100 s so that it counts, and then at another moment; gives what the second failure leads to."""
    first = expect(Restart, weighed(strategy, Restart(0), 100_000, began_ms=1))
    began_ms = None if began is None else round(began * 1000)
    return weighed(strategy, first, round(at * 1000), restart_at_ms=100_000 + first.delay_ms, began_ms=began_ms)


@pytest.mark.parametrize("strategy", INCIDENT.values(), ids=INCIDENT)
def test_what_fails_in_one_incident_counts_once(strategy: RestartStrategy) -> None:  # semantics F4
    """Each try had begun when the first one failed, and fails before the restart: it waits for that restart."""
    first = expect(Restart, again(strategy, 100, began=1))
    for at in (100.5, 104, 109.999):
        answer = expect(Restart, again(strategy, at, began=1))
        assert (answer.count, answer.delay_ms, answer.memory) == (1, round(110_000 - at * 1000), first.memory)


@pytest.mark.parametrize("strategy", INCIDENT.values(), ids=INCIDENT)
@pytest.mark.parametrize(
    ("at", "began"),
    [(110, 1), (104, 100), (104, 101), (104, None), (90, 1)],
    ids=["after the restart", "began at the failure", "began after it", "nobody knows", "the clock went back"],
)
def test_what_is_of_no_incident_counts(strategy: RestartStrategy, at: float, began: float | None) -> None:
    """semantics F4: a try that the restart began and that fails at once is a failure of its own."""
    answer = expect(Restart, again(strategy, at, began=began))
    assert answer.count == 2


def test_an_incident_may_come_at_the_limit() -> None:  # semantics F4
    assert isinstance(again(FixedDelayRestart(1, 10 * S), 104, began=1), Restart)
    assert isinstance(again(FixedDelayRestart(1, 10 * S), 104, began=101), Exhausted)


def test_a_failure_rate_allows_so_many_in_any_interval() -> None:  # semantics F4
    strategy = FailureRateRestart(2, 10 * S, 1 * S)
    assert failures_at(strategy, 0, 5, 9.9)[-1] == (
        "FailureRateRestart allows 2 failures in 0:00:10, and this was one more"
    )
    assert failures_at(strategy, 0, 5, 10, 15, 20) == [1] * 5
    assert len(failures_at(strategy, 0, 5, 10, 12)) == 4
    assert isinstance(failures_at(strategy, 0, 5, 10, 12)[-1], str), "5, 10 and 12 are three within ten seconds"


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 5), st.integers(1, 20))
def test_of_any_failures_no_interval_holds_more_restarts_than_allowed(gaps: list[int], most: int, span: int) -> None:
    # semantics F4
    strategy, memory, now, restarted = FailureRateRestart(most, span * MS, 0 * S), None, 0, list[int]()
    for gap in gaps:
        now += gap
        answer = weigh(strategy.rule(), memory, 0, now, job="j", epoch="a")
        recent = [each for each in restarted if now - each < span]
        assert isinstance(answer, Exhausted) == (len(recent) >= most)
        if isinstance(answer, Restart):
            restarted, memory = [*restarted, now], answer.memory
            assert len(known(memory).times_ms) <= most, "bounded"


@given(st.lists(st.integers(0, 200), min_size=2, max_size=40), st.floats(1.01, 100))
def test_any_delay_is_within_the_bounds(gaps: list[int], multiplier: float) -> None:  # semantics F4
    strategy = ExponentialDelayRestart(3 * MS, 70 * MS, multiplier, 1.0, 100 * MS)
    moments = [sum(gaps[: at + 1]) / 1000 for at in range(len(gaps))]
    assert all(0 <= float(delay) <= 0.070 for delay in failures_at(strategy, *moments))


def test_a_clock_that_goes_back_forgets_nothing() -> None:  # semantics F4
    assert isinstance(failures_at(FailureRateRestart(2, 10 * S), 100, 50, 49)[-1], str)
    assert failures_at(ExponentialDelayRestart(1 * S, 60 * S, 2.0, 0.0), 10_000, 1, 0) == [1, 2, 4]


@pytest.mark.parametrize(
    "strategy", [FixedDelayRestart(3, 10 * S), FailureRateRestart(3, 60 * S, 10 * S), ExponentialDelayRestart(10 * S)]
)
def test_a_clock_that_was_ahead_makes_no_delay_longer(strategy: RestartStrategy) -> None:  # semantics F4, V4
    """All that fails for the end of one server is one incident, which a process a day ahead has counted first."""
    day_ms, now_ms = 86_400_000, 100_000
    first = expect(Restart, weigh(strategy.rule(), None, 0, now_ms + day_ms, job="flights", epoch="a", server="s"))
    due_ms = now_ms + day_ms + first.delay_ms
    memory = first.memory
    second = weigh(
        strategy.rule(), memory, 1, now_ms, job="flights", epoch="a", restart_at_ms=due_ms, began_ms=1, server="s"
    )
    assert expect(Restart, second).delay_ms == first.delay_ms


@pytest.mark.parametrize(
    ("strategy", "moments", "expected"),
    [
        (NoRestart(), [], 0),
        (FixedDelayRestart(3), [1], 2),
        (FixedDelayRestart(3), [1, 2, 3], 0),
        (ExponentialDelayRestart(), [1, 2], None),
        (ExponentialDelayRestart(attempts=3), [1, 2], 1),
        (ExponentialDelayRestart(attempts=3, reset_after=5 * S), [1], 3),
        (FailureRateRestart(3, 60 * S), [1, 2], 1),
        (FailureRateRestart(3, 5 * S), [1, 9], 2),
        (FailureRateRestart(3, 5 * S), [99, 1, 9], 2),  # the first by a clock that was ahead
    ],
)
def test_what_remains(strategy: RestartStrategy, moments: list[float], expected: int | None) -> None:
    # semantics F4, O1
    memory, restarts = None, 0
    for moment in moments:
        answer = expect(Restart, weigh(strategy.rule(), memory, restarts, round(moment * 1000), job="j", epoch="a"))
        memory, restarts = answer.memory, answer.count
    assert left(strategy.rule(), memory, restarts, 10_000) == expected


@pytest.mark.parametrize(
    ("strategy", "options", "words"),
    [
        (FixedDelayRestart, {"attempts": 0}, "attempts must be a whole number of at least 1"),
        (FixedDelayRestart, {"attempts": True}, "attempts"),
        (FixedDelayRestart, {"attempts": 1.0}, "attempts"),
        (FixedDelayRestart, {"delay": -1 * MS}, "delay must be a timedelta of at least 0:00:00 and at most 7 days"),
        (FixedDelayRestart, {"delay": MAX_DELAY + MS}, "delay"),
        (FixedDelayRestart, {"delay": 5}, "delay"),
        (ExponentialDelayRestart, {"initial_delay": timedelta(0)}, "initial_delay"),
        (ExponentialDelayRestart, {"initial_delay": 61 * S}, "at most max_delay (0:01:00)"),
        (ExponentialDelayRestart, {"max_delay": MAX_DELAY + MS}, "max_delay"),
        (ExponentialDelayRestart, {"max_delay": None}, "max_delay"),
        (ExponentialDelayRestart, {"multiplier": 1}, "multiplier must be a number of more than 1 and at most 100"),
        (ExponentialDelayRestart, {"multiplier": 101}, "multiplier"),
        (ExponentialDelayRestart, {"multiplier": float("nan")}, "multiplier"),
        (ExponentialDelayRestart, {"multiplier": "2"}, "multiplier"),
        (ExponentialDelayRestart, {"jitter": -0.1}, "jitter must be a number of at least 0 and at most 1"),
        (ExponentialDelayRestart, {"jitter": 1.1}, "jitter"),
        (ExponentialDelayRestart, {"jitter": float("nan")}, "jitter"),
        (ExponentialDelayRestart, {"jitter": True}, "jitter"),
        (ExponentialDelayRestart, {"reset_after": timedelta(0)}, "reset_after"),
        (ExponentialDelayRestart, {"reset_after": timedelta(days=366)}, "reset_after"),
        (ExponentialDelayRestart, {"attempts": 0}, "attempts"),
        (FailureRateRestart, {"max_failures": 0}, "max_failures"),
        (FailureRateRestart, {"max_failures": MAX_FAILURES + 1}, "max_failures must be at most 100"),
        (FailureRateRestart, {"interval": timedelta(0)}, "interval"),
        (FailureRateRestart, {"delay": -1 * S}, "delay"),
        (CheckpointConfig, {"restart_strategy": "fixed-delay"}, "restart_strategy must be a NoRestart, FixedDelay"),
        (CheckpointConfig, {"restart_strategy": NoRestart}, "restart_strategy"),
    ],
)
def test_bad_options_are_refused(strategy: Any, options: dict[str, Any], words: str) -> None:  # semantics F4, S3
    with pytest.raises(InvalidConfigError) as refused:
        strategy(**options)
    assert words in str(refused.value)
    assert next(iter(options)) in str(refused.value)


@pytest.mark.parametrize(
    "strategy",
    [
        FixedDelayRestart(1, timedelta(0)),
        FixedDelayRestart(10**9, MAX_DELAY),
        ExponentialDelayRestart(MS, MS, 100, 1, timedelta(days=365), 1),
        ExponentialDelayRestart(MAX_DELAY, MAX_DELAY, 1.0001, 0),
        FailureRateRestart(MAX_FAILURES, MS, timedelta(0)),
    ],
)
def test_options_at_their_bounds_are_taken(strategy: RestartStrategy) -> None:  # semantics F4, S3
    rule = CheckpointConfig(restart_strategy=strategy).restart_strategy
    assert rule is strategy
    assert isinstance(strategy.rule(), RestartRule)


def test_the_defaults_are_flinks() -> None:  # semantics F4
    assert FixedDelayRestart() == FixedDelayRestart(1, 1 * S)
    assert ExponentialDelayRestart() == ExponentialDelayRestart(1 * S, 60 * S, 1.5, 0.1, 3600 * S, None)
    assert FailureRateRestart() == FailureRateRestart(1, 60 * S, 1 * S)
    delays = failures_at(ExponentialDelayRestart(jitter=0), *range(12))
    assert all(float(later) >= float(earlier) for earlier, later in pairwise(delays))


ONE: tuple[RestartStrategy, ...] = (
    FixedDelayRestart(1, 10 * S),
    ExponentialDelayRestart(10 * S, 10 * S, jitter=0.0, attempts=1),
    FailureRateRestart(1, 3600 * S, 10 * S),
)


def weighed(strategy: RestartStrategy, before: Restart, at_ms: int, **options: Any) -> Restart | Exhausted:
    """Weigh a failure of an epoch after what was decided of the one before; `options` are those of `weigh`."""
    return weigh(strategy.rule(), before.memory, before.count, at_ms, job="flights", epoch="a", **options)


@pytest.mark.parametrize("strategy", ONE)
def test_the_end_of_one_server_counts_once(strategy: RestartStrategy) -> None:  # semantics F4, V4
    first = expect(Restart, weighed(strategy, Restart(0), 1_000, server="s1"))
    assert first.delay_ms == 10_000
    at_once = weighed(strategy, first, 2_000, server="s1", restart_at_ms=11_000)
    assert at_once == Restart(1, 9_000, first.memory), "it waits for the restart that answers the first"
    assert weighed(strategy, first, 61_000, server="s1", restart_at_ms=11_000) == Restart(1, 0, first.memory)
    assert isinstance(weighed(strategy, first, 2_000, server="s2"), Exhausted), "another server's counts by itself"
    assert isinstance(weighed(strategy, first, 2_000), Exhausted), "and so does a stage's own error"


@pytest.mark.parametrize("strategy", [FixedDelayRestart(2, 10 * S), FailureRateRestart(2, 60 * S, 10 * S)])
def test_a_failure_in_between_does_not_make_it_count_again(strategy: RestartStrategy) -> None:  # semantics F4
    first = expect(Restart, weighed(strategy, Restart(0), 1_000, server="s1"))
    other = expect(Restart, weighed(strategy, first, 20_000))
    assert known(other.memory).server == "s1"
    late = expect(Restart, weighed(strategy, other, 40_000, server="s1"))
    assert late.count == other.count


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


FIRST = 5_000


def refused(strategy: RestartStrategy, before: Restart, at_ms: int, **options: Any) -> Restart | Exhausted:
    return weighed(strategy, before, at_ms, of_store=True, **options)


@pytest.mark.parametrize("strategy", ONE)
def test_what_the_store_refuses_counts_for_nothing_for_an_hour(strategy: RestartStrategy) -> None:  # semantics F4
    at = Restart(0)
    for at_ms in (FIRST, 400_000, FIRST + OUTAGE_MS - 1):
        found = expect(Restart, refused(strategy, at, at_ms))
        assert (found.count, found.delay_ms) == (0, 10_000)
        at = found
    own = weighed(strategy, at, FIRST + OUTAGE_MS - 1)
    assert isinstance(own, Restart), "a failure of the stage's own has all restarts left"
    assert own.count == 1
    late = refused(strategy, at, FIRST + OUTAGE_MS)
    assert isinstance(late, Restart), "what lasts longer counts"
    assert late.count == 1
    assert isinstance(refused(strategy, late, FIRST + OUTAGE_MS + 400_000), Exhausted)


def test_a_checkpoint_that_has_completed_ends_an_outage() -> None:  # semantics F4
    first = expect(Restart, refused(ONE[0], Restart(0), FIRST))
    next_week = refused(ONE[0], first, FIRST + 100 * OUTAGE_MS, completed_ms=FIRST + 50 * OUTAGE_MS)
    assert next_week == replace(first, memory=RestartMemory(refused_ms=FIRST + 100 * OUTAGE_MS))


def test_a_clock_that_was_ahead_makes_no_outage_longer() -> None:  # semantics F4
    ahead = Restart(0, memory=RestartMemory(refused_ms=90_000_000))
    found = refused(ONE[0], ahead, FIRST)
    assert found == Restart(0, 10_000, RestartMemory(refused_ms=FIRST))


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
