"""Stores that wrap a store: they count what is asked of it, and fail where they are told to."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import IO, TypeVar

from airflow_cairn.storage import (
    Blob,
    ObjectStat,
    ObjectStore,
    OutcomeUnknownError,
    PendingUpload,
    UnavailableError,
    WriteResult,
)
from airflow_cairn.storage.port import BucketRules, DeleteFailures

T = TypeVar("T")


class Crashed(BaseException):
    """The process died here."""


class WrappedStore(ObjectStore):
    """Passes everything on. Reads go through `_read`, writes through `_write`, so that a subclass can step in."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        return call()

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        return call()

    @property
    def uri(self) -> str:
        return self.inner.uri

    def below(self, folder: str) -> ObjectStore:
        found = copy.copy(self)
        found.inner = self.inner.below(folder)
        return found

    def describe(self) -> str:
        return self.inner.describe()

    def spark_url(self, key: str) -> str:
        return self.inner.spark_url(key)

    def check_root(self) -> None:
        self.inner.check_root()

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        return self._read("get", key, lambda: self.inner.get(key, max_bytes=max_bytes))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        return self._read("read_range", key, lambda: self.inner.read_range(key, start, length))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        return self._read("list", prefix, lambda: self.inner.list(prefix, start_after=start_after))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self._read("list_folders", prefix, lambda: self.inner.list_folders(prefix))

    def stat(self, key: str) -> ObjectStat:
        return self._read("stat", key, lambda: self.inner.stat(key))

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        return self._read("uploads", prefix, lambda: self.inner.uploads(prefix))

    def now_ms(self) -> int | None:
        return self.inner.now_ms()

    def bucket_rules(self) -> BucketRules | None:
        return self.inner.bucket_rules()

    def make_folder(self, prefix: str) -> None:
        self.inner.make_folder(prefix)

    def create(self, key: str, data: bytes) -> WriteResult:
        return self._write("create", key, lambda: self.inner.create(key, data))

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        return self._write("create", key, lambda: self.inner.create_from(key, source))

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        return self._write("replace", key, lambda: self.inner.replace(key, data, expected_etag=expected_etag))

    def copy(self, source: str, target: str) -> WriteResult:
        return self._write("copy", target, lambda: self.inner.copy(source, target))

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        wanted = list(keys)
        return self._write("delete", wanted[0] if wanted else "", lambda: self.inner.delete(wanted))

    def abort_upload(self, upload: PendingUpload) -> None:
        self._write("abort_upload", upload.key, lambda: self.inner.abort_upload(upload))


@dataclass(frozen=True)
class Write:
    """One write as it was asked for."""

    verb: str
    key: str

    def __str__(self) -> str:
        return f"{self.verb} {self.key}"


class RecordingStore(WrappedStore):
    """Notes every write, and counts every request (a listing or a delete of up to a thousand objects is one)."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.writes: list[Write] = []
        self.requests: Counter[str] = Counter()

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self.requests[verb] += 1
        return call()

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if key or verb != "delete":
            self.requests[verb] += 1
            self.writes.append(Write(verb, key))
        return call()

    @property
    def total(self) -> int:
        """All requests together."""
        return sum(self.requests.values())


class Fault(StrEnum):
    """Fault at one write."""

    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    FAILS = "fails"
    """Nothing lands, and the store says that it is unavailable."""
    ANSWER_LOST = "answer lost"
    """The write lands, nobody says so; with `meanwhile`, others act before the writer looks again."""


class FaultyStore(WrappedStore):
    """Has one fault, at the `at`-th write (0-based), and is sound before and after.

    Args:
        inner: the store.
        at: which write.
        fault: what goes wrong there.
        meanwhile: what others do after the write landed and before its writer learns anything.
    """

    def __init__(
        self, inner: ObjectStore, at: int, fault: Fault, meanwhile: Callable[[], object] | None = None
    ) -> None:
        super().__init__(inner)
        self._at = at
        self._fault = fault
        self._meanwhile = meanwhile
        self._count = 0
        self.struck = False

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if verb == "delete" and not key:
            return call()
        here, self._count = self._count == self._at, self._count + 1
        if not here:
            return call()
        self.struck = True
        if self._fault is Fault.CRASH_BEFORE:
            raise Crashed(verb, key)
        if self._fault is Fault.FAILS:
            raise UnavailableError("the store is told to fail here", key=key)
        call()
        if self._meanwhile is not None:
            self._meanwhile()
        if self._fault is Fault.CRASH_AFTER:
            raise Crashed(verb, key)
        error = OutcomeUnknownError if verb in ("create", "replace") else UnavailableError
        raise error("the store is told to lose this answer", key=key)


class SecondFails(WrappedStore):
    """Takes one object, and no other."""

    writes = 0

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self.writes += 1
        if self.writes > 1:
            raise UnavailableError("nothing answers")
        return call()


class DyingStore(WrappedStore):
    """The store of a process that dies at its `at`-th write (0-based): from then on the process asks for nothing more.

    Args:
        inner: the store.
        at: which write.
        after: whether that write lands.
    """

    def __init__(self, inner: ObjectStore, at: int, *, after: bool) -> None:
        super().__init__(inner)
        self._left = at
        self._after = after
        self.dead: Write | None = None
        """The write at which it died; None: it lives."""

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if self.dead:
            raise Crashed(verb, key)
        return call()

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        if self.dead:
            raise Crashed(verb, key)
        if verb == "delete" and not key:
            return call()
        if self._left:
            self._left -= 1
            return call()
        self.dead = Write(verb, key)
        if self._after:
            call()
        raise Crashed(verb, key)

    def make_folder(self, prefix: str) -> None:
        if self.dead:
            raise Crashed("make_folder", prefix)
        super().make_folder(prefix)


class InterleavingStore(WrappedStore):
    """Lets others act right before the `at`-th request of a kind reaches the store.

    Args:
        inner: the store.
        verb: of the request.
        at: which of them, 0-based.
        meanwhile: what others do.
        suffix: count only keys that end so.
    """

    def __init__(
        self, inner: ObjectStore, verb: str, at: int, meanwhile: Callable[[], object], suffix: str = ""
    ) -> None:
        super().__init__(inner)
        self._verb, self._at, self._suffix = verb, at, suffix
        self._meanwhile = meanwhile
        self._count = 0

    def _step(self, verb: str, key: str) -> None:
        if verb != self._verb or not key.endswith(self._suffix):
            return
        here, self._count = self._count == self._at, self._count + 1
        if here:
            self._meanwhile()

    def _read(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self._step(verb, key)
        return call()

    def _write(self, verb: str, key: str, call: Callable[[], T]) -> T:
        self._step(verb, key)
        return call()
