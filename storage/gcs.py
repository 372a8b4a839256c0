"""Google Cloud Storage as an object store, through its JSON API; the only module that imports google-auth.

An object's tag is its generation: a number that the service gives to each new content of a name, and never again. A
conditional write is one request, an upload with `ifGenerationMatch` and with the write id as custom metadata.
`network/` repeats requests, and finds out whether a write has landed whose answer was lost. This module never makes,
changes or lists buckets.

A process has one pool of connections per service and credentials. Each request is sent once: neither package repeats
any. A forked process begins without sessions, because processes must not share connections.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from io import BytesIO
from typing import IO, Any
from urllib.parse import quote

import google.auth
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.service_account import Credentials

from .clock import new_token
from .errors import StorageError, UnsupportedStorageError
from .names import check_prefix
from .network.bucket_store import Content
from .network.conditional_write import WRITE_ID, StoredObject
from .network.faults import NO_CREDENTIALS, NoAnswer, Words
from .network.faults import Refused as RefusedByStore
from .network.http import Answer, HttpStore, content_of, request, sending_once
from .network.options import GcsOptions
from .port import BucketRules, LifecycleRule, ObjectStat
from .records import dataclass

_BUSY = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "backendError"})
WORDS = Words(
    rights={
        "get": "storage.objects.get",
        "create": "storage.objects.create (and storage.objects.delete, as a swap replaces the object)",
        "list": "storage.objects.list",
        "delete": "storage.objects.delete",
        "rules": "storage.buckets.get",
    },
    find_credentials=(
        "Give this machine a service account or workload identity, set GOOGLE_APPLICATION_CREDENTIALS to a file of "
        "credentials, or name an Airflow connection with key_path"
    ),
    check="Check the service account and its rights",
)


@dataclass
class Refused(RefusedByStore):
    """The service refused the request, with a reason of its own as the code (semantics W3).

    A 429 is an answer to a request that was not carried out: the service takes about one write a second to one name.
    """

    @property
    def transient(self) -> bool:
        return super().transient or (self.status == 403 and self.code in _BUSY)

    @property
    def conflict(self) -> bool:
        return super().conflict or self.status == 429

    @property
    def bucket_gone(self) -> bool:
        return self.status == 404 and "bucket" in self.text

    @property
    def bad_name(self) -> bool:
        return self.status == 400 and "name" in self.text.lower()


GOOGLES_OWN = "https://storage.googleapis.com"
_SCOPES = ["https://www.googleapis.com/auth/devstorage.read_write"]

_Facts = tuple[object, ...]
_lock = threading.Lock()
_sessions: dict[_Facts, AuthorizedSession] = {}


def _forget() -> None:
    global _lock, _sessions
    _lock, _sessions = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget)


def endpoint_of(options: GcsOptions) -> str:
    """Return the service's URL, without a trailing slash."""
    found = options.endpoint_url or os.environ.get("STORAGE_EMULATOR_HOST") or GOOGLES_OWN
    return (found if "://" in found else f"http://{found}").rstrip("/")


def send(
    options: GcsOptions,
    method: str,
    path: str,
    params: Mapping[str, str],
    headers: Mapping[str, str],
    data: Any = None,
) -> Answer:
    """Send one request once; `path` begins with a slash, `data` is bytes, or an object with `read` and `len`.

    Raises:
        Fault: any answer but success.
    """
    with _faults():
        answer = request(_session(options), method, f"{endpoint_of(options)}{path}", options, headers, data, params)
    if answer.status in (200, 204, 206):
        return answer
    if answer.status == 401:
        forget(options)  # the next request asks for another token
    raise _refused(answer)


def forget(options: GcsOptions) -> None:
    """Drop the session of these options: the next request reads the credentials anew."""
    with _lock:
        _sessions.pop(_facts(options), None)


def _facts(options: GcsOptions) -> _Facts:
    return (options, endpoint_of(options), os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"))


def _session(options: GcsOptions) -> Any:
    with _lock:
        facts = _facts(options)
        if facts not in _sessions:
            # No second try after a 401: the body would already be half read.
            session = AuthorizedSession(_credentials(options), max_refresh_attempts=0)  # type: ignore[no-untyped-call]
            _sessions[facts] = sending_once(session)
        return _sessions[facts]


def _credentials(options: GcsOptions) -> Any:
    if options.key_path is not None:
        try:
            return Credentials.from_service_account_file(options.key_path, scopes=_SCOPES)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            # The error of a broken file may quote the file.
            why = error.strerror if isinstance(error, OSError) else "it is not a key of a service account"
            raise Refused(401, NO_CREDENTIALS, f"{options.key_path}: {why}") from None
    if endpoint_of(options).startswith("http://"):
        return AnonymousCredentials()  # type: ignore[no-untyped-call]  # an emulator: no secret goes over plain HTTP
    return google.auth.default(scopes=_SCOPES)[0]


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except auth.DefaultCredentialsError as error:
        raise Refused(401, NO_CREDENTIALS, str(error)) from error
    except auth.RefreshError as error:
        if error.retryable:
            raise NoAnswer(f"no token was given: {error}", sent=False) from error
        raise Refused(401, "noToken", str(error)) from error
    except auth.GoogleAuthError as error:
        raise NoAnswer(f"no token was given: {error}", sent=False) from error


def _refused(answer: Answer) -> Refused:
    with answer as chunks:
        body = next(chunks, b"")
    try:
        said = json.loads(body)["error"]
        return Refused(answer.status, str(said["errors"][0]["reason"]), str(said["message"]))
    except (ValueError, TypeError, KeyError, IndexError):
        return Refused(answer.status, str(answer.status), body[:200].decode(errors="replace").strip())


_Texts = Mapping[str, str] | None


class GcsStore(HttpStore[GcsOptions]):
    """A prefix in a bucket of Google Cloud Storage."""

    form = "gs://bucket/prefix"
    kind = GcsOptions
    words = WORDS

    def _endpoint(self) -> str:
        return endpoint_of(self._options)

    def _reconnect(self, before: GcsOptions) -> None:
        forget(before)

    def _open(self, key: str, *, unless: str | None = None, span: str | None = None) -> Content:
        condition = {} if unless is None else {"ifGenerationNotMatch": unless}
        answer = self._send(
            "GET", self._object(key), {"alt": "media", **condition}, {} if span is None else {"Range": span}
        )
        generation = answer.headers.get("X-Goog-Generation")
        if generation is None:
            with answer:  # gives the connection back
                raise UnsupportedStorageError(
                    "the store's answer has no X-Goog-Generation, without which Cairn cannot tell versions of an "
                    "object apart. Use another gateway",
                    store=self.describe(),
                    key=key,
                )
        return content_of(answer, generation)

    def _send_object(self, key: str, source: IO[bytes], write_id: str, expected_etag: str | None) -> str:
        # Made anew for each request, from the first byte: an earlier one may have read half of the data.
        body = _Multipart({"name": self._full(key), "metadata": {WRITE_ID: write_id}}, source)
        condition = {"uploadType": "multipart", "ifGenerationMatch": expected_etag or "0"}
        answer = self._send("POST", f"/upload{self._objects}", condition, {"Content-Type": body.kind}, body)
        return str(answer.document()["generation"])

    def _look_at(self, key: str) -> StoredObject:
        found = self._facts(key)
        return StoredObject(str(found["generation"]), found.get("metadata", {}).get(WRITE_ID))

    def stat(self, key: str) -> ObjectStat:
        """Return size and generation of one object; the service computes no checksum that Cairn knows."""
        found = self._facts(key)
        return ObjectStat(key, int(found["size"]), str(found["generation"]))

    def _facts(self, key: str) -> dict[str, Any]:
        return self._patiently("get", key, lambda: self._send("GET", self._object(key)).document())

    def _send_delete(self, key: str) -> object:
        return self._send("DELETE", self._object(key, marker=True)).body()

    def _send_list(self) -> Answer:
        return self._send("GET", self._objects, {"prefix": self._prefix, "maxResults": "1"})

    def _copy_on_server(self, source: Any, source_key: str, key: str, etag: str) -> bool:
        """Copy by a rewrite, which may take the service several requests; the copy's CRC32C must be the source's."""
        if source._options != self._options:
            return False
        path = f"{source._object(source_key)}/rewriteTo{self._object(key).removeprefix('/storage/v1')}"

        def rewrite() -> dict[str, Any]:
            found: dict[str, Any] = {"rewriteToken": ""}
            while not found.get("done"):
                more = {"rewriteToken": found["rewriteToken"]} if found["rewriteToken"] else {}
                try:
                    answer = self._send("POST", path, {"ifSourceGenerationMatch": etag, **more})
                except Refused as fault:
                    if fault.status in (404, 412) or fault.transient:
                        raise
                    return {}  # the copy goes through this process then, which tells why
                found = answer.document()
            return dict(found["resource"])

        original = source._facts(source_key)
        if original["generation"] != etag:
            return False
        copied = self._patience.at_once.ask(rewrite)
        checksum = original.get("crc32c")
        return bool(checksum is not None and copied.get("crc32c") == checksum)

    def _listed(self, prefix: str, start_after: str | None) -> Iterator[ObjectStat]:
        asked = {} if start_after is None else {"startOffset": self._full(start_after, marker=True)}
        for page in self._listing(prefix, asked):
            for entry in page.get("items", []):
                if key := entry["name"].removeprefix(self._prefix):  # empty: the folder marker of the root
                    modified_ms = _moment_ms(entry["updated"])
                    yield ObjectStat(key, int(entry["size"]), str(entry["generation"]), modified_ms=modified_ms)

    def list_folders(self, prefix: str) -> Iterator[str]:
        full = f"{self._prefix}{check_prefix(prefix)}"
        return (
            each[len(full) : -1]
            for page in self._listing(prefix, {"delimiter": "/"})
            for each in page.get("prefixes", [])
        )

    def _listing(self, prefix: str, asked: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        fields = "nextPageToken,prefixes,items(name,size,generation,updated)"
        asked = {"prefix": f"{self._prefix}{prefix}", "maxResults": str(self._page_size), "fields": fields, **asked}

        def read(token: str | None) -> tuple[dict[str, Any], str | None]:
            page = self._send("GET", self._objects, {**asked, **({"pageToken": token} if token else {})}).document()
            return page, page.get("nextPageToken")

        return self._pages(prefix, read)

    def bucket_rules(self) -> BucketRules:
        """Read the bucket's rules; one request, which needs its own right."""
        try:
            found = self._patiently("rules", "", lambda: self._send("GET", f"/storage/v1/b/{self._bucket}").document())
        except StorageError as error:
            return BucketRules(self._bucket, unknown=dict.fromkeys(("lifecycle", "versioning"), error.message))
        kept = int(found.get("retentionPolicy", {}).get("retentionPeriod", 0))
        soft = int(found.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0))
        return BucketRules(
            self._bucket,
            lifecycle=tuple(_read_rules(found.get("lifecycle", {}).get("rule", []), self._prefix)),
            versioned=bool(found.get("versioning", {}).get("enabled")),
            kept_for=f"soft delete, {soft // 86_400} days" if soft else "",
            retention=f"retention policy, {kept} seconds" if kept else "",
        )

    @property
    def _objects(self) -> str:
        return f"/storage/v1/b/{self._bucket}/o"

    def _object(self, key: str, *, marker: bool = False) -> str:
        return f"{self._objects}/{quote(self._full(key, marker=marker), safe='')}"

    def _send(self, method: str, path: str, params: _Texts = None, headers: _Texts = None, data: Any = None) -> Answer:
        return send(self._options, method, path, params or {}, headers or {}, data)


class _Multipart:
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
    """Read a moment such as `2026-01-31T12:00:00.25Z`; Python 3.10 takes neither the `Z` nor two digits of a second."""
    second = datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return int(second.timestamp()) * 1000 + int(float(f"0{text[19:].rstrip('Z')}") * 1000)


def _read_rules(found: Sequence[dict[str, Any]], root: str) -> Iterator[LifecycleRule]:
    """Read the rules that delete. A rule that moves to a colder class does no harm: reads from it need no restore."""
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
