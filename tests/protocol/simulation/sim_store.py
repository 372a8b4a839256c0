"""The store as the simulated processes see it: every call is a step, listings come in pages, answers get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import IO, TypeVar

from airflow_cairn.storage import ObjectStat, OutcomeUnknownError, PendingUpload, UnavailableError, WriteResult, Written
from airflow_cairn.storage.port import DeleteFailures
from tests.protocol.simulation.auditor import Auditor
from tests.protocol.simulation.hub import Fault, Hub
from tests.support.memory_store import MemoryStore
from tests.support.wrapped_stores import WrappedStore

T = TypeVar("T")


class SimStore(WrappedStore):
    """Passes on to a store in memory, after a pause, and shows the auditor every change.

    Args:
        inner: where everything lies.
        hub: gives the baton and the faults.
        auditor: looks at each change.
    """

    def __init__(self, inner: MemoryStore, hub: Hub, auditor: Auditor) -> None:
        super().__init__(inner)
        self._memory, self._hub, self._auditor = inner, hub, auditor

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        fault = self._hub.pause(verb, key)
        if fault is Fault.CRASH_AFTER:
            self._hub.crash(verb, key)
        if fault is not None:
            raise UnavailableError("the simulated store does not answer", key=key)
        return call()

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        fault = self._hub.pause(verb, key)
        if fault is None:
            return call()
        if fault in (Fault.CRASH_AFTER, Fault.LOST):
            call()
            if fault is Fault.CRASH_AFTER:
                self._hub.crash(verb, key)
        if fault is Fault.LATE:
            self._hub.late.append((self._hub.step + self._hub.rng.choice((5, 100, 1000)), call))
        if fault is Fault.UNAVAILABLE or verb not in ("create", "replace"):
            raise UnavailableError("the simulated store does not answer", key=key)
        raise OutcomeUnknownError("the simulated store loses this answer", key=key)

    def create(self, key: str, data: bytes) -> WriteResult:
        return self._write("create", key, lambda: self._seen(key, self._memory.create(key, data)))

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        source.seek(0)  # read whole now: it may be closed when a late write lands
        return self.create(key, source.read())

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        return self._write(
            "replace", key, lambda: self._seen(key, self._memory.replace(key, data, expected_etag=expected_etag))
        )

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        wanted = list(keys)
        if not wanted:
            return []
        actor = self._hub.current

        def call() -> DeleteFailures:
            run = actor.run if actor else self._hub.run
            self._auditor.deleting(wanted, run, actor.name if actor else "")
            return self._memory.delete(wanted)

        return self._write("delete", f"{len(wanted)} from {wanted[0]}", call)

    def abort_upload(self, upload: PendingUpload) -> None:
        def call() -> None:
            self._auditor.aborting(upload.key)
            self._memory.abort_upload(upload)

        self._write("abort_upload", upload.key, call)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        size = self._hub.rng.choice((7, 40))
        while True:
            after = start_after
            page = self._read(
                "list",
                f"{prefix} after {after}",
                lambda after=after: list(islice(self._memory.list(prefix, start_after=after), size)),  # type: ignore[misc]
            )
            yield from page
            if len(page) < size:
                return
            start_after = page[-1].key

    def _seen(self, key: str, answer: WriteResult) -> WriteResult:
        if isinstance(answer, Written):
            self._auditor.written(key)
        return answer
