"""Which Spark Connect server, and how a client speaks to it."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import quote

from ...checkpoint.errors import InvalidConfigError

DEFAULT_PORT = 15002
"""Spark's own."""
DEFAULT_USER = "cairn"
"""A session belongs to a user whom the client claims to be. Every try must claim the same one, or it could not release
the session of the try before; the worker's own user name may differ from machine to machine."""

LOOPBACK = "127.0.0.1"
"""Of this machine. Never by its name: another user may listen at the IPv6 address that `localhost` stands for too."""

_HOST = re.compile(r"\A[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\Z")
_USER = re.compile(r"\A[A-Za-z0-9_.@-]{1,200}\Z")


@dataclass(frozen=True, slots=True)
class ConnectServer:
    """A Spark Connect server, as a client reaches it; made by `server_of`."""

    host: str
    port: int = DEFAULT_PORT
    token: str | None = field(default=None, repr=False)
    use_ssl: bool = False
    user: str = DEFAULT_USER
    authority: str | None = field(default=None, repr=False)
    """The only one whose certificate is trusted, PEM; None: those that this machine trusts."""

    @property
    def endpoint(self) -> str:
        """Host and port, for messages and for a socket; no credentials."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def url(self, session: str) -> str:
        """Give what PySpark calls `spark.remote`. It holds the token: never log it, nor put it on a command line.

        Args:
            session: the session's id.
        """
        words = [f"user_id={quote(self.user, safe='')}", f"session_id={session}"]
        if self.use_ssl:
            words.append("use_ssl=true")
        if self.token is not None:
            words.append(f"token={quote(self.token, safe='')}")
        return f"sc://{self.endpoint}/;{';'.join(words)}"


def server_of(
    host: str | None,
    port: int | None = None,
    *,
    token: str | None = None,
    use_ssl: bool = False,
    user: str | None = None,
    **where: object,
) -> ConnectServer:
    """Check what a connection says.

    Args:
        host: a name or an address, with or without `sc://`.
        port: None for Spark's own, 15002.
        token: the server's; None where it asks for none.
        use_ssl: whether it is reached by TLS.
        user: whom the sessions belong to; None for `cairn`.
        **where: names the connection, for messages.

    Raises:
        InvalidConfigError: there is no host, or it is none; or the token would travel unencrypted: a server has no TLS
            of its own.
    """
    bare = (host or "").removeprefix("sc://").strip("/")
    if not bare:
        raise InvalidConfigError("the connection names no host: give it that of the Spark Connect server", **where)
    address = _address(bare)
    if address is None and not _HOST.match(bare):
        raise InvalidConfigError(
            "this is no host of a Spark Connect server. Write the host alone, its port in the connection's port, and "
            "the token in its password",
            **where,
        )
    if port is not None and not 0 < port < 65536:
        raise InvalidConfigError("the port is out of its bounds, 1 to 65535", port=port, **where)
    if user is not None and not _USER.match(user):
        raise InvalidConfigError("the connection's login is no user's name: use letters, digits and _ . @ -", **where)
    if token is not None and not (token.isascii() and token.isprintable()):
        raise InvalidConfigError("the connection's password is no token: it has characters that none can have", **where)
    local = bare == "localhost" or (address is not None and address.is_loopback)
    if token and not use_ssl and not local:
        raise InvalidConfigError(
            "the token would travel unencrypted. Put TLS in front of the server and set use_ssl in the connection's "
            'extra: {"use_ssl": true}',
            host=bare,
            **where,
        )
    # grpc takes these two of the loopback's addresses for this machine.
    here = local and not use_ssl and str(address) != "::1"
    name = LOOPBACK if here else bare.strip("[]")
    return ConnectServer(name, port or DEFAULT_PORT, token or None, use_ssl, user or DEFAULT_USER)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
