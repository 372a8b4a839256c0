"""An object store in memory: the port's contract without a disk, for tests that run a protocol hundreds of times."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache

from airflow_cairn.storage import (
    Blob,
    ConditionFailed,
    GoneError,
    ObjectStat,
    ObjectStore,
    PendingUpload,
    WriteResult,
    Written,
)
from airflow_cairn.storage.names import check_key, check_prefix, order
from airflow_cairn.storage.port import DeleteFailures, check_range, check_size

Keys = list[str]


class MemoryStore(ObjectStore):
    """Objects in a dict, under one lock. Tags are hashes of the content, as those of a plain PUT are (semantics W2)."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._objects: dict[str, bytes] = {}
        self._uploads: dict[str, PendingUpload] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()

    @property
    def uri(self) -> str:
        return f"s3://{self._name}"

    def below(self, folder: str) -> ObjectStore:
        raise NotImplementedError("a folder of it is a `Below`")

    def describe(self) -> str:
        return f"{self.uri} (in memory)"

    def spark_url(self, key: str) -> str:
        return f"s3a://{self._name}/{check_key(key, marker=True)}" if key else f"s3a://{self._name}"

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        data = self._present(check_key(key))
        check_size(self.describe(), key, len(data), max_bytes)
        return Blob(data, _tag(data))

    def read_range(self, key: str, start: int, length: int) -> bytes:
        check_range(key, start, length)
        return self._present(check_key(key))[start : start + length]

    def create(self, key: str, data: bytes) -> WriteResult:
        with self._lock:
            standing = self._objects.get(check_key(key))
            if standing is not None:
                return ConditionFailed(_tag(standing))
            self._objects[key] = bytes(data)
            return Written(_tag(data))

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        with self._lock:
            standing = self._objects.get(check_key(key))
            if standing is None:
                return ConditionFailed(None)
            if _tag(standing) != expected_etag:
                return ConditionFailed(_tag(standing))
            self._objects[key] = bytes(data)
            return Written(_tag(data))

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        check_prefix(prefix)
        if start_after is not None:
            check_key(start_after, marker=True)
        return self._listed(prefix, start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        below = (key[len(prefix) :] for key in self.all_keys(prefix))
        return iter(dict.fromkeys(rest.split("/", 1)[0] for rest in below if "/" in rest))

    def stat(self, key: str) -> ObjectStat:
        data = self._present(check_key(key))
        return ObjectStat(key, len(data), _tag(data))

    def copy(self, source: str, target: str) -> WriteResult:
        with self._lock:
            return self.create(target, self._present(check_key(source)))

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        wanted = [check_key(key, marker=True) for key in keys]
        with self._lock:
            for key in wanted:
                self._objects.pop(key, None)
        return []

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        check_prefix(prefix)
        return iter([upload for upload in self._uploads.values() if upload.key.startswith(prefix)])

    def abort_upload(self, upload: PendingUpload) -> None:
        check_key(upload.key, marker=True)
        self._uploads.pop(upload.upload_id, None)

    # Shortcuts of tests behind the port's back.

    def all_keys(self, prefix: str = "") -> Keys:
        """Give the keys below a prefix, in the order of a listing."""
        with self._lock:
            return sorted((key for key in self._objects if key.startswith(prefix)), key=order)

    def put(self, key: str, data: bytes) -> None:
        """Put an object there, whatever stands there: damage, or somebody else's hand."""
        with self._lock:
            self._objects[key] = data

    def fork(self) -> MemoryStore:
        """Give a store of the same content that goes its own way."""
        twin = MemoryStore(self._name)
        with self._lock:
            twin._objects, twin._uploads = dict(self._objects), dict(self._uploads)
        return twin

    def begin_upload(self, key: str) -> PendingUpload:
        """Leave a multipart upload behind, as a killed driver does."""
        upload = PendingUpload(key, f"upload-{next(self._numbers)}", 1_700_000_000_000)
        self._uploads[upload.upload_id] = upload
        return upload

    def _present(self, key: str) -> bytes:
        with self._lock:
            try:
                return self._objects[key]
            except KeyError:
                raise GoneError("there is no such object", store=self.describe(), key=key) from None

    def _listed(self, prefix: str, start_after: str | None) -> Iterator[ObjectStat]:
        for key in self.all_keys(prefix):
            data = self._objects.get(key)
            if data is not None and (start_after is None or order(key) > order(start_after)):
                yield ObjectStat(key, len(data), _tag(data))


@lru_cache(4096)
def _tag(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()
