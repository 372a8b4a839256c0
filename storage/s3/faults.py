"""The meaning of an S3 store's faults (semantics W3).

A 403 is never taken for absence, a 409 means that nothing landed, and only the store's own 404 means that something is
gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidKeyError,
    StorageError,
    UnavailableError,
    UnsupportedStorageError,
)
from ..network.faults import Fault, NoAnswer
from ..network.faults import Refused as RefusedByStore

_TRANSIENT = frozenset({
    "BadDigest", "IncompleteBody", "InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling",
    "ThrottlingException", "TooManyRequestsException",
})  # fmt: skip
NO_CREDENTIALS = "NoCredentials"
"""Stands for the store's code if no request was sent, as there are no credentials to sign it with."""

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
_HEADER = ". A bucket that demands a header refuses in this way too: the connection's extra %s sends it"
_WRONG_REGION = frozenset({
    "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect",
})  # fmt: skip
_KEY_CLASH = frozenset({"ExistingObjectIsDirectory", "ObjectParentIsFile"})
_BAD_KEY = frozenset({"InvalidBucketName", "InvalidObjectName", "InvalidURI", "KeyTooLongError"})


@dataclass
class Refused(RefusedByStore):
    """The store refused the request, with a code of S3."""

    @property
    def transient(self) -> bool:
        return super().transient or self.code in _TRANSIENT

    @property
    def forbidden(self) -> bool:
        """True if the store refused the credentials."""
        return self.status in (401, 403) or self.code in _CREDENTIALS

    @property
    def lacks_right(self) -> bool:
        """True if the store knows the caller, and does not allow the request."""
        return self.status == 403 and self.code in _NO_RIGHT

    @property
    def conflict(self) -> bool:
        return super().conflict and self.code not in _KEY_CLASH

    @property
    def bucket_gone(self) -> bool:
        return self.code == "NoSuchBucket"


def explain(fault: Fault, *, store: str, doing: str, key: str) -> StorageError:
    """Convert a fault to an error of `errors.py`."""
    facts = {"store": store, "doing": doing, "key": key}
    if isinstance(fault, NoAnswer):
        return fault.explained(**facts)
    assert isinstance(fault, Refused)
    said = f"{fault.code}: {fault.text}" if fault.text else fault.code
    if fault.code == "RequestTimeTooSkewed":
        return ForbiddenError(
            f"the store refuses requests because its clock and this machine's differ too much ({said}). "
            f"Set this machine's clock (NTP), then try again; nothing is known about what exists there",
            code="clock_skew",
            **facts,
        )
    if fault.code == NO_CREDENTIALS:
        return ForbiddenError(
            f"no credentials were found, so nothing was asked of the store ({fault.text}). Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, choose a profile by AWS_PROFILE, or name an Airflow connection (aws_conn_id)",
            code="no_credentials",
            **facts,
        )
    if fault.forbidden:
        needs = f": this takes {right_for(doing)}" if fault.lacks_right and doing in _RIGHTS else ""
        extras = ("request_payer", *(("server_side_encryption",) if doing in _WRITES else ()), "expected_bucket_owner")
        needs += _HEADER % " or ".join(extras) if fault.lacks_right else ""
        return ForbiddenError(
            f"the store refuses these credentials ({said}). Check the keys and their rights{needs}; "
            f"nothing is known about what exists there",
            code="missing_right" if fault.lacks_right else "",
            **facts,
        )
    if fault.bucket_gone:
        return GoneError(
            "the bucket does not exist. Create it, or correct the storage URI", code="bucket_gone", **facts
        )
    if fault.status == 404:
        return GoneError("there is no such object", **facts)
    return _explain_the_rest(fault, said, facts)


def right_for(doing: str) -> str:
    """Name the right that a request needs."""
    return _RIGHTS[doing] + (_LIST_TOO if doing in ("get_object", "head_object") else "")


def _explain_the_rest(fault: Refused, said: str, facts: dict[str, str]) -> StorageError:
    if fault.transient:
        return UnavailableError(f"the store fails or is throttled ({said}). Try again later", **facts)
    if fault.code in _KEY_CLASH:
        return InvalidKeyError(
            f"this store cannot hold an object and a folder of one name ({said}). Choose another key", **facts
        )
    if fault.conflict or fault.status == 412:
        return ConflictError(f"another write of this key was under way ({said}), nothing landed. Try again", **facts)
    if fault.code in _BAD_KEY:
        return InvalidKeyError(f"the store refuses this name ({said}). Choose another", **facts)
    if fault.code == "EntityTooLarge":
        return StorageError(
            f"the object is larger than the store takes at once ({said})", code="invalid_request", **facts
        )
    if fault.code in _WRONG_REGION or fault.status in (301, 307):
        return UnsupportedStorageError(
            f"the bucket is in another region or behind another endpoint ({said}). Set the region in the connection, "
            "or correct its endpoint",
            **facts,
        )
    return UnsupportedStorageError(
        f"the store refuses a request that Cairn needs ({said}, status {fault.status}). Use a store that supports it",
        **facts,
    )
