"""Options of an S3 store. Imports no boto3: operators and parsers build these without it."""

from __future__ import annotations

import re
from dataclasses import field

from ..errors import StorageError
from ..network.options import check_access
from ..records import dataclass

ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
"""S3's ways to encrypt written objects; the last two take a KMS key."""
_ACCOUNT = re.compile(r"[0-9]{12}")


@dataclass(frozen=True, slots=True)
class S3Options:
    """Place of an S3 store and access to it; boto3's own settings apply for each option that is None.

    Its repr shows no credential.
    """

    endpoint_url: str | None = None
    """`http(s)://host:port` of a store other than AWS."""
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    path_style: bool | None = None
    """Bucket in the path instead of the host name; None: only if `endpoint_url` is given."""
    verify: bool | str = True
    """Check TLS certificates; a path names a bundle of certificate authorities."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    max_attempts: int = 6
    """Most sends of one call, the first one included."""
    request_payer: str | None = None
    """`requester`: agrees to pay for the requests, as a bucket with requester pays demands."""
    server_side_encryption: str | None = None
    """One of `ENCRYPTIONS`, sent with each request that writes an object; None: the bucket's default."""
    sse_kms_key_id: str | None = None
    """KMS key for encryption; None: the account's."""
    expected_bucket_owner: str | None = None
    """Account (12 digits) that must own the bucket; otherwise S3 refuses each request."""

    def __post_init__(self) -> None:
        """Refuse options that cannot work.

        Raises:
            StorageError: half a key pair, credentials in the endpoint, a limit that is not positive, or a header
                value that S3 does not know.
        """
        if (self.access_key is None) != (self.secret_key is None):
            raise StorageError(
                "an S3 access key and its secret key belong together. Give both, or neither", code="invalid_request"
            )
        if self.session_token is not None and self.access_key is None:
            raise StorageError(
                "an S3 session token needs the access key and secret key that it belongs to", code="invalid_request"
            )
        check_access(self, "S3")
        self._check_headers()

    def _check_headers(self) -> None:
        owner, encryption = self.expected_bucket_owner, self.server_side_encryption
        for name, allowed, right in (
            ("request_payer", "requester", self.request_payer in (None, "requester")),
            ("server_side_encryption", ", ".join(ENCRYPTIONS), encryption is None or encryption in ENCRYPTIONS),
            ("expected_bucket_owner", "an account of 12 digits", owner is None or bool(_ACCOUNT.fullmatch(owner))),
        ):
            if not right:
                raise StorageError(
                    "this S3 option has a value that S3 does not know. Correct it, or leave it out",
                    code="invalid_request",
                    option=name,
                    value=getattr(self, name),
                    allowed=allowed,
                )
        if self.sse_kms_key_id is not None and (encryption is None or not encryption.startswith("aws:kms")):
            raise StorageError(
                "a key of KMS encrypts only where KMS is asked to. Set server_side_encryption to aws:kms, or leave "
                "sse_kms_key_id out",
                code="invalid_request",
                option="server_side_encryption",
                value=encryption,
            )

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the bucket demands, by the parameter's name in S3's API; only those that are set."""
        found = {
            "RequestPayer": self.request_payer,
            "ServerSideEncryption": self.server_side_encryption,
            "SSEKMSKeyId": self.sse_kms_key_id,
            "ExpectedBucketOwner": self.expected_bucket_owner,
            "ExpectedSourceBucketOwner": self.expected_bucket_owner,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def uses_path_style(self) -> bool:
        """True if the bucket goes into the path."""
        return self.endpoint_url is not None if self.path_style is None else self.path_style
