"""The meaning of an S3 store's faults (semantics W3).

A 409 means that nothing landed.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ForbiddenError, InvalidKeyError, StorageError, UnsupportedStorageError
from ..network import faults
from ..network.faults import Fault, Words

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
"""The right that each request needs."""
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
    """The store refused the request, with a code of S3."""

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
