"""Requests to one prefix of one bucket: full keys, repetition, and errors that say what was asked.

Knows nothing of boto3: `store.py` gives it a function that sends one request once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..clock import TokenSource
from ..errors import ForbiddenError, GoneError, InvalidKeyError, StorageError
from ..names import MAX_KEY_BYTES, check_key, check_prefix, shorten
from ..port import WriteResult
from .conditional_write import WRITE_ID, ConditionalWrite, StoredObject
from .faults import Fault, explain
from .retries import RetryPolicy

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class S3Requests:
    """The way to a prefix in a bucket.

    Args:
        bucket: the bucket.
        prefix: what comes before every key: empty, or ending in `/`.
        store: what the store is called in messages.
        call: sends one request (method name of the client, parameters) once; raises `Fault`.
        patience: how often a request is repeated.
        token: makes write ids.
        page_size: how many entries a listing or a batched delete holds.
    """

    bucket: str
    prefix: str
    store: str
    call: Callable[[str, dict[str, Any]], Any]
    patience: RetryPolicy
    token: TokenSource
    page_size: int

    def full(self, key: str, *, marker: bool = False) -> str:
        """Give the key as the bucket knows it.

        Raises:
            InvalidKeyError: it is none, or too long together with the root's prefix.
        """
        check_key(key, marker=marker)
        full = f"{self.prefix}{key}"
        if len(full.encode()) > MAX_KEY_BYTES:
            raise InvalidKeyError(
                f"this key cannot be used: with the storage's own prefix it has more than {MAX_KEY_BYTES} bytes",
                store=self.store,
                key=shorten(key),
            )
        return full

    def full_prefix(self, prefix: str) -> str:
        """Give a prefix to list as the bucket knows it.

        Raises:
            InvalidKeyError: it is none.
        """
        return f"{self.prefix}{check_prefix(prefix)}"

    def send(self, operation: str, **params: Any) -> Any:
        """Send one request about the bucket, once.

        Raises:
            Fault: any answer other than yes.
        """
        return self.call(operation, {"Bucket": self.bucket, **params})

    def ask(self, operation: str, about: str, **params: Any) -> Any:
        """Send a request that may be repeated until it is answered; `about` is the key or prefix for messages.

        Raises:
            StorageError: what the last answer amounts to.
        """
        return self.patiently(operation, about, lambda: self.send(operation, **params))

    def patiently(self, operation: str, about: str, send: Callable[[], _T]) -> _T:
        """Run `send` until it is answered.

        Raises:
            StorageError: what the last answer amounts to.
        """
        try:
            return self.patience.ask(send)
        except Fault as fault:
            raise self.explain(fault, operation, about) from fault

    def explain(self, fault: Fault, operation: str, about: str) -> StorageError:
        """Give the error that a fault amounts to."""
        return explain(fault, store=self.store, doing=operation, key=about)

    def look(self, key: str) -> StoredObject | None:
        """Tell what is at a key, None for nothing."""
        try:
            answer = self.facts(key)
        except GoneError:
            return None
        return StoredObject(answer["ETag"], answer.get("Metadata", {}).get(WRITE_ID))

    def facts(self, key: str, **params: str) -> Any:
        """Ask what an object is, without its content.

        A gateway may allow GET and refuse HEAD. Then that is asked: a HEAD is what settles a write whose answer was
        lost, so a role that lacks it would fail there alone.

        Raises:
            GoneError: there is no such object (or no such bucket: this request cannot tell).
            ForbiddenError: neither is allowed.
        """
        full = self.full(key)
        try:
            return self.ask("head_object", key, Key=full, **params)
        except ForbiddenError:
            answer = self.ask("get_object", key, Key=full, **params)
            with answer["Body"]:
                return answer  # and hang up, its content unread

    def write_once(
        self,
        operation: str,
        key: str,
        expected_etag: str | None,
        send: Callable[[dict[str, str]], str],
        *,
        about: str | None = None,
    ) -> WriteResult:
        """Make one conditional write, whose outcome is settled here (see `conditional_write.py`).

        Args:
            operation: for messages.
            key: what is written.
            expected_etag: the tag of the object to replace, None to create one.
            send: sends it once with the metadata given, gives the new tag.
            about: the key that a refusal is about, if not `key`.
        """
        write_id = self.token()
        return ConditionalWrite(
            write_id,
            expected_etag,
            send=lambda: send({WRITE_ID: write_id}),
            look=lambda: self.look(key),
            explain=lambda fault: self.explain(fault, operation, about or key),
        ).run(self.patience)
