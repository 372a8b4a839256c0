"""Google Cloud Storage as an object store, through its JSON API.

An object's generation is its tag: a number that the service gives to each content of a name, never twice. Conditional
writes are uploads with `ifGenerationMatch`, one request each, with the write id as custom metadata. `network/` repeats
requests and settles outcomes. This module never makes, changes or lists buckets.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from functools import partial
from io import BytesIO
from typing import IO, Any, TypeVar
from urllib.parse import quote

from ..checksums import SHA256, algorithm_of
from ..clock import Clock, Fraction, Sleeper, TokenSource, new_token, system_fraction, system_sleep, system_time
from ..errors import ForbiddenError, GoneError, StorageError, UnsupportedStorageError
from ..names import StorageUri, check_key, check_prefix, full_key, order, parse_storage_uri, shorten
from ..network.conditional_write import WRITE_ID, ConditionalWrite, StoredObject
from ..network.faults import Fault, NoAnswer
from ..network.waiting import RetryPolicy, Waiting
from ..port import (
    Blob,
    BucketRules,
    DeleteFailure,
    DeleteFailures,
    LifecycleRule,
    ObjectStat,
    ObjectStore,
    PendingUpload,
    WriteResult,
    check_range,
    check_size,
    first,
    gather,
    range_ignored,
)
from .faults import Refused, explain
from .options import GcsOptions
from .session import Answer, endpoint_of, forget, send

_PAGE = 1000
_AT_ONCE = 16
"""Deletes that are under way together: the service takes one object a request."""
_IN_MEMORY = 8 << 20
_OPTIONAL = frozenset({"delete", "rules"})
"""Requests whose right may stay missing: that is reported, and Cairn does not wait for it."""

_T = TypeVar("_T")
_Texts = Mapping[str, str] | None


class GcsStore(ObjectStore):
    """A prefix in a bucket of Google Cloud Storage.

    Args:
        uri: `gs://bucket/prefix`.
        options: endpoint, credentials and bounds.
        token: makes write ids.
        sleep: waits between attempts.
        fraction: draws the jitter.
        page_size: entries per listing page, 1 to 1000.
        waiting: how long to wait for a store that refuses for a moment; None: not at all.
        clock: measures that wait.

    Raises:
        UnsupportedStorageError: the URI is of another store.
    """

    def __init__(
        self,
        uri: str | StorageUri,
        options: GcsOptions | None = None,
        *,
        token: TokenSource = new_token,
        sleep: Sleeper = system_sleep,
        fraction: Fraction = system_fraction,
        page_size: int = _PAGE,
        waiting: Waiting | None = None,
        clock: Clock = system_time,
    ) -> None:
        where = parse_storage_uri(uri)
        if where.scheme != "gs":
            raise UnsupportedStorageError(
                "this is no URI of Google Cloud Storage. Use gs://bucket/prefix", uri=str(where)
            )
        self._uri = str(where)
        self._bucket = where.bucket
        self._prefix = f"{where.path}/" if where.path else ""
        self._options = options or GcsOptions()
        self._token = token
        self._page_size = page_size
        self._waiting = waiting
        self._at = partial(
            GcsStore, options=options, token=token, sleep=sleep, fraction=fraction, page_size=page_size, clock=clock
        )
        self._patience = RetryPolicy(
            self._options.max_attempts, sleep, fraction, waiting=waiting, renew=self._renew, clock=clock
        )

    @property
    def uri(self) -> str:
        """The root: `gs://bucket/prefix`."""
        return self._uri

    def below(self, folder: str) -> GcsStore:
        return self._at(f"{self._uri}/{check_key(folder)}", waiting=self._waiting)

    def at_once(self) -> GcsStore:
        return self if self._waiting is None else self._at(self._uri)

    def describe(self) -> str:
        """Describe the store and its endpoint."""
        return f"{self._uri} at {endpoint_of(self._options)}"

    def spark_url(self, key: str) -> str:
        """Return the `gs://…` URL of a key or folder; of the root if `key` is empty."""
        return f"{self._uri}/{check_key(key, marker=True)}" if key else self._uri

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        blob = self._get(key, max_bytes)
        assert blob is not None  # no condition was sent
        return blob

    def get_if_changed(self, key: str, etag: str, *, max_bytes: int | None = None) -> Blob | None:
        """Read an object unless its generation is the same; one request."""
        return self._get(key, max_bytes, unless=etag)

    def _get(self, key: str, max_bytes: int | None, unless: str | None = None) -> Blob | None:
        path = self._object(key)
        condition = {} if unless is None else {"ifGenerationNotMatch": unless}

        def read() -> Blob | None:
            try:
                answer = self._send("GET", path, {"alt": "media", **condition})
            except Refused as fault:
                if unless is not None and fault.status == 304:
                    return None
                raise
            with answer as chunks:
                generation = answer.headers.get("X-Goog-Generation")
                if generation is None:
                    raise UnsupportedStorageError(
                        "the store names no generation of an object, by which changes are told. Use another gateway",
                        store=self.describe(),
                        key=key,
                    )
                if generation == unless:
                    return None
                check_size(self.describe(), key, int(answer.headers.get("Content-Length", 0)), max_bytes)
                return Blob(gather(self.describe(), key, chunks, max_bytes), generation)

        return self._patiently("get", key, read)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read a range, as the port defines; `UnsupportedStorageError` if the store ignores ranges."""
        path = self._object(key)
        check_range(key, start, length)
        if length == 0:
            self.stat(key)  # raises if the object does not exist
            return b""

        def read() -> bytes:
            wanted = {"Range": f"bytes={start}-{start + length - 1}"}
            try:
                answer = self._send("GET", path, {"alt": "media"}, wanted)
            except Refused as fault:
                if fault.status == 416:  # the object ends before `start`
                    return b""
                raise
            with answer as chunks:
                if start and "Content-Range" not in answer.headers:
                    raise range_ignored(self.describe(), key, start)
                return first(chunks, length)

        return self._patiently("get", key, read)

    def create(self, key: str, data: bytes) -> WriteResult:
        """Write an object only if none exists: one request, two if one exists."""
        return self._put(key, BytesIO(data), None)

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        """Write an object only if none exists, in one request that streams the file."""
        return self._put(key, source, None)

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        """Replace an object only if it still has `expected_etag`: one request, two if it has not."""
        return self._put(key, BytesIO(data), expected_etag)

    def _put(self, key: str, source: IO[bytes], expected_etag: str | None) -> WriteResult:
        full = self._full(key)
        write_id = self._token()
        condition = {"uploadType": "multipart", "ifGenerationMatch": expected_etag or "0"}
        facts = {"name": full, "metadata": {WRITE_ID: write_id}}

        def put() -> str:
            body = _Framed(facts, source)  # from the first byte: an earlier request may have sent half of the data
            answer = self._send("POST", f"/upload{self._objects}", condition, {"Content-Type": body.kind}, body)
            return str(answer.document()["generation"])

        return ConditionalWrite(
            write_id,
            expected_etag,
            send=put,
            look=lambda: self._look(key),
            explain=lambda fault: self._explain(fault, "create", key),
        ).run(self._patience)

    def keeps_write_ids(self, key: str) -> bool:
        """Tell whether an object's write id can be read back; a gateway may drop the metadata that hold it.

        Raises:
            GoneError: there is no such object.
        """
        return WRITE_ID in self._facts(key).get("metadata", {})

    def copy(self, source: str, target: str) -> WriteResult:
        """Copy an object within the store, only if `target` does not exist, through this process.

        The service's own copy is not used: emulators ignore its condition (fake-gcs-server 1.56: measured).
        """
        path = self._object(source)
        self._full(target)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:

            def read() -> None:
                spool.seek(0)
                spool.truncate()
                with self._send("GET", path, {"alt": "media"}) as chunks:
                    spool.writelines(chunks)

            self._patiently("get", source, read)
            return self._put(target, spool, None)

    def copy_from(
        self,
        source: ObjectStore,
        source_key: str,
        key: str,
        *,
        etag: str,
        algorithms: Sequence[str] = (SHA256,),
        content: str | None = None,
    ) -> tuple[str, ...] | None:
        """Copy an object of another prefix or bucket on the server, if its content's SHA-256 is known.

        The service computes no SHA-256. But the generation names one content, and the copy's CRC32C, which the service
        computes, must be the source's.

        Raises:
            StorageError: the object is gone, or the store refuses or does not answer.
        """
        if not isinstance(source, GcsStore) or source._options != self._options:
            return None
        if content is None or [algorithm_of(content)] != list(algorithms):
            return None
        there, here = source._object(source_key), self._object(key)
        params = {"ifSourceGenerationMatch": etag}

        def rewrite() -> dict[str, Any] | None:
            found: dict[str, Any] = {"rewriteToken": ""}
            while not found.get("done"):
                more = {"rewriteToken": found["rewriteToken"]} if found["rewriteToken"] else {}
                try:
                    answer = self._send(
                        "POST", f"{there}/rewriteTo{here.removeprefix('/storage/v1')}", {**params, **more}
                    )
                except Refused as fault:
                    if fault.status in (404, 412) or fault.transient:
                        raise
                    return None  # reading and writing tells why
                found = answer.document()
            return dict(found["resource"])

        try:
            original = source._facts(source_key)
            if original["generation"] != etag:
                return None
            copied = self._patience.at_once.ask(rewrite)
        except Refused as fault:
            if fault.status == 412:
                return None
            raise source._explain(fault, "get", source_key) from fault
        except NoAnswer as fault:
            raise self._explain(fault, "create", key) from fault
        same = copied is not None and copied.get("crc32c") == original.get("crc32c") is not None
        return (content,) if same else None

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        """Yield the objects under `prefix` in key order, one request per page."""
        asked = {"prefix": f"{self._prefix}{check_prefix(prefix)}"}
        if start_after is not None:
            asked["startOffset"] = self._full(start_after, marker=True)
        return self._listed(prefix, asked, order(start_after) if start_after else b"")

    def _listed(self, prefix: str, asked: dict[str, str], last: bytes) -> Iterator[ObjectStat]:
        begun = not last
        for page in self._pages(prefix, asked):
            for entry in page.get("items", []):
                key = entry["name"].removeprefix(self._prefix)
                if not key or (not begun and order(key) == last):
                    continue  # the folder marker of the root; the key after which to begin
                if order(key) <= last:
                    raise UnsupportedStorageError(
                        "the store lists its keys out of order, so nothing can be found there reliably. "
                        "Choose one that lists in the order of UTF-8 bytes",
                        store=self.describe(),
                        key=shorten(key),
                    )
                begun, last = True, order(key)
                modified_ms = _moment_ms(entry["updated"])
                yield ObjectStat(key, int(entry["size"]), str(entry["generation"]), modified_ms=modified_ms)

    def list_folders(self, prefix: str) -> Iterator[str]:
        full = f"{self._prefix}{check_prefix(prefix)}"
        pages = self._pages(prefix, {"prefix": full, "delimiter": "/"})
        return (each[len(full) : -1] for page in pages for each in page.get("prefixes", []))

    def _pages(self, prefix: str, asked: dict[str, str]) -> Iterator[dict[str, Any]]:
        fields = "nextPageToken,prefixes,items(name,size,generation,updated)"
        asked = {"maxResults": str(self._page_size), "fields": fields, **asked}
        while True:
            page = self._ask("list", prefix, "GET", self._objects, asked)
            yield page
            token = page.get("nextPageToken")
            if not token:
                return
            if token == asked.get("pageToken"):
                raise UnsupportedStorageError(
                    "the store repeats one page of a listing without end. Use another store or gateway",
                    store=self.describe(),
                    key=prefix,
                )
            asked["pageToken"] = token

    def stat(self, key: str) -> ObjectStat:
        """Return size and generation of one object; the service computes no checksum that Cairn knows."""
        found = self._facts(key)
        return ObjectStat(key, int(found["size"]), str(found["generation"]))

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        """Delete objects, one request each, several at once. All names are checked before anything is deleted."""
        paths = {key: self._object(key, marker=True) for key in keys}
        with ThreadPoolExecutor(_AT_ONCE, "cairn-delete") as pool:
            found = pool.map(lambda each: self._delete(*each), paths.items())
            return [failure for failure in found if failure is not None]

    def _delete(self, key: str, path: str) -> DeleteFailure | None:
        try:
            self._ask("delete", key, "DELETE", path)
        except GoneError as error:
            if error.code == "bucket_gone":
                raise
        except ForbiddenError as error:
            if error.code != "missing_right":
                raise  # the store does not know the caller, so no single right is missing
            return DeleteFailure(key, error.message)
        return None

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """Yield nothing: the API lists no resumable uploads, and the service ends them after a week."""
        check_prefix(prefix)
        return iter(())

    def abort_upload(self, upload: PendingUpload) -> None:
        self._full(upload.key, marker=True)

    def now_ms(self) -> int | None:
        """Return the server's time from an answer; one request."""
        params = {"prefix": self._prefix, "maxResults": "1"}
        answer = self._patiently("list", "", lambda: self._send("GET", self._objects, params))
        with answer:
            said = answer.headers.get("Date")
        return int(parsedate_to_datetime(said).timestamp() * 1000) if said else None

    def bucket_rules(self) -> BucketRules:
        """Read the bucket's rules; one request, which needs its own right."""
        try:
            found = self._ask("rules", "", "GET", f"/storage/v1/b/{self._bucket}")
        except StorageError as error:
            return BucketRules(self._bucket, unknown=dict.fromkeys(("lifecycle", "versioning"), error.message))
        kept = int(found.get("retentionPolicy", {}).get("retentionPeriod", 0))
        return BucketRules(
            self._bucket,
            lifecycle=tuple(_read_rules(found.get("lifecycle", {}).get("rule", []), self._prefix)),
            versioned=bool(found.get("versioning", {}).get("enabled")),
            retention=f"retention policy, {kept} seconds" if kept else "",
        )

    @property
    def _objects(self) -> str:
        return f"/storage/v1/b/{self._bucket}/o"

    def _object(self, key: str, *, marker: bool = False) -> str:
        return f"{self._objects}/{quote(self._full(key, marker=marker), safe='')}"

    def _full(self, key: str, *, marker: bool = False) -> str:
        return full_key(self._prefix, key, self.describe(), marker=marker)

    def _facts(self, key: str) -> dict[str, Any]:
        return self._ask("get", key, "GET", self._object(key))

    def _look(self, key: str) -> StoredObject | None:
        try:
            found = self._facts(key)
        except GoneError:
            return None
        return StoredObject(str(found["generation"]), found.get("metadata", {}).get(WRITE_ID))

    def _send(self, method: str, path: str, params: _Texts = None, headers: _Texts = None, data: Any = None) -> Answer:
        return send(self._options, method, path, params or {}, headers or {}, data)

    def _ask(
        self, doing: str, about: str, method: str, path: str, params: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        return self._patiently(doing, about, lambda: self._send(method, path, params).document())

    def _patiently(self, doing: str, about: str, request: Callable[[], _T]) -> _T:
        patience = self._patience.at_once if doing in _OPTIONAL else self._patience
        return patience.ask_until(request, lambda fault: self._explain(fault, doing, about))

    def _explain(self, fault: Fault, doing: str, about: str) -> StorageError:
        return explain(fault, store=self.describe(), doing=doing, key=about)

    def _renew(self) -> None:
        """Read the connection and the credentials anew: a session keeps those that it was made with."""
        renewed = self._waiting.renewed() if self._waiting is not None and self._waiting.renewed else None
        forget(self._options)
        if isinstance(renewed, GcsOptions):
            self._options = renewed


class _Framed:
    """The body of an upload: the object's facts as JSON, then its content, streamed from the file's first byte."""

    def __init__(self, facts: dict[str, Any], source: IO[bytes]) -> None:
        boundary = new_token()
        self.kind = f"multipart/related; boundary={boundary}"
        head = (
            f"--{boundary}\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n{json.dumps(facts)}\r\n"
            f"--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n"
        )
        tail = f"\r\n--{boundary}--\r\n"
        source.seek(0, 2)
        self._size = len(head) + source.tell() + len(tail)
        source.seek(0)
        self._parts: list[IO[bytes]] = [BytesIO(head.encode()), source, BytesIO(tail.encode())]

    def __len__(self) -> int:
        return self._size

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes; fewer than `size` at the end of a part, none at the end of all."""
        while self._parts:
            if piece := self._parts[0].read(size):
                return piece
            self._parts.pop(0)
        return b""


def _moment_ms(text: str) -> int:
    """Read a moment such as `2026-01-31T12:00:00.25Z`; Python 3.10 reads no `Z`, and not any number of digits."""
    second = datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return int(second.timestamp()) * 1000 + int(float(f"0{text[19:].rstrip('Z')}") * 1000)


def _read_rules(found: Sequence[dict[str, Any]], root: str) -> Iterator[LifecycleRule]:
    """Read the rules that delete. One to a colder class does no harm: reads from it need no restore."""
    for number, rule in enumerate(found, start=1):
        condition = rule.get("condition", {})
        if rule.get("action", {}).get("type") != "Delete":
            continue
        old_only = condition.get("isLive") is False or any(
            name in condition for name in ("numNewerVersions", "daysSinceNoncurrentTime", "noncurrentTimeBefore")
        )
        for prefix in condition.get("matchesPrefix") or [""]:
            if not (prefix.startswith(root) or root.startswith(prefix)):
                continue
            age, before = condition.get("age"), condition.get("createdBefore")
            when = f"after {age} days" if age is not None else f"from before {before}" if before else "by its condition"
            yield LifecycleRule(
                f"number {number}", prefix, expires="" if old_only else when, ends_old_versions=old_only
            )
