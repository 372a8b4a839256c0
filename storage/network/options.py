"""Options of the stores on S3, Google Cloud Storage and Azure, and their checks.

Imports neither boto3, google-auth nor azure-identity: operators and parsers build options without them.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Protocol

from ..errors import StorageError
from ..records import dataclass


class Access(Protocol):
    """Place of a service, and the bounds of a request to it."""

    @property
    def endpoint_url(self) -> str | None:
        """`http(s)://host:port` of another place than the service's own."""

    @property
    def connect_timeout_s(self) -> float:
        """Longest time for a connection, in seconds."""

    @property
    def read_timeout_s(self) -> float:
        """Longest time for the next piece of an answer, in seconds."""

    @property
    def max_attempts(self) -> int:
        """Most sends of one call, the first one included."""


def check_access(options: Access, service: str) -> None:
    """Refuse options that cannot work.

    Raises:
        StorageError: credentials in the endpoint, or a limit that is not positive.
    """
    if options.endpoint_url is not None:
        scheme, _, rest = options.endpoint_url.partition("://")
        if scheme not in ("http", "https") or not rest or "@" in rest or "?" in rest:
            raise StorageError(
                f"the endpoint of {service} is not a URL of the form https://host:port, without user and query",
                code="invalid_request",
                endpoint_url=options.endpoint_url.rpartition("@")[2].partition("?")[0],
            )
    for name in ("connect_timeout_s", "read_timeout_s", "max_attempts"):
        if getattr(options, name) <= 0:
            raise StorageError(
                f"this option of {service} must be above 0",
                code="invalid_request",
                option=name,
                value=getattr(options, name),
            )


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


@dataclass(frozen=True, slots=True)
class GcsOptions:
    """Place of the service and access to it. No credential is among them: google-auth reads those itself."""

    endpoint_url: str | None = None
    """`http(s)://host:port` of an emulator or a private endpoint; None: `STORAGE_EMULATOR_HOST`, else Google's own."""
    key_path: str | None = None
    """A file of credentials on this machine; None: the application default credentials (environment, workload identity,
    the machine's service account)."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    max_attempts: int = 6
    """Most sends of one call, the first one included."""

    def __post_init__(self) -> None:
        """Refuse options that cannot work.

        Raises:
            StorageError: credentials in the endpoint, or a limit that is not positive.
        """
        check_access(self, "Google Cloud Storage")


EMULATED = "devstoreaccount1"
"""The account of each emulator of Azure."""
EMULATED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The public key of that account: it is in Azure's documentation, and no secret."""


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """Place of the service and access to it. No credential is among them: azure-identity finds those itself."""

    endpoint_url: str | None = None
    """`http://host:port` of an emulator, signed to with the public key of its account; None: the account's own host."""
    client_id: str | None = None
    """The user-assigned managed identity, or the application of a workload identity; None: the machine's own."""
    tenant_id: str | None = None
    """The tenant of a workload identity, which needs `client_id` too; None: a managed identity."""
    account: str | None = None
    """The account that these options are for; None: that of any storage."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 30.0
    max_attempts: int = 6
    """Most sends of one call, the first one included."""

    def __post_init__(self) -> None:
        """Refuse options that cannot work.

        Raises:
            StorageError: credentials in the endpoint, a tenant without a client, or a limit that is not positive.
        """
        check_access(self, "Azure")
        if self.tenant_id is not None and self.client_id is None:
            raise StorageError(
                "a workload identity of Azure is a tenant and a client. Give client_id too, or leave tenant_id out",
                code="invalid_request",
                tenant_id=self.tenant_id,
            )
