"""A store at whose requests the process that asks is killed or stopped: SIGKILL and SIGSTOP, sent to itself.

The signal is the real one and nothing of the process survives it; that the process sends it to itself is what lets a
seed say at which request it comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from airflow_cairn.storage.port import ObjectStore
from tests.support.wrapped_stores import WrappedStore

T = TypeVar("T")

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


@dataclass(frozen=True)
class Strike:
    """When a process is struck."""

    how: str
    """`kill` or `stop`."""
    request: int
    """Number of the request that is struck, from 1."""
    after: bool
    """Whether the strike comes after the server's work and before the process hears of it; else before the request."""


class StruckStore(WrappedStore):
    """Passes requests on, and strikes at one of them.

    Args:
        inner: the store.
        strike: when; None never.
        before: is told which signal is about to come.
    """

    def __init__(self, inner: ObjectStore, strike: Strike | None, before: Callable[[str], None]) -> None:
        super().__init__(inner)
        self._strike = strike
        self._before = before
        self._requests = 0

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        return self._ask(call)

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        return self._ask(call)

    def _ask(self, call: Callable[[], T]) -> T:
        self._requests += 1
        if self._strike is None or self._strike.request != self._requests:
            return call()
        if not self._strike.after:
            self._come(self._strike.how)
            return call()
        answer = call()
        self._come(self._strike.how)
        return answer

    def _come(self, how: str) -> None:
        self._before(how)
        os.kill(os.getpid(), SIGNALS[how])
