"""The common part of stores behind plain HTTP: each store adds only its own requests.

Answers come by the package requests, which only this module imports here. Each request is sent once, and its body is
read in pieces. Processes must not share connections: a store's `session` forgets them in a forked process.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from functools import cache, partial
from io import BytesIO
from typing import IO, Any, ClassVar, TypeVar
from xml.etree import ElementTree

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.exceptions import NewConnectionError

from ..checksums import SHA256, algorithm_of
from ..errors import ForbiddenError, GoneError, StorageError
from ..names import check_prefix, order
from ..port import DeleteFailure, DeleteFailures, ObjectStat, ObjectStore, PendingUpload, WriteResult
from .bucket_store import BucketStore, Content, OptionsT, in_order, page_repeated
from .conditional_write import ConditionalWrite, StoredObject
from .faults import Fault, NoAnswer, Refused, Words, explain
from .options import Access

_CONNECTIONS = 32
_CHUNK = 1 << 20
_NEVER_SENT = (requests.ConnectTimeout, requests.exceptions.SSLError, requests.exceptions.ProxyError)
_S = TypeVar("_S", bound=requests.Session)


class Answer:
    """An answer of a service."""

    def __init__(self, answer: requests.Response) -> None:
        self._answer = answer
        self.status = answer.status_code
        self.headers: Mapping[str, str] = answer.headers

    def __enter__(self) -> Iterator[bytes]:
        return self._chunks()

    def __exit__(self, *error: object) -> None:
        self._answer.close()

    def _chunks(self) -> Iterator[bytes]:
        with _faults():
            yield from self._answer.iter_content(_CHUNK)

    def body(self) -> bytes:
        """Read all of the body, and give the connection back."""
        with self as chunks:
            return b"".join(chunks)

    def document(self) -> dict[str, Any]:
        """Read the body as JSON; empty if there is none.

        Raises:
            NoAnswer: the body is not JSON.
        """
        body = self.body()
        if not body:
            return {}
        try:
            return dict(json.loads(body))
        except (ValueError, TypeError) as error:
            raise NoAnswer(f"its answer is not JSON: {body[:80]!r}", sent=True) from error

    def xml(self) -> ElementTree.Element:
        """Read the body as XML.

        Raises:
            NoAnswer: the body is not XML.
        """
        body = self.body()
        try:
            return ElementTree.fromstring(body)  # noqa: S314 - the service's own answer, by TLS
        except ElementTree.ParseError as error:
            raise NoAnswer(f"its answer is not XML: {body[:80]!r}", sent=True) from error


def sending_once(session: _S) -> _S:
    """Have a session send each request once, over as many connections as threads may use at once.

    Each request has its own credentials, and no password of `~/.netrc`; `request` adds the proxies of the environment.
    """
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0))
    return session


def request(
    session: requests.Session,
    method: str,
    url: str,
    options: Access,
    headers: Mapping[str, str],
    data: Any,
    params: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request once, and return its answer, whatever its status.

    Raises:
        NoAnswer: none came.
    """
    with _faults():
        return Answer(
            session.request(
                method,
                url,
                params=params,
                data=data,
                headers={"Accept-Encoding": "identity", "User-Agent": "airflow-cairn", **headers},
                timeout=(options.connect_timeout_s, options.read_timeout_s),
                stream=True,
                allow_redirects=False,
                **_of_environment("/".join(url.split("/", 3)[:3])),
            )
        )


@cache
def _of_environment(origin: str) -> dict[str, Any]:
    """Return the environment's settings: requests would read them for each request, in a quarter of its time."""
    verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
    return {"proxies": get_environ_proxies(origin), "verify": verify}


@contextmanager
def _faults() -> Iterator[None]:
    try:
        yield
    except requests.RequestException as error:
        cause = getattr(error.args[0], "reason", None) if error.args else None
        never = isinstance(error, _NEVER_SENT) or isinstance(cause, NewConnectionError)
        raise NoAnswer(f"{type(error).__name__}: {error}", sent=not never) from error


_AT_ONCE = 16
"""Deletes at a time: these services delete one object a request."""
_OPTIONAL = frozenset({"delete", "rules"})
"""Requests whose right may stay missing: that is reported, and Cairn does not wait for it."""

_T = TypeVar("_T")


def content_of(answer: Answer, etag: str) -> Content:
    """Return the content that an answer is about to send."""
    headers = answer.headers
    return Content(etag, int(headers.get("Content-Length", 0)), "Content-Range" in headers, answer)


class HttpStore(BucketStore[OptionsT]):
    """A prefix in a bucket behind plain HTTP. A subclass makes the requests."""

    words: ClassVar[Words]

    @abstractmethod
    def _send_object(self, key: str, source: IO[bytes], write_id: str, expected_etag: str | None) -> str:
        """Send one conditional write of a file, from its first byte; return the new tag."""

    @abstractmethod
    def _look_at(self, key: str) -> StoredObject:
        """Return an object's tag and write id."""

    @abstractmethod
    def _send_delete(self, key: str) -> object:
        """Send one request to delete an object."""

    @abstractmethod
    def _send_list(self) -> Answer:
        """Send one request that lists the root."""

    def _put(self, key: str, data: bytes | IO[bytes], expected_etag: str | None) -> WriteResult:
        source = BytesIO(data) if isinstance(data, bytes) else data
        write_id = self._token()
        return ConditionalWrite(
            write_id,
            expected_etag,
            send=lambda: self._send_object(key, source, write_id, expected_etag),
            look=lambda: self._look(key),
            explain=lambda fault: self._explain(fault, "create", key),
        ).run(self._patience)

    def _look(self, key: str) -> StoredObject | None:
        try:
            return self._look_at(key)
        except GoneError as error:
            if error.code == "bucket_gone":
                raise
            return None

    def keeps_write_ids(self, key: str) -> bool:
        """Tell whether an object's write id can be read back: a gateway may drop the metadata in which it is."""
        return self._look_at(key).write_id is not None

    def copy(self, source: str, target: str) -> WriteResult:
        """Copy an object within the store, only if `target` does not exist, through this process.

        The services' own copies are not used: an emulator of Google's ignores the condition (measured with
        fake-gcs-server 1.56), and a copy on Azure may end after its answer, so that its outcome is not known.
        """
        self._full(target)
        return self._copy_through_here(source, target)

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
        """Copy an object of the same service on the server, if its content's SHA-256 is known.

        The service computes no SHA-256. But the tag names one content, and the service compares the copy with it.

        Raises:
            StorageError: the object is gone, or the store refuses or does not answer.
        """
        if type(source) is not type(self) or content is None or [algorithm_of(content)] != list(algorithms):
            return None
        try:
            return (content,) if self._copy_on_server(source, source_key, key, etag) else None
        except Refused as fault:
            if fault.status == 412:  # another tag
                return None
            raise source._explain(fault, "get", source_key) from fault
        except NoAnswer as fault:
            raise self._explain(fault, "create", key) from fault

    @abstractmethod
    def _copy_on_server(self, source: Any, source_key: str, key: str, etag: str) -> bool:
        """Copy an object of another store of this class; False if the copy is not surely the source's content.

        Raises:
            Fault: the source is gone or changed, or the service fails.
        """

    def delete(self, keys: Iterable[str]) -> DeleteFailures:
        """Check all names, then delete objects, one request each, several at once; then folders, the deepest first."""
        wanted = dict.fromkeys(keys)
        for key in wanted:
            self._full(key, marker=True)
        folders = sorted((key for key in wanted if key.endswith("/")), key=lambda key: key.count("/"), reverse=True)
        with ThreadPoolExecutor(_AT_ONCE, "cairn-delete") as pool:
            found = [*pool.map(self._delete, (key for key in wanted if not key.endswith("/")))]
        found += map(self._delete, folders)
        return [failure for failure in found if failure is not None]

    def _delete(self, key: str) -> DeleteFailure | None:
        try:
            self._patiently("delete", key, lambda: self._send_delete(key))
        except GoneError as error:
            if error.code == "bucket_gone":
                raise
        except ForbiddenError as error:
            if error.code != "missing_right":
                raise  # the store does not know the caller, so no single right is missing
            return DeleteFailure(key, error.message)
        return None

    def uploads(self, prefix: str) -> Iterator[PendingUpload]:
        """Yield nothing: no listing shows an unfinished upload, and the service drops it after a week."""
        check_prefix(prefix)
        return iter(())

    def abort_upload(self, upload: PendingUpload) -> None:
        self._full(upload.key, marker=True)

    def now_ms(self) -> int | None:
        """Return the server's time from an answer; one request."""
        answer = self._patiently("list", "", self._send_list)
        with answer:
            said = answer.headers.get("Date")
        return int(parsedate_to_datetime(said).timestamp() * 1000) if said else None

    def list(self, prefix: str, *, start_after: str | None = None) -> Iterator[ObjectStat]:
        """Yield the objects under `prefix` in key order, one request per page."""
        check_prefix(prefix)
        if start_after is not None:
            self._full(start_after, marker=True)
        after = order(start_after) if start_after else b""
        return in_order(self._listed(prefix, start_after), self.describe(), after)

    @abstractmethod
    def _listed(self, prefix: str, start_after: str | None) -> Iterator[ObjectStat]:
        """Yield the objects under `prefix`, from `start_after` or from the first one."""

    def _pages(self, prefix: str, read: Callable[[str | None], tuple[_T, str | None]]) -> Iterator[_T]:
        """Yield the pages of a listing; `read` requests the page of a token, and returns the next token too."""
        token: str | None = None
        while True:
            before = token
            page, token = self._patiently("list", prefix, partial(read, before))
            yield page
            if not token:
                return
            if token == before:
                raise page_repeated(self.describe(), prefix)

    def _patiently(self, doing: str, about: str, request: Callable[[], _T]) -> _T:
        patience = self._patience.at_once if doing in _OPTIONAL else self._patience
        return patience.ask_until(request, lambda fault: self._explain(fault, doing, about))

    def _explain(self, fault: Fault, doing: str, about: str) -> StorageError:
        return explain(fault, self.words, store=self.describe(), doing=doing, key=about)
