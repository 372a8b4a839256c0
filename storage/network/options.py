"""What the options of every bucket's store are checked for."""

from __future__ import annotations

from typing import Protocol

from ..errors import StorageError


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
