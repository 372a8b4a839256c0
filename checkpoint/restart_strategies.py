"""The author's options: restart strategies with Flink's names (semantics F4). `failures/restarts` decides by them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ..storage.names import shorten
from .documents.attempt import RestartKind, RestartRule
from .documents.entries import MAX_FAILURES
from .errors import InvalidConfigError
from .validation import check_whole, refuses_unknown

MAX_DELAY = timedelta(days=7)
"""The longest delay before a restart."""


@refuses_unknown
@dataclass(frozen=True, slots=True)
class NoRestart:
    """No failed try is followed by another: the first failure fails the epoch."""

    def rule(self) -> RestartRule:
        """Give what travels with an attempt."""
        return RestartRule(RestartKind.NONE)


@refuses_unknown
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


@refuses_unknown
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
    """After so long without a failure, counted from the last restart, delay and count start anew; 1 ms to 365 days."""
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


@refuses_unknown
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
