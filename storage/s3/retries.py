"""How often and after what pause a call is sent again: bounded, exponential, with full jitter.

botocore's own retries are off, because they replay conditional writes and turn a create that was won into a 412
(semantics W2). Reads, listings and deletes may be sent any number of times; `conditional_write.py` sends conditional
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from ..clock import Fraction, Sleeper
from .faults import Fault, NoAnswer, Refused

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a call is kept up."""

    max_attempts: int
    sleep: Sleeper
    fraction: Fraction
    base_s: float = 0.2
    cap_s: float = 5.0

    def attempts(self) -> Iterator[int]:
        """Yield 0, 1, …, pausing before each but the first."""
        for attempt in range(self.max_attempts):
            if attempt:
                self.sleep(self.fraction() * min(self.cap_s, self.base_s * 2 ** (attempt - 1)))
            yield attempt

    def ask(self, send: Callable[[], _T]) -> _T:
        """Send a request that may be repeated until it is answered.

        Raises:
            Fault: the last one, or the first that no repetition can cure.
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
