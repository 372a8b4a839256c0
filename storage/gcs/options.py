"""Options of a store on Google Cloud Storage. Imports no google-auth: operators and parsers build these without it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import StorageError


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
        if self.endpoint_url is not None:
            scheme, _, rest = self.endpoint_url.partition("://")
            if scheme not in ("http", "https") or not rest or "@" in rest or "?" in rest:
                raise StorageError(
                    "the endpoint of Google Cloud Storage is no URL of the form https://host:port, without user and "
                    "query",
                    code="invalid_request",
                    endpoint_url=self.endpoint_url.rpartition("@")[2].partition("?")[0],
                )
        for name in ("connect_timeout_s", "read_timeout_s", "max_attempts"):
            if getattr(self, name) <= 0:
                raise StorageError(
                    "this option of Google Cloud Storage must be above 0",
                    code="invalid_request",
                    option=name,
                    value=getattr(self, name),
                )
