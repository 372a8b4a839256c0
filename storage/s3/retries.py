"""Retries of requests: bounded, with exponential pauses and full jitter.

botocore's own retries are off, because they replay conditional writes and turn a successful create into a 412
(semantics W2). Reads, listings and deletes may be sent any number of times; `conditional_write.py` sends conditional
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from ..clock import Clock, Fraction, Sleeper, system_time
from ..errors import StorageError
from .faults import Fault, NoAnswer, Refused
from .waiting import Wait, Waiting

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
    """Renews the credentials."""
    clock: Clock = system_time

    def wait(self) -> Wait:
        """Return the wait of one request."""
        return Wait(self.waiting, self.renew, self.sleep, self.clock)

    @property
    def at_once(self) -> RetryPolicy:
        """The same policy without a wait, for optional requests."""
        return replace(self, waiting=None)

    def attempts(self) -> Iterator[int]:
        """Yield 0, 1, …, pausing before each but the first."""
        for attempt in range(self.max_attempts):
            if attempt:
                self.sleep(self.fraction() * min(self.cap_s, self.base_s * 2 ** (attempt - 1)))
            yield attempt

    def ask_until(self, send: Callable[[], _T], explain: Callable[[Fault], StorageError]) -> _T:
        """Send a repeatable request until it is answered, and wait for a store that refuses for a moment.

        Args:
            send: sends the request once.
            explain: converts a fault to an error.

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
