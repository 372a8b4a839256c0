"""Restart strategies: whether a failed try is followed by another attempt, and when (semantics F4). Flink's four.

The options are the author's; `RestartRule` is what travels with an attempt. `weigh` is a pure function of the rule, of
what the head remembers and of the clock, and is asked in the very swap that ends the attempt: so a failure counts once,
from every reporter and however often. That the job fails means that this epoch does; the count starts anew then.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from ..storage.names import shorten
from .errors import InvalidConfigError
from .model import RestartKind, RestartMemory, RestartRule
from .options import check_whole

MAX_DELAY = timedelta(days=7)
"""The longest delay before a restart."""

MAX_FAILURES = 100
"""Failures whose times the head keeps, and so the most that a failure rate may name."""


@dataclass(frozen=True, slots=True)
class NoRestart:
    """No failed try is followed by another: the first failure fails the epoch."""

    def rule(self) -> RestartRule:
        """Give what travels with an attempt."""
        return RestartRule(RestartKind.NONE)


@dataclass(frozen=True, slots=True)
class FixedDelayRestart:
    """Restart an epoch up to `attempts` times, each time after the same delay. The next epoch starts at 0.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    attempts: int = 1
    """Restarts of an epoch before the job fails; at least 1."""
    delay: timedelta = timedelta(seconds=1)
    """From the failure to the restart; 0 to `MAX_DELAY`."""

    def __post_init__(self) -> None:
        """Check the bounds where the DAG is parsed."""
        check_whole("attempts", self.attempts)
        _check_span("delay", self.delay, timedelta(0))

    def rule(self) -> RestartRule:
        """Give what travels with an attempt."""
        return RestartRule(RestartKind.FIXED_DELAY, attempts=self.attempts, delay_ms=_ms(self.delay))


@dataclass(frozen=True, slots=True)
class ExponentialDelayRestart:
    """Restart after a delay that grows with each failure, and starts anew after a quiet time. Counts over all epochs.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    initial_delay: timedelta = timedelta(seconds=1)
    """Before the first restart; 1 ms to `max_delay`."""
    max_delay: timedelta = timedelta(minutes=1)
    """The delay never grows beyond it; up to `MAX_DELAY`."""
    multiplier: float = 1.5
    """How much longer each delay is than the one before; more than 1, up to 100."""
    jitter: float = 0.1
    """How much of the delay is left to chance, so that jobs that fail together do not restart together: 0.1 makes it
    up to a tenth longer or shorter, but never shorter than `initial_delay` or longer than `max_delay`; 0 to 1. It
    follows from job, epoch and count: every party finds the same."""
    reset_after: timedelta = timedelta(hours=1)
    """So long without a failure, counted from the last restart, and delay and count start anew; 1 ms to 365 days."""
    attempts: int | None = None
    """Restarts in a row before the job fails; at least 1. None: no limit."""

    def __post_init__(self) -> None:
        """Check the bounds where the DAG is parsed."""
        _check_span("max_delay", self.max_delay, timedelta(milliseconds=1))
        _check_span("initial_delay", self.initial_delay, timedelta(milliseconds=1), self.max_delay, "max_delay")
        _check_number("multiplier", self.multiplier, 1, 100, above=True)
        _check_number("jitter", self.jitter, 0, 1)
        _check_span("reset_after", self.reset_after, timedelta(milliseconds=1), timedelta(days=365))
        if self.attempts is not None:
            check_whole("attempts", self.attempts)

    def rule(self) -> RestartRule:
        """Give what travels with an attempt."""
        return RestartRule(
            RestartKind.EXPONENTIAL_DELAY,
            attempts=self.attempts,
            delay_ms=_ms(self.initial_delay),
            max_delay_ms=_ms(self.max_delay),
            multiplier=float(self.multiplier),
            jitter=float(self.jitter),
            interval_ms=_ms(self.reset_after),
        )


@dataclass(frozen=True, slots=True)
class FailureRateRestart:
    """Restart while no more than `max_failures` tries fail in any `interval`, over all epochs of the job.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    max_failures: int = 1
    """Failures in an interval that are answered by a restart; 1 to `MAX_FAILURES`. One more, and the job fails."""
    interval: timedelta = timedelta(minutes=1)
    """1 ms to 365 days."""
    delay: timedelta = timedelta(seconds=1)
    """From the failure to the restart; 0 to `MAX_DELAY`."""

    def __post_init__(self) -> None:
        """Check the bounds where the DAG is parsed."""
        check_whole("max_failures", self.max_failures)
        if self.max_failures > MAX_FAILURES:
            raise InvalidConfigError(f"max_failures must be at most {MAX_FAILURES}", max_failures=self.max_failures)
        _check_span("interval", self.interval, timedelta(milliseconds=1), timedelta(days=365))
        _check_span("delay", self.delay, timedelta(0))

    def rule(self) -> RestartRule:
        """Give what travels with an attempt."""
        return RestartRule(
            RestartKind.FAILURE_RATE,
            attempts=self.max_failures,
            delay_ms=_ms(self.delay),
            interval_ms=_ms(self.interval),
        )


RestartStrategy = NoRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart


def check_strategy(strategy: object) -> None:
    """Check the option `restart_strategy`.

    Raises:
        InvalidConfigError: it is something else.
    """
    if strategy is not None and not isinstance(strategy, RestartStrategy):
        raise InvalidConfigError(
            "restart_strategy must be a NoRestart, FixedDelayRestart, ExponentialDelayRestart or FailureRateRestart, "
            "or None for Airflow's own retries",
            restart_strategy=shorten(strategy),
        )


@dataclass(frozen=True, slots=True)
class Restart:
    """The failed try is followed by another attempt."""

    count: int
    """Restarts of the epoch in a row, this one included."""
    delay_ms: int = 0
    memory: RestartMemory | None = None
    """What the head is to remember from now on."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The job fails; `why` names the strategy and its limit."""

    why: str


def weigh(
    rule: RestartRule | None,
    memory: RestartMemory | None,
    restarts: int,
    now_ms: int,
    *,
    job: str,
    epoch: str,
    restart_at_ms: int = 0,
    began_ms: int | None = None,
) -> Restart | Exhausted:
    """Say what a failed try leads to (semantics F4).

    What ran already when a failure was counted, and fails before the restart that answers it, is of the same incident:
    it does not count, and waits for that restart. A try that began after the failure counts by itself.

    Args:
        rule: the job's strategy; None: every failed try may be followed by another, as Airflow's retries allow.
        memory: what the head remembers of earlier failures.
        restarts: restarts of the epoch in a row so far.
        now_ms: the time of the failure, milliseconds since 1970 UTC.
        job: the job's name; jitter follows from it.
        epoch: the epoch's name; jitter follows from it.
        restart_at_ms: when the restart after the epoch's last counted failure is due, milliseconds since 1970 UTC; 0:
            there is none.
        began_ms: when the attempt was opened in which the failed try began, milliseconds since 1970 UTC; None: not
            known, so it counts.
    """
    if rule is None:
        return Restart(0, memory=memory)
    if rule.kind is RestartKind.NONE:
        return Exhausted("NoRestart allows no restart")
    incident = _incident(rule, memory, restart_at_ms)
    if incident is not None and began_ms is not None and began_ms < incident.at_ms <= now_ms < incident.restart_at_ms:
        return Restart(max(1, restarts), incident.restart_at_ms - now_ms, memory)
    if rule.kind is RestartKind.FIXED_DELAY:
        limit = rule.attempts or 0
        if restarts >= limit:
            return Exhausted(
                f"FixedDelayRestart allows {_times(limit, 'restart')} of an epoch, and this was failure {restarts + 1}"
            )
        return Restart(restarts + 1, rule.delay_ms, memory)
    known = memory or RestartMemory()
    if rule.kind is RestartKind.FAILURE_RATE:
        return _by_rate(rule, known, restarts, now_ms)
    return _exponential(rule, known, restarts, now_ms, f"{job}/{epoch}")


def left(rule: RestartRule, memory: RestartMemory | None, restarts: int, now_ms: int) -> int | None:
    """Say how many failures in a row would be answered by a restart if they came now; None: any number.

    Args:
        rule: the job's strategy.
        memory: what the head remembers of earlier failures.
        restarts: restarts of the epoch in a row so far.
        now_ms: the time, milliseconds since 1970 UTC.
    """
    if rule.attempts is None:
        return 0 if rule.kind is RestartKind.NONE else None
    used = restarts
    if rule.kind is RestartKind.FAILURE_RATE:
        used = len(_within(rule, memory or RestartMemory(), now_ms))
    elif rule.kind is RestartKind.EXPONENTIAL_DELAY:
        used = memory.in_a_row if memory is not None and not _quiet(rule, memory, now_ms) else 0
    return max(0, rule.attempts - used)


def _by_rate(rule: RestartRule, known: RestartMemory, restarts: int, now_ms: int) -> Restart | Exhausted:
    limit = rule.attempts or 0
    recent = _within(rule, known, now_ms)
    if len(recent) >= limit:
        span = timedelta(milliseconds=rule.interval_ms)
        return Exhausted(f"FailureRateRestart allows {_times(limit, 'failure')} in {span}, and this was one more")
    return Restart(restarts + 1, rule.delay_ms, RestartMemory(times_ms=(*recent, now_ms)))


def _exponential(rule: RestartRule, known: RestartMemory, restarts: int, now_ms: int, seed: str) -> Restart | Exhausted:
    in_a_row = known.in_a_row + 1 if known.in_a_row and not _quiet(rule, known, now_ms) else 1
    if rule.attempts is not None and in_a_row > rule.attempts:
        return Exhausted(
            f"ExponentialDelayRestart allows {_times(rule.attempts, 'restart')} in a row, and this was failure "
            f"{in_a_row}"
        )
    delay_ms = _grown(rule, in_a_row, seed)
    memory = RestartMemory(times_ms=(now_ms,), delay_ms=delay_ms, in_a_row=in_a_row)
    return Restart(restarts + 1, delay_ms, memory)


def _grown(rule: RestartRule, in_a_row: int, seed: str) -> int:
    """Give the delay after so many failures in a row: grown, then left to chance, then within its bounds."""
    # Every party must find the same delay, so chance follows from what all of them know.
    drawn = int.from_bytes(hashlib.sha256(f"{seed}/{in_a_row}".encode()).digest()[:8]) / 2**64
    try:
        plain = rule.delay_ms * rule.multiplier ** (in_a_row - 1)
    except OverflowError:
        return rule.max_delay_ms
    chosen = min(rule.max_delay_ms, plain * (1 + rule.jitter * (2 * drawn - 1)))
    return max(rule.delay_ms, int(chosen))


@dataclass(frozen=True, slots=True)
class _Incident:
    at_ms: int
    """The failure that was counted."""
    restart_at_ms: int
    """The restart that answers it."""


def _incident(rule: RestartRule, memory: RestartMemory | None, restart_at_ms: int) -> _Incident | None:
    """Give the last incident: of the epoch, or of the job where the strategy counts over all epochs."""
    if rule.kind is RestartKind.FIXED_DELAY:
        return _Incident(restart_at_ms - rule.delay_ms, restart_at_ms) if restart_at_ms else None
    if memory is None or not memory.times_ms:
        return None
    at_ms = memory.times_ms[-1]
    return _Incident(at_ms, at_ms + (rule.delay_ms if rule.kind is RestartKind.FAILURE_RATE else memory.delay_ms))


def _within(rule: RestartRule, known: RestartMemory, now_ms: int) -> tuple[int, ...]:
    """Give the failures of the last interval. A clock that went back makes none older than it is."""
    return tuple(each for each in known.times_ms if now_ms - each < rule.interval_ms)[-MAX_FAILURES:]


def _quiet(rule: RestartRule, known: RestartMemory, now_ms: int) -> bool:
    """Tell whether the job has run without a failure for long enough since it was last restarted."""
    return now_ms - max(known.times_ms, default=0) >= rule.interval_ms + known.delay_ms


def _times(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _ms(span: timedelta) -> int:
    return -(-span // timedelta(milliseconds=1))


def _check_span(option: str, value: object, least: timedelta, most: timedelta = MAX_DELAY, most_is: str = "") -> None:
    if not isinstance(value, timedelta) or not least <= value <= most:
        bound = f"{most_is} ({most})" if most_is else str(most)
        raise InvalidConfigError(
            f"{option} must be a timedelta of at least {least} and at most {bound}", **{option: repr(value)}
        )


def _check_number(option: str, value: object, least: float, most: float, *, above: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (least < value if above else least <= value) or not value <= most:  # type: ignore[operator]
        word = "more than" if above else "at least"
        raise InvalidConfigError(
            f"{option} must be a number of {word} {least} and at most {most}", **{option: shorten(value)}
        )
