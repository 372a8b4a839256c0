"""What the triggers of one process tell each other: a job has news, so look now (semantics T2)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import WeakSet, WeakValueDictionary


class _Job:
    """The triggers that wait for one job."""

    def __init__(self) -> None:
        self.waiting: WeakSet[JobNews] = WeakSet()


_jobs: WeakValueDictionary[tuple[str, str], _Job] = WeakValueDictionary()


class JobNews:
    """One trigger's part in it. All of them live in one event loop, as a triggerer's do.

    Args:
        storage: storage URI.
        job: the job's name.
    """

    def __init__(self, storage: str, job: str) -> None:
        self._job = _jobs.setdefault((storage, job), _Job())
        self._job.waiting.add(self)
        self._woken = asyncio.Event()
        self._revision = 0

    def tell(self, revision: int) -> bool:
        """Wake every other trigger of the job that has not seen this version of the head; True if it is news here.

        Args:
            revision: of the newest version that this trigger has seen.
        """
        if revision <= self._revision:
            return False
        self._revision = revision
        for other in self._job.waiting:
            if other._revision < revision:
                other._woken.set()
        return True

    async def wait(self, seconds: float) -> None:
        """Wait until another trigger has news, at most so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)
        self._woken.clear()
