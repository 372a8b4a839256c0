"""Waits for a store that refuses for a moment: a key rotation, a policy change, a clock adjustment (semantics W3).

Only errors of a store that `errors.py` calls curable are waited for: refused credentials, or no answer. A role that may
wait opens its store with a `Waiting`. Commands, pages and callbacks do not: a person waits for those, or the next try
asks again. Triggers wait themselves, without a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from threading import Lock

from ..clock import Clock, Sleeper
from ..errors import ErrorKind, StorageError, may_pass
from .options import S3Options

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
        renewed: returns the options anew, from the connection as it is now; None: the same options, with what boto3's
            own chain finds now.
        longest_s: longest time for one request after its first refusal, in seconds.
    """

    whose: str
    renewed: Callable[[], S3Options | None] | None = None
    longest_s: float = LONGEST_S
    said: _Said = field(default_factory=_Said, repr=False, compare=False)


def pause_s(waited_s: float) -> float:
    """Return the seconds until the next request: as many as have been waited, up to a limit."""
    return min(max(waited_s, _FIRST_S), _PAUSE_S)


def describe(error: StorageError, whose: str, since: float, until: float) -> str:
    """Describe the store's answer, the start and the end of the wait, and the credentials' owner."""
    return (
        f"waiting for the store since {_shown(since)}, until {_shown(until)} at most, with the credentials of {whose}. "
        f"It said: {error}"
    )


def _shown(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, timezone.utc):%H:%M:%S} UTC"


class Wait:
    """One request's wait.

    Args:
        waiting: the role's wait; None: no wait.
        renew: renews the credentials before the next request.
        sleep: waits between two requests.
        clock: returns the time.
    """

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
            log.info("the store answers again, after %.0f s", self._clock() - self._since)
