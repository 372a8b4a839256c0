"""Requests to one prefix of one bucket: full keys, retries, and errors that name the request.

Knows nothing of boto3: `store.py` passes a function that sends one request once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..clock import TokenSource
from ..errors import GoneError, StorageError
from ..names import check_prefix, full_key
from ..network.conditional_write import WRITE_ID, ConditionalWrite, StoredObject
from ..network.faults import NO_CREDENTIALS, Fault
from ..network.waiting import RetryPolicy
from ..port import WriteResult
from .faults import Refused, explain

_T = TypeVar("_T")

_NEEDED = frozenset({"get_object", "head_object", "put_object", "copy_object", "list_objects_v2"})
"""Rights that every role needs. A right to delete, or to see uploads and rules, may stay missing: that is reported, and
Cairn does not wait for it."""


@dataclass(frozen=True, slots=True)
class S3Requests:
    """Requests to a prefix of a bucket.

    Args:
        bucket: the bucket.
        prefix: prepended to every key: empty, or ending in `/`.
        store: the store's description for messages.
        call: sends one request (client method, parameters) once; raises `Fault`.
        patience: the retries of a request.
        token: makes write ids.
        page_size: entries per listing page or batched delete.
    """

    bucket: str
    prefix: str
    store: str
    call: Callable[[str, dict[str, Any]], Any]
    patience: RetryPolicy
    token: TokenSource
    page_size: int

    def full(self, key: str, *, marker: bool = False) -> str:
        """Return the bucket's key for a key.

        Raises:
            InvalidKeyError: the key is invalid, or too long with the root's prefix.
        """
        return full_key(self.prefix, key, self.store, marker=marker)

    def full_prefix(self, prefix: str) -> str:
        """Return the bucket's prefix for a prefix to list."""
        return f"{self.prefix}{check_prefix(prefix)}"

    def send(self, operation: str, **params: Any) -> Any:
        """Send one request about the bucket, once."""
        return self.call(operation, {"Bucket": self.bucket, **params})

    def ask(self, operation: str, about: str, **params: Any) -> Any:
        """Send a repeatable request until it is answered; `about` is the key or prefix for messages."""
        return self.patiently(operation, about, lambda: self.send(operation, **params))

    def patiently(self, operation: str, about: str, send: Callable[[], _T]) -> _T:
        """Call `send` until it is answered."""
        patience = self.patience if operation in _NEEDED else self.patience.at_once
        return patience.ask_until(send, lambda fault: self.explain(fault, operation, about))

    def explain(self, fault: Fault, operation: str, about: str) -> StorageError:
        """Convert a fault to an error."""
        return explain(fault, store=self.store, doing=operation, key=about)

    def look(self, key: str) -> StoredObject | None:
        """Return the current object of a key, None if there is none."""
        try:
            answer = self.facts(key)
        except GoneError:
            return None
        return StoredObject(answer["ETag"], answer.get("Metadata", {}).get(WRITE_ID))

    def facts(self, key: str, **params: str) -> Any:
        """Read an object's facts, without its content.

        A refused HEAD has no body with the reason, such as an expired token or another region. And a gateway may allow
        GET and refuse HEAD, which would leave a write with a lost answer unsettled. So GET is sent then.
        """
        full = self.full(key)

        def send() -> Any:
            try:
                return self.send("head_object", Key=full, **params)
            except Refused as fault:
                if fault.status not in (400, 401, 403) or fault.code == NO_CREDENTIALS:
                    raise
            answer = self.send("get_object", Key=full, **params)
            with answer["Body"]:
                return answer  # and close the connection with the content unread

        return self.patiently("head_object", key, send)

    def write_once(
        self,
        operation: str,
        key: str,
        expected_etag: str | None,
        send: Callable[[dict[str, str]], str],
        *,
        about: str | None = None,
    ) -> WriteResult:
        """Make one conditional write, and settle its outcome (see `network/conditional_write.py`).

        Args:
            operation: for messages.
            key: the key to write.
            expected_etag: the tag of the object to replace; None to create one.
            send: sends the write once with the given metadata, and returns the new tag.
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
