"""The base of the stores in buckets: a root in a bucket, retries, waits, and conditional writes."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import IO, Any, ClassVar, Generic, NamedTuple, TypeVar

from ..clock import Clock, Fraction, Sleeper, TokenSource, new_token, system_fraction, system_sleep, system_time
from ..errors import UnsupportedStorageError
from ..names import StorageUri, check_key, full_key, order, parse_storage_uri, shorten
from ..port import Blob, ObjectStat, ObjectStore, WriteResult, check_range, check_size, first, gather
from .faults import Refused
from .options import Access
from .waiting import RetryPolicy, Waiting

OptionsT = TypeVar("OptionsT", bound=Access)
_S = TypeVar("_S", bound="BucketStore[Any]")
_T = TypeVar("_T")
_IN_MEMORY = 8 << 20


class Content(NamedTuple):
    """An object's content, which is still to be read."""

    etag: str
    size_bytes: int
    """0 if the store announces none."""
    is_range: bool
    chunks: AbstractContextManager[Iterator[bytes]]


class BucketStore(ObjectStore, Generic[OptionsT]):
    """A prefix in a bucket; without `waiting`, no request waits for a store that refuses for a moment.

    Raises:
        UnsupportedStorageError: the URI is of another store.
    """

    form: ClassVar[str]
    """Form of a URI of this store."""
    kind: ClassVar[type[Any]]
    longest_page: ClassVar[int] = 1000

    def __init__(
        self,
        uri: str | StorageUri,
        options: OptionsT | None = None,
        *,
        token: TokenSource = new_token,
        sleep: Sleeper = system_sleep,
        fraction: Fraction = system_fraction,
        page_size: int | None = None,
        waiting: Waiting | None = None,
        clock: Clock = system_time,
    ) -> None:
        where = parse_storage_uri(uri)
        if where.scheme != self.form.partition(":")[0]:
            raise UnsupportedStorageError(f"this store has other URIs. Use {self.form}", uri=str(where))
        self._uri = str(where)
        self._bucket = where.bucket
        self._prefix = f"{where.path}/" if where.path else ""
        self._options: OptionsT = options or self.kind()
        self._token = token
        self._page_size = page_size or self.longest_page
        self._waiting = waiting
        self._made: Any = partial(
            type(self), token=token, sleep=sleep, fraction=fraction, page_size=page_size, clock=clock
        )
        self._patience = RetryPolicy(
            self._options.max_attempts, sleep, fraction, waiting=waiting, renew=self._renew, clock=clock
        )
        self._connect()

    def _connect(self) -> None:
        """Make what requests need besides the options."""

    @property
    def uri(self) -> str:
        return self._uri

    def below(self: _S, folder: str) -> _S:
        found: _S = self._made(f"{self._uri}/{check_key(folder)}", self._options, waiting=self._waiting)
        return found

    def at_once(self: _S) -> _S:
        hasty: _S = self if self._waiting is None else self._made(self._uri, self._options)
        return hasty

    @abstractmethod
    def _endpoint(self) -> str:
        """Return the URL of the service, without credentials."""

    def describe(self) -> str:
        return f"{self._uri} at {self._endpoint()}"

    def _spark_root(self) -> str:
        return self._uri

    def spark_url(self, key: str) -> str:
        root = self._spark_root()
        return f"{root}/{check_key(key, marker=True)}" if key else root

    def _renew(self) -> None:
        """Read the connection and the credentials anew: what was made of them keeps them."""
        before = self._options
        renewed = self._waiting.renewed() if self._waiting is not None and self._waiting.renewed else None
        if isinstance(renewed, self.kind):
            self._options = renewed
        self._reconnect(before)

    @abstractmethod
    def _reconnect(self, before: OptionsT) -> None:
        """Drop what was made of the options before, so that the next request uses those of now."""

    def get(self, key: str, *, max_bytes: int | None = None) -> Blob:
        blob = self._get(key, max_bytes)
        assert blob is not None  # no condition was sent
        return blob

    def get_if_changed(self, key: str, etag: str, *, max_bytes: int | None = None) -> Blob | None:
        """Read an object unless its tag is unchanged; a store that ignores the condition sends an unneeded body."""
        return self._get(key, max_bytes, unless=etag)

    def _get(self, key: str, max_bytes: int | None, unless: str | None = None) -> Blob | None:
        def read() -> Blob | None:
            try:
                found = self._open(key, unless=unless)
            except Refused as fault:
                if unless is not None and fault.status == 304:
                    return None
                raise
            with found.chunks as chunks:
                if found.etag == unless:
                    return None
                # A chunked body has no length beforehand; `gather` stops when it grows too long.
                check_size(self.describe(), key, found.size_bytes, max_bytes)
                return Blob(gather(self.describe(), key, chunks, max_bytes), found.etag)

        return self._patiently("get", key, read)

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read a range, as the port defines; `UnsupportedStorageError` if the store ignores ranges."""
        check_range(key, start, length)
        if length == 0:
            self.stat(key)  # raises if the object does not exist
            return b""

        def read() -> bytes:
            try:
                found = self._open(key, span=f"bytes={start}-{start + length - 1}")
            except Refused as fault:
                if fault.status == 416:  # the object ends before `start`
                    return b""
                raise
            with found.chunks as chunks:
                if start and not found.is_range:
                    raise UnsupportedStorageError(
                        "the store ignores ranges: it sent the object from its beginning. Use another store or gateway",
                        store=self.describe(),
                        key=key,
                        start=start,
                    )
                return first(chunks, length)

        return self._patiently("get", key, read)

    @abstractmethod
    def _open(self, key: str, *, unless: str | None = None, span: str | None = None) -> Content:
        """Send one request for an object's content: unless its tag is `unless`, or for the bytes of `span`."""

    @abstractmethod
    def _patiently(self, doing: str, about: str, request: Callable[[], _T]) -> _T:
        """Call `request` until it is answered; `about` is the key or prefix for messages."""

    def create(self, key: str, data: bytes) -> WriteResult:
        """Write an object only if none exists: one request, two if one exists."""
        return self._put(key, data, None)

    def create_from(self, key: str, source: IO[bytes]) -> WriteResult:
        """Write an object only if none exists, in one request that streams the file (5 GiB at most on S3)."""
        return self._put(key, source, None)

    def replace(self, key: str, data: bytes, *, expected_etag: str) -> WriteResult:
        """Replace an object only if it still has `expected_etag`: one request, two if it has not."""
        return self._put(key, data, expected_etag)

    @abstractmethod
    def _put(self, key: str, data: bytes | IO[bytes], expected_etag: str | None) -> WriteResult:
        """Write an object once; if it has `expected_etag`, or if there is none."""

    def _copy_through_here(self, source: str, target: str) -> WriteResult:
        """Read an object, into a file if it is large, and create another of the same content."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as spool:

            def read() -> None:
                spool.seek(0)
                spool.truncate()
                with self._open(source).chunks as chunks:
                    spool.writelines(chunks)

            self._patiently("get", source, read)
            return self._put(target, spool, None)

    def _full(self, key: str, *, marker: bool = False) -> str:
        return full_key(self._prefix, key, self.describe(), marker=marker)


def in_order(found: Iterator[ObjectStat], store: str, after: bytes = b"") -> Iterator[ObjectStat]:
    """Yield the objects of a listing that come after a key's bytes.

    Raises:
        UnsupportedStorageError: the store lists out of order (semantics W6).
    """
    last = b""
    for each in found:
        if order(each.key) <= last:
            raise UnsupportedStorageError(
                "the store lists its keys out of order, so nothing can be found there reliably. "
                "Choose one that lists in the order of UTF-8 bytes",
                store=store,
                key=shorten(each.key),
            )
        last = order(each.key)
        if last > after:
            yield each


def page_repeated(store: str, prefix: str) -> UnsupportedStorageError:
    """Make the error for a store whose listing does not go on."""
    return UnsupportedStorageError(
        "the store repeats one page of a listing without end. Use another store or gateway", store=store, key=prefix
    )
