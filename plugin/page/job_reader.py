"""Reads the jobs of all storages for all readers: one coordinator a job, and one look for concurrent requests.

A store that hangs delays only requests for it: each storage has its own few threads, and a request waits for a bounded
time. A read that is in progress is never started a second time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Generic, TypeVar

from ...checkpoint import Coordinator, system_runtime
from ...checkpoint.documents.entries import JobOwner, SavepointEntry
from ...checkpoint.documents.head import Head
from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.health.examine import ExaminedJob, examine_job
from ...checkpoint.rows.apart import first_rows
from ...checkpoint.rows.reading import RowsKind
from ...checkpoint.rows.shown import FirstRows
from ...checkpoint.rules.admission import check_owner
from ...checkpoint.savepoints.savepoint_request import OpenFolder
from ...checkpoint.views import checkpoint_list
from ...checkpoint.views.checkpoint_list import JobRow
from ...checkpoint.views.data_sets import CheckpointStates, FilePage, checkpoint_files, states
from ...checkpoint.views.details import CheckpointDetails, details
from ...checkpoint.views.overview import Overview, ServerRow, overview, servers
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ...tasks import metrics
from ...tasks.dag_runs import deployment
from .declared_jobs import DeclaredJob
from .operations import Operation, look
from .responses import NotYetDoneError, RowsNotShownError

V = TypeVar("V")

JOBS = 256
"""Maximum number of jobs that stay open."""

REOPENED_S = 300.0
"""Seconds for which a job stays open: changed credentials of its connection are used after that."""

EXAMINED_S = 60.0
"""Seconds for which an examination's result is shown: it reads every file, and an open page asks every few seconds."""

SUBTASKS = 20
"""Number of subtasks of each stage on a checkpoint's page, the largest."""


@dataclass(frozen=True, slots=True)
class _Seen(Generic[V]):
    value: V
    pulse: Hashable


class _OpenJob:
    def __init__(self, coordinator: Coordinator, opened_at: float) -> None:
        self.coordinator = coordinator
        self.opened_at = opened_at
        self.lock = Lock()
        """A coordinator caches its last read, so only one thread may use it at a time."""


class JobReader:
    """The page's reads and changes of jobs, each on behalf of the DAG that owns the job (semantics W8).

    Airflow checks a user's rights for the DAG in the address, and any DAG may declare any job. So the owner is compared
    whenever a job is read or changed.
    """

    def __init__(
        self,
        open_store: Callable[[str, str | None], ObjectStore],
        shared: SharedReads,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._open_store = open_store
        self._shared = shared
        self._now = now
        self._lock = Lock()
        self._jobs: OrderedDict[tuple[str, str | None, str], _OpenJob] = OrderedDict()

    async def overview(self, job: DeclaredJob) -> Overview:
        return await self._look(job, "overview", overview, checkpoint_list.pulse)

    async def row(self, job: DeclaredJob) -> JobRow:
        """Return a job's row, with one request."""

        def read(_before: JobRow | None) -> JobRow:
            opened = self._open(job.key)
            with opened.lock:
                head = opened.coordinator.head()
                _check_owner(head, job)
                return checkpoint_list.job_row(head)

        return await self._shared.get(job.storage, (job.dag_id, job.key, "row"), read)

    async def checkpoint(self, job: DeclaredJob, checkpoint: int) -> CheckpointDetails:
        look = partial(details, checkpoint=checkpoint, subtasks=SUBTASKS)
        return await self._look(job, checkpoint, look, partial(checkpoint_list.pulse, checkpoint=checkpoint))

    async def states(self, job: DeclaredJob, checkpoint: int | None = None) -> CheckpointStates:
        """Return the states of a retained checkpoint, the newest by default."""
        look = partial(states, checkpoint=checkpoint)
        return await self._look(job, ("states", checkpoint), look, _revision)

    async def rows(self, job: DeclaredJob, checkpoint: int, stage: str, name: str, kind: RowsKind) -> FirstRows:
        look = partial(_rows, checkpoint=checkpoint, stage=stage, name=name, kind=kind)
        return await self._look(job, ("rows", checkpoint, stage, name, kind), look, _revision, apart=True)

    async def files(self, job: DeclaredJob, checkpoint: int, stage: str | None, first: int, limit: int) -> FilePage:
        """Return some files of a retained checkpoint, each checked."""
        look = partial(checkpoint_files, checkpoint=checkpoint, stage=stage, first=first, limit=limit)
        # A file may be damaged without a change of the head: never reuse an earlier look.
        return await self._look(job, ("files", checkpoint, stage, first, limit), look, lambda _: object())

    async def savepoints(self, job: DeclaredJob) -> tuple[SavepointEntry, ...]:
        """Return the savepoints that a job remembers, newest first."""
        return await self._look(job, "savepoints", lambda coordinator: coordinator.head().savepoints[::-1], _revision)

    async def servers(self, job: DeclaredJob) -> list[ServerRow]:
        """Return the Spark servers that the job's stages share, oldest first."""
        # A server renews its lease without a change of the head: never reuse an earlier look.

        def look(coordinator: Coordinator) -> list[ServerRow]:
            return servers(coordinator, system_runtime().now_ms())

        return await self._look(job, "servers", look, lambda _: object(), apart=True)

    async def examined(self, job: DeclaredJob) -> ExaminedJob:
        """Return the problems of a job and its storage, as of the last minute."""

        def look(coordinator: Coordinator) -> ExaminedJob:
            return examine_job(coordinator.files.store, coordinator.job, system_runtime())

        return await self._look(job, "examined", look, lambda _: int(self._now() // EXAMINED_S), apart=True)

    async def operation(self, job: DeclaredJob, operation: str) -> Operation:
        """Return a savepoint that a user requested on a page."""
        return await self._look(job, ("operation", operation), partial(look, operation=operation), _revision)

    def folders(self, job: DeclaredJob) -> OpenFolder:
        """Return the function that opens the folders of a job's savepoints, with the job's connection."""
        return lambda uri: self._open_store(uri, job.aws_conn_id)

    async def do(
        self, job: DeclaredJob, act: Callable[[Coordinator], V], then: Callable[[V], None] = lambda _done: None
    ) -> V:
        """Run a function that reads or changes a job, with the store's present contents.

        Other readers of the job wait until `act` ends. `then` is called afterwards, even if the caller has stopped
        waiting; no other reader waits for it.

        Raises:
            NotYetDoneError: the store, or another service that `act` calls, has not answered in time; `act` goes on.
        """

        def run() -> V:
            opened = self._open(job.key)
            with opened.lock:
                _check_owner(opened.coordinator.head(), job)
                return act(opened.coordinator)

        try:
            return await self._shared.once(job.storage, run, then)
        except TimeoutError as error:
            raise NotYetDoneError from error

    async def _look(
        self,
        job: DeclaredJob,
        what: Hashable,
        look: Callable[[Coordinator], V],
        pulse: Callable[[Coordinator], Hashable],
        *,
        apart: bool = False,
    ) -> V:
        """Look at a job, unless the last look is still valid."""

        def read(before: _Seen[V] | None) -> _Seen[V]:
            opened = self._open(job.key)
            with opened.lock:
                # The pulse first: the next look sees changes between the two.
                beats = pulse(opened.coordinator)
                if before is not None and before.pulse == beats:
                    return before
                _check_owner(opened.coordinator.head(), job)
                if not apart:
                    return _Seen(look(opened.coordinator), beats)
            own = Coordinator(opened.coordinator.files.store, job.job, after_swap=metrics.report)
            return _Seen(look(own), beats)

        return (await self._shared.get(job.storage, (job.dag_id, job.key, what), read)).value

    def _open(self, key: tuple[str, str | None, str]) -> _OpenJob:
        with self._lock:
            known = self._jobs.get(key)
        if known is None or self._now() - known.opened_at >= REOPENED_S:
            storage, aws_conn_id, name = key
            store = self._open_store(storage, aws_conn_id)
            known = _OpenJob(Coordinator(store, name, after_swap=metrics.report), self._now())
        with self._lock:
            self._jobs[key] = known
            self._jobs.move_to_end(key)
            if len(self._jobs) > JOBS:
                self._jobs.popitem(last=False)
        return known


def _check_owner(head: Head, job: DeclaredJob) -> None:
    check_owner(
        head,
        JobOwner(job.dag_id, deployment()),
        "neither sees nor changes it",
        "Open the page of the DAG that owns it",
        job.storage,
    )


def _rows(coordinator: Coordinator, checkpoint: int, stage: str, name: str, kind: RowsKind) -> FirstRows:
    try:
        return coordinator.observe(lambda head: first_rows(coordinator.files, head, checkpoint, stage, name, kind))
    except InvalidConfigError as error:
        raise RowsNotShownError(str(error)) from error


def _revision(coordinator: Coordinator) -> int:
    return coordinator.head().revision


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

    For `fresh_s` seconds a value is returned without another look. A request waits for `patience_s` seconds; None:
    `PATIENCE_S` at the time of the call.
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
        """Return a value no older than `fresh_s`; `read` takes the cached one, or None, and returns the present one."""
        waited_for = asyncio.wrap_future(self._future(storage, (storage, key), read))
        return await asyncio.wait_for(asyncio.shield(waited_for), self._patience_s)

    async def once(self, storage: str, call: Callable[[], R], then: Callable[[R], None] = lambda _done: None) -> R:
        """Call a function for one request, on the storage's threads; afterwards the storage's values are read anew.

        The call goes on if it does not end in time. `then` is called afterwards, and changes nothing that is cached.
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
