"""Options of the stores on Google Cloud Storage and Azure, and the checks of every bucket's options.

Imports neither google-auth nor azure-identity: operators and parsers build options without them.
"""

from __future__ import annotations

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

    Args:
        options: the store's.
        service: its name, for the message.

    Raises:
        StorageError: credentials in the endpoint, or a limit that is not positive.
    """
    if options.endpoint_url is not None:
        scheme, _, rest = options.endpoint_url.partition("://")
        if scheme not in ("http", "https") or not rest or "@" in rest or "?" in rest:
            raise StorageError(
                f"the endpoint of {service} is no URL of the form https://host:port, without user and query",
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
