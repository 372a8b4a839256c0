"""Retries of requests, and waits for a store that refuses for a moment (semantics W3).

Retries are bounded, with exponential pauses and full jitter. Those of the packages that send requests are off, because
they replay conditional writes and turn a successful create into a 412 (semantics W2). Reads, listings and deletes may
be sent any number of times; `conditional_write.py` sends conditional writes.

Only errors that a retry may cure (`errors.py`) are waited for: refused credentials (a key rotation, a policy change, a
clock adjustment), or no answer. A role that may wait opens its store with a `Waiting`. Commands, pages and callbacks do
not: a person waits for those, or the next try asks again. Triggers wait themselves, without a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from datetime import datetime, timezone
from threading import Lock
from typing import TypeVar

from ..clock import Clock, Fraction, Sleeper, system_time
from ..errors import ErrorKind, StorageError, may_pass
from ..records import dataclass
from .faults import Fault, NoAnswer, Refused

log = logging.getLogger("airflow_cairn")

LONGEST_S = 300.0
"""A policy takes effect within seconds, a clock or a key within minutes; a wrong key stays wrong."""
_FIRST_S = 1.0
_PAUSE_S = 15.0


@dataclass(slots=True)
class _Said:
    """The time until which the log already reports a wait: several threads may wait for one store."""

    lock: Lock = field(default_factory=Lock)
    until: float = 0.0

    def is_new(self, until: float, now: float) -> bool:
        with self.lock:
            if now < self.until:
                return False
            self.until = until
            return True


@dataclass(frozen=True)
class Waiting:
    """A role's wait for a store.

    Args:
        whose: describes the credentials, for the log.
        renewed: returns the options anew, from the connection as it is now; None: the same options, with what the
            store's library finds now.
        longest_s: longest time for one request after its first refusal, in seconds.
    """

    whose: str
    renewed: Callable[[], object] | None = None
    longest_s: float = LONGEST_S
    said: _Said = field(default_factory=_Said, repr=False, compare=False)


def pause_s(waited_s: float) -> float:
    """Return the seconds until the next request: as many as have been waited, up to a limit."""
    return min(max(waited_s, _FIRST_S), _PAUSE_S)


def describe(error: StorageError, whose: str, since: float, until: float) -> str:
    """Describe the store's answer, the start and the end of the wait, and the credentials' owner."""
    return (
        f"Waiting for the store since {_shown(since)}, until {_shown(until)} at most, with the credentials of {whose}. "
        f"It said: {error}"
    )


def _shown(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, timezone.utc):%H:%M:%S} UTC"


class Wait:
    """One request's wait."""

    def __init__(self, waiting: Waiting | None, renew: Callable[[], None], sleep: Sleeper, clock: Clock) -> None:
        self._waiting = waiting
        self._renew = renew
        self._sleep = sleep
        self._clock = clock
        self._since: float | None = None

    def again(self, error: StorageError) -> bool:
        """Wait a while; False if another request is of no use, or the time is over."""
        waiting = self._waiting
        if waiting is None:
            return False
        if not may_pass(error):
            self.over()
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
        until = self._since + waiting.longest_s
        if now >= until:
            return False
        if waiting.said.is_new(until, now):
            log.warning("%s", describe(error, waiting.whose, self._since, until))
        self._sleep(min(pause_s(now - self._since), until - now))
        if error.kind is ErrorKind.FORBIDDEN:
            self._renew()
        return True

    def over(self) -> None:
        """Log that the store has answered."""
        if self._since is not None and self._waiting is not None:
            log.info("The store answers again, after %.0f s", self._clock() - self._since)


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The retries of one request."""

    max_attempts: int
    sleep: Sleeper
    fraction: Fraction
    base_s: float = 0.2
    cap_s: float = 5.0
    waiting: Waiting | None = None
    """The wait for a store beyond the retries; None: no wait."""
    renew: Callable[[], None] = lambda: None
    clock: Clock = system_time

    def wait(self) -> Wait:
        return Wait(self.waiting, self.renew, self.sleep, self.clock)

    @property
    def at_once(self) -> RetryPolicy:
        """Return this policy without a wait, for optional requests."""
        return replace(self, waiting=None)

    def attempts(self) -> Iterator[int]:
        """Yield 0, 1, …, pausing before each but the first."""
        for attempt in range(self.max_attempts):
            if attempt:
                self.sleep(self.fraction() * min(self.cap_s, self.base_s * 2 ** (attempt - 1)))
            yield attempt

    def ask_until(self, send: Callable[[], _T], explain: Callable[[Fault], StorageError]) -> _T:
        """Send a repeatable request until it is answered, and wait for a store that refuses for a moment.

        Raises:
            StorageError: by the last answer.
        """
        wait = self.wait()
        while True:
            try:
                found = self.ask(send)
            except Fault as fault:
                error = explain(fault)
                if not wait.again(error):
                    raise error from fault
            else:
                wait.over()
                return found

    def ask(self, send: Callable[[], _T]) -> _T:
        """Send a repeatable request until it is answered.

        Raises:
            Fault: the last fault, or the first that no retry can cure.
        """
        last: Fault = NoAnswer("no attempt was allowed", sent=False)
        for _ in self.attempts():
            try:
                return send()
            except NoAnswer as fault:
                last = fault
            except Refused as fault:
                if not fault.transient:
                    raise
                last = fault
        raise last
