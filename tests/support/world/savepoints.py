"""Savepoints of a world: where they are made, and what is looked at afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import IO

from airflow_cairn.checkpoint.answers import FilesProgress
from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.checkpoint.savepoints.savepoint_format import read
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.storage import Blob, ObjectStat, ObjectStore, PendingUpload, WriteResult
from airflow_cairn.storage.names import check_key
from airflow_cairn.storage.port import DeleteFailures
from tests.support.world.world import World, totals_of
from tests.support.wrapped_stores import WrappedStore

TARGET = "s3://elsewhere/savepoints"


class Below(WrappedStore):
    """A folder of a store as a store of its own, so that one store can be told to fail for both.

    Args:
        inner: the store.
        uri: what it is called; its objects lie in a folder of that name, where no job is.
    """

    def __init__(self, inner: ObjectStore, uri: str) -> None:
        super().__init__(inner)
        self._uri = uri
        self.prefix = f"{uri.removeprefix('s3://')}/"

    @property
    def uri(self) -> str:
        return self._uri

    def below(self, folder: str) -> ObjectStore:
        found = copy.copy(self)
        found._uri = f"{self._uri}/{check_key(folder)}"
        found.prefix = f"{self.prefix}{folder}/"
        return found

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        return self.inner.get(self.prefix + key, max_bytes=max_bytes)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.read_range(self.prefix + key, start, length)

    def create(self, key: str, data: bytes) -> WriteResult:
        return self.inner.create(self.prefix + key, data)

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        source.seek(0)
        return self.create(key, source.read())

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        after = None if start_after is None else self.prefix + start_after
        for found in self.inner.list(self.prefix + prefix, start_after=after):
            yield ObjectStat(found.key.removeprefix(self.prefix), found.size_bytes, found.etag)

    def stat(self, key: str) -> ObjectStat:
        found = self.inner.stat(self.prefix + key)
        return ObjectStat(key, found.size_bytes, found.etag)

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        return self.inner.delete([self.prefix + key for key in keys])

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        return self.inner.uploads(self.prefix + prefix)


def folder(world: World, entry: SavepointEntry) -> ObjectStore:
    """The folder of a savepoint."""
    return Below(world.store, entry.uri)


def asked(request: str = "by hand", target: str | None = TARGET, **options: object) -> SavepointRequest:
    """A request that copies one file after the other, so that its writes have an order."""
    return SavepointRequest(target, request, **{"parallel": 1, "timeout": timedelta(hours=1), **options})  # type: ignore[arg-type]


def take(
    world: World,
    request: SavepointRequest | None = None,
    store: ObjectStore | None = None,
    *,
    on_progress: Callable[[FilesProgress], None] = lambda _: None,
) -> SavepointEntry:
    """Ask for a savepoint, as a process of its own."""
    store = store or world.store
    return world.coordinator(store).savepoint(request or asked(), lambda uri: Below(store, uri), on_progress)


def assert_whole(world: World, entry: SavepointEntry) -> integrity.Savepoint:
    """See that a savepoint stands, and holds what the head says."""
    assert entry.status is Status.COMPLETED, entry
    found = integrity.load(folder(world, entry))
    assert list(integrity.damages(folder(world, entry), found)) == []
    assert (found.header.job, found.header.savepoint, found.header.request) == ("flights", entry.id, entry.request)
    assert entry.source is not None
    assert (found.source.checkpoint, found.source.epoch) == (entry.source.checkpoint, entry.epoch)
    assert (found.end.files, found.end.size_bytes) == (entry.files, entry.size_bytes)
    return found


def folded(world: World, entry: SavepointEntry) -> dict[str, bytes]:
    """State of each stage in a savepoint, as it was written."""
    store = folder(world, entry)
    return {stage: store.get(path).data for stage, path in totals_of(read(store)).items()}


def standing(world: World, entry: SavepointEntry) -> list[str]:
    """Every key in a savepoint's folder."""
    return [found.key for found in folder(world, entry).list("")]
