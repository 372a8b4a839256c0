"""Shares reads between equal requests, on threads for each storage.

A store that hangs delays only requests for it: each storage has its own few threads, and a request waits for a bounded
time. A read that is in progress is never started a second time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import Any, TypeVar

R = TypeVar("R")

THREADS = 16
"""Concurrent reads of one storage: 250 jobs of a store that takes 150 ms a read are listed within `PATIENCE_S`."""

STORAGES = 32
"""Storages with threads; a further storage takes the threads of the least recently used one."""

KEPT = 256
"""Maximum number of cached values."""

FRESH_S = 2.0
"""Seconds for which a value is returned without another look at the store."""

PATIENCE_S = 8.0
"""Seconds for which a request waits; below the ten seconds after which many proxies give up."""


class _Read:
    def __init__(self) -> None:
        self.future: Future[Any] | None = None
        self.ended_at = 0.0

    @property
    def under_way(self) -> bool:
        return self.future is not None and not self.future.done()

    @property
    def value(self) -> Any:
        """The result of the read; None if it failed, or if there was none."""
        if self.future is None or not self.future.done() or self.future.exception() is not None:
            return None
        return self.future.result()


class SharedReads:
    """Cached values by key, each read once for all concurrent requests.

    Args:
        now: monotonic clock, seconds.
        fresh_s: seconds for which a value is returned without another look.
        patience_s: seconds for which a request waits; None: `PATIENCE_S` at the time of the call.
    """

    def __init__(
        self, now: Callable[[], float] = monotonic, fresh_s: float = FRESH_S, patience_s: float | None = None
    ) -> None:
        self._now = now
        self._fresh_s = fresh_s
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._lock = Lock()
        self._pools: OrderedDict[str, ThreadPoolExecutor] = OrderedDict()
        self._reads: OrderedDict[tuple[str, Hashable], _Read] = OrderedDict()

    async def get(self, storage: str, key: Hashable, read: Callable[[R | None], R]) -> R:
        """Return a value that is no older than `fresh_s`.

        Args:
            storage: the storage whose threads read.
            key: the value's key.
            read: takes the value returned before, if cached, and returns the present value.
        """
        waited_for = asyncio.wrap_future(self._future(storage, (storage, key), read))
        return await asyncio.wait_for(asyncio.shield(waited_for), self._patience_s)

    async def once(self, storage: str, call: Callable[[], R], then: Callable[[R], None] = lambda _done: None) -> R:
        """Call a function for one request, on the storage's threads; afterwards the storage's values are read anew.

        Args:
            storage: the storage whose threads call.
            call: the function; it goes on if it does not end in time.
            then: called afterwards; changes nothing that is cached.
        """

        def run() -> R:
            try:
                done = call()
            finally:
                with self._lock:
                    for read in (read for key, read in self._reads.items() if key[0] == storage):
                        read.ended_at = float("-inf")
            then(done)
            return done

        with self._lock:
            future = self._pool(storage).submit(run)
        return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(future)), self._patience_s)

    def _future(self, storage: str, key: tuple[str, Hashable], read: Callable[[R | None], R]) -> Future[R]:
        with self._lock:
            known = self._reads.setdefault(key, _Read())
            self._reads.move_to_end(key)
            if known.future is None or (not known.under_way and self._now() - known.ended_at >= self._fresh_s):
                before = known.value

                def run() -> R:
                    try:
                        return read(before)
                    finally:
                        known.ended_at = self._now()

                known.future = self._pool(storage).submit(run)
            if len(self._reads) > KEPT:
                self._reads.popitem(last=False)
            return known.future

    def _pool(self, storage: str) -> ThreadPoolExecutor:
        if storage not in self._pools:
            self._pools[storage] = ThreadPoolExecutor(THREADS, "cairn-page")
        self._pools.move_to_end(storage)
        if len(self._pools) > STORAGES:
            self._pools.popitem(last=False)[1].shutdown(wait=False)
        return self._pools[storage]
