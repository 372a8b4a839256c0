"""Options of a store on Azure. Imports no azure-identity: operators and parsers build these without it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import StorageError
from ..network.options import check_access

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
