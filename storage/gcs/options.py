"""Options of a store on Google Cloud Storage. Imports no google-auth: operators and parsers build these without it."""

from __future__ import annotations

from dataclasses import dataclass

from ..network.options import check_access


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
