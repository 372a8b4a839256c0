"""Requests to one prefix of one bucket: full keys, retries, the meaning of S3's faults, listings, batched deletes.

Knows nothing of boto3: `store.py` passes a function that sends one request once. Listings come in key order. A delete
repeats what it can, and names the keys that stay (semantics W1, W7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from ..clock import TokenSource
from ..errors import ForbiddenError, GoneError, InvalidKeyError, StorageError, UnsupportedStorageError
from ..names import check_prefix, full_key
from ..network import faults
from ..network.bucket_store import page_repeated
from ..network.conditional_write import WRITE_ID, ConditionalWrite, StoredObject
from ..network.faults import NO_CREDENTIALS, Fault, Words
from ..network.waiting import RetryPolicy
from ..port import DeleteFailure, DeleteFailures, ObjectStat, PendingUpload, WriteResult
from ..records import dataclass

_TRANSIENT = frozenset({
    "BadDigest", "IncompleteBody", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "TooManyRequestsException",
})  # fmt: skip
_CREDENTIALS = frozenset({"ExpiredToken", "InvalidToken", "InvalidAccessKeyId", "TokenRefreshRequired"})
_NO_RIGHT = frozenset({"AccessDenied", "AllAccessDisabled", "Forbidden", "403"})
"""The code of a refused HEAD: a bare 403."""
_RIGHTS = {
    "get_object": "s3:GetObject",
    "head_object": "s3:GetObject",
    "put_object": "s3:PutObject",
    "copy_object": "s3:GetObject of what is copied and s3:PutObject",
    "list_objects_v2": "s3:ListBucket",
    "delete_objects": "s3:DeleteObject",
    "list_multipart_uploads": "s3:ListBucketMultipartUploads",
    "abort_multipart_upload": "s3:AbortMultipartUpload",
    "get_bucket_lifecycle_configuration": "s3:GetLifecycleConfiguration",
    "get_bucket_versioning": "s3:GetBucketVersioning",
    "get_object_lock_configuration": "s3:GetBucketObjectLockConfiguration",
}
_LIST_TOO = " (and s3:ListBucket on the bucket: without it an object that does not exist is answered by 403 too)"
_WRITES = ("put_object", "copy_object")
_WRONG_REGION = frozenset({
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect",
})  # fmt: skip
_KEY_CLASH = frozenset({"ExistingObjectIsDirectory", "ObjectParentIsFile"})
_BAD_KEY = frozenset({"InvalidBucketName", "InvalidObjectName", "InvalidURI", "KeyTooLongError"})


def _needed(doing: str, right: str) -> str:
    list_too = _LIST_TOO if doing in ("get_object", "head_object") else ""
    extras = ("request_payer", *(("server_side_encryption",) if doing in _WRITES else ()), "expected_bucket_owner")
    return (
        f"{right}{list_too}. A bucket that demands a header refuses in this way too: the connection's extra "
        f"{' or '.join(extras)} sends it"
    )


WORDS = Words(
    rights={doing: _needed(doing, right) for doing, right in _RIGHTS.items()},
    find_credentials=(
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, choose a profile by AWS_PROFILE, or name an Airflow "
        "connection (aws_conn_id)"
    ),
    check="Check the keys and their rights",
)


@dataclass
class Refused(faults.Refused):
    """The store refused the request, with a code of S3 (semantics W3). A 409 means that nothing landed."""

    @property
    def transient(self) -> bool:
        return super().transient or self.code in _TRANSIENT

    @property
    def forbidden(self) -> bool:
        return super().forbidden or self.code in _CREDENTIALS

    @property
    def lacks_right(self) -> bool:
        return super().lacks_right and self.code in _NO_RIGHT

    @property
    def conflict(self) -> bool:
        return super().conflict and self.code not in _KEY_CLASH

    @property
    def bucket_gone(self) -> bool:
        return self.code == "NoSuchBucket"

    @property
    def bad_name(self) -> bool:
        return self.code in _BAD_KEY


def explain(fault: Fault, *, store: str, doing: str, key: str) -> StorageError:
    """Convert a fault to an error of `errors.py`."""
    facts = {"store": store, "doing": doing, "key": key}
    found = _of_s3(fault, facts) if isinstance(fault, Refused) else None
    return found or faults.explain(fault, WORDS, **facts)


def _of_s3(fault: Refused, facts: dict[str, str]) -> StorageError | None:
    """Explain what only S3 answers."""
    if fault.code == "RequestTimeTooSkewed":
        return ForbiddenError(
            f"the store refuses requests because its clock and this machine's differ too much ({fault.said}). "
            f"Set this machine's clock (NTP), then try again; nothing is known about what exists there",
            code="clock_skew",
            **facts,
        )
    if fault.code in _KEY_CLASH:
        return InvalidKeyError(
            f"this store cannot hold an object and a folder of one name ({fault.said}). Choose another key", **facts
        )
    if fault.code == "EntityTooLarge":
        return StorageError(
            f"the object is larger than the store takes at once ({fault.said})", code="invalid_request", **facts
        )
    if fault.code in _WRONG_REGION or fault.status in (301, 307):
        return UnsupportedStorageError(
            f"the bucket is in another region or behind another endpoint ({fault.said}). Set the region in the "
            "connection, or correct its endpoint",
            **facts,
        )
    return None


_T = TypeVar("_T")

_NEEDED = frozenset({"get_object", "head_object", "put_object", "copy_object", "list_objects_v2"})
"""Rights that every role needs. A right to delete, or to see uploads and rules, may stay missing: Cairn reports
that, and does not wait."""


@dataclass(frozen=True, slots=True)
class S3Requests:
    """Requests to a prefix of a bucket.

    `prefix` is empty, or ends in `/`. `call` sends one request (client method, parameters) once, or raises `Fault`.
    """

    bucket: str
    prefix: str
    store: str
    call: Callable[[str, dict[str, Any]], Any]
    patience: RetryPolicy
    token: TokenSource
    page_size: int

    def full(self, key: str, *, marker: bool = False) -> str:
        return full_key(self.prefix, key, self.store, marker=marker)

    def full_prefix(self, prefix: str) -> str:
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
        return explain(fault, store=self.store, doing=operation, key=about)

    def look(self, key: str) -> StoredObject | None:
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

        `send` sends the write once with the given metadata, and returns the new tag. A refusal is about `about`, if not
        about `key`.
        """
        write_id = self.token()
        return ConditionalWrite(
            write_id,
            expected_etag,
            send=lambda: send({WRITE_ID: write_id}),
            look=lambda: self.look(key),
            explain=lambda fault: self.explain(fault, operation, about or key),
        ).run(self.patience)


def objects(wire: S3Requests, prefix: str, start_after: str | None) -> Iterator[ObjectStat]:
    """Yield the objects under `prefix`, after `start_after` if given."""
    params = {"Prefix": wire.full_prefix(prefix)}
    if start_after is not None:
        params["StartAfter"] = wire.full(start_after, marker=True)
    for page in _pages(wire, prefix, params):
        for entry in page.get("Contents", []):
            key = entry["Key"].removeprefix(wire.prefix)
            if not key:
                continue  # the folder marker of the root
            modified = entry.get("LastModified")
            modified_ms = None if modified is None else int(modified.timestamp() * 1000)
            yield ObjectStat(key, entry["Size"], entry.get("ETag"), modified_ms=modified_ms)


def folders(wire: S3Requests, prefix: str) -> Iterator[str]:
    """Yield the bare names of the folders directly under `prefix`."""
    full = wire.full_prefix(prefix)
    for page in _pages(wire, prefix, {"Prefix": full, "Delimiter": "/"}):
        for entry in page.get("CommonPrefixes", []):
            yield entry["Prefix"][len(full) : -1]


def uploads(wire: S3Requests, prefix: str) -> Iterator[PendingUpload]:
    """Yield the pending multipart uploads under `prefix` (semantics W7)."""
    asked: dict[str, Any] = {"Prefix": wire.full_prefix(prefix), "MaxUploads": wire.page_size}
    while True:
        page = wire.patiently("list_multipart_uploads", prefix, partial(_page_of_uploads, wire, dict(asked)))
        for entry in page.get("Uploads", []):
            initiated_ms = int(entry["Initiated"].timestamp() * 1000)
            yield PendingUpload(entry["Key"].removeprefix(wire.prefix), entry["UploadId"], initiated_ms)
        if not page.get("IsTruncated") or not page.get("NextKeyMarker"):
            return
        asked |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page.get("NextUploadIdMarker", "")}


def _page_of_uploads(wire: S3Requests, asked: dict[str, Any]) -> Any:
    try:
        return wire.send("list_multipart_uploads", **asked)
    except Refused as fault:
        if fault.code != "InvalidArgument" or "UploadIdMarker" not in asked:
            raise
        # versitygw 1.8 refuses its own marker. With the key alone, further uploads of that key are left out; a caller
        # that aborts the listed ones finds them the next time.
        return wire.send("list_multipart_uploads", **{k: v for k, v in asked.items() if k != "UploadIdMarker"})


def _pages(wire: S3Requests, prefix: str, params: dict[str, str]) -> Iterator[dict[str, Any]]:
    asked: dict[str, Any] = {"MaxKeys": wire.page_size, **params}
    while True:
        page = wire.ask("list_objects_v2", prefix, **asked)
        yield page
        token = page.get("NextContinuationToken")
        if not page.get("IsTruncated") or not token:
            return
        if token == asked.get("ContinuationToken"):
            raise page_repeated(wire.store, prefix)
        asked["ContinuationToken"] = token


def delete(wire: S3Requests, keys: Sequence[str]) -> DeleteFailures:
    """Delete `keys`, one request per page; return the keys that stay, with the store's reason."""
    full = {wire.full(key, marker=True): key for key in keys}
    names = list(full)
    failures: DeleteFailures = []
    for start in range(0, len(names), wire.page_size):
        stayed = _delete_page(wire, names[start : start + wire.page_size], full)
        failures += [DeleteFailure(full[name], reason) for name, reason in stayed.items()]
    return failures


def _delete_page(wire: S3Requests, names: list[str], full: dict[str, str]) -> dict[str, str]:
    final: dict[str, str] = {}
    left, passing = names, dict[str, str]()
    for _ in wire.patience.attempts():
        request = {"Objects": [{"Key": name} for name in left], "Quiet": True}
        try:
            answer = wire.ask("delete_objects", full[left[0]], Delete=request)
        except ForbiddenError as forbidden:
            cause = forbidden.__cause__
            if not isinstance(cause, Refused) or not cause.lacks_right:
                raise  # the store does not know the caller, so no single right is missing
            return final | dict.fromkeys(left, forbidden.message)
        passing = {}
        for error in answer.get("Errors", []):
            refused = Refused(200, error.get("Code", ""), error.get("Message", ""))
            if refused.code == "NoSuchKey":
                continue  # another cleaner was quicker; versitygw 1.8 reports this, S3 calls the key deleted (measured)
            into = passing if refused.transient else final
            into[error["Key"]] = f"{refused.code}: {refused.text}"
        left = list(passing)
        if not left:
            break
    return final | passing
