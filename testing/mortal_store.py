"""The store of a driver that dies: after a number of writes it does nothing more that the driver asks for.

What Spark writes does not go through the store. The listing that follows it counts as a write, so the driver dies
between the two as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from ..storage.local.store import LocalStore
from ..storage.port import Blob, DeleteFailures, ObjectStat, PendingUpload, WriteResult


class KilledError(BaseException):
    """The driver is dead. No code of an application catches it, as none runs after a SIGKILL."""


class MortalStore(LocalStore):
    """A folder as a store.

    Args:
        root: the folder.
        dies_after: the number of writes; None: the driver lives.
    """

    def __init__(self, root: Path, dies_after: int | None = None) -> None:
        super().__init__(root)
        self._dies_after = dies_after
        self.writes = 0
        self.died = False

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        self._live()
        return super().get(key, max_bytes=max_bytes)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        self._live()
        return super().read_range(key, start, length)

    def stat(self, key: str) -> ObjectStat:
        self._live()
        return super().stat(key)

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        self._live()
        found = list(super().list(prefix, start_after=start_after))
        self.writes += 1
        return iter(found)

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        self._live()
        return super().uploads(prefix)

    def create(self, key: str, data: bytes) -> WriteResult:
        self._live()
        answer = super().create(key, data)
        self.writes += 1
        return answer

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        self._live()
        answer = super().create_from(key, source)
        self.writes += 1
        return answer

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        self._live()
        answer = super().replace(key, data, expected_etag=expected_etag)
        self.writes += 1
        return answer

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        self._live()
        failures = super().delete(keys)
        self.writes += 1
        return failures

    def _live(self) -> None:
        if self._dies_after is not None and self.writes >= self._dies_after:
            self.died = True
        if self.died:
            raise KilledError(f"killed after {self._dies_after} writes")
