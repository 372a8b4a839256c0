"""A bare connection to a Spark Connect server: checks that the server is there, its token and its Spark version.

PySpark's own client tries for ten minutes if a host does not answer, and then does not say what is wrong. So this
connection asks the server first, step by step, with a message for each step. It speaks the server's own protocol and
makes no PySpark session.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import CheckpointError, FencedError, InvalidConfigError, UnreachableError
from ..execution.transport import CERTIFICATE_HOST, Heard, hear
from .server import LOOPBACK, ConnectServer

if TYPE_CHECKING:
    import grpc
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

CONNECT_S = 10.0
"""Seconds for the host's first answer."""
SPEAK_S = 30.0
"""Seconds until both sides have agreed on a protocol, TLS included."""
ANSWER_S = 120.0
"""Seconds for one answer: a server that has just started makes its first session in about ten seconds."""
CLIENT_TYPE = "cairn"
_LOOPBACK = frozenset({"localhost", LOOPBACK, "::1"})


class ConnectChannel:
    """A channel to a server; use it as a context manager, which closes it unless a session has taken it over.

    Raises:
        InvalidConfigError: PySpark's client lacks a package here.
        UnreachableError: the host does not answer, or not by the connection's protocol.
    """

    def __init__(self, server: ConnectServer) -> None:
        self._server = server
        self._grpc, self._proto = _client_packages()
        self._check_host()
        # Each call carries the token, as in PySpark's client, whose builder this is.
        made = channel_builder(server, "00000000-0000-4000-8000-000000000000")
        self._metadata = made.metadata()
        self._channel = made.toChannel()
        self._is_taken = False
        try:
            self._grpc.channel_ready_future(self._channel).result(timeout=SPEAK_S)
        except self._grpc.FutureTimeoutError as error:
            self._channel.close()
            raise self._no_protocol() from error
        self._stub = self._proto.SparkConnectServiceStub(self._channel)

    def __enter__(self) -> ConnectChannel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the channel in a thread: grpc first waits up to 0.2 s for its own check of the connection."""
        if not self._is_taken:
            Thread(target=self._channel.close, name="cairn closes its channel").start()

    def builder(self, session: str) -> DefaultChannelBuilder:
        """Return PySpark's builder for a session, whose client takes this channel over: another one costs handshakes.

        A further channel, if PySpark makes one, is a new one.
        """
        made, channel = channel_builder(self._server, session), self._channel
        anew = made.toChannel

        def taken() -> grpc.Channel:
            if self._is_taken:
                return anew()
            self._is_taken = True
            return channel

        made.toChannel = taken  # type: ignore[method-assign]
        return made

    def version(self, session: str) -> str:
        """Ask for the server's Spark version; this opens the session, unless it is open."""
        request = self._proto.AnalyzePlanRequest(
            session_id=session, client_type=CLIENT_TYPE, spark_version=self._proto.AnalyzePlanRequest.SparkVersion()
        )
        request.user_context.user_id = self._server.user
        return str(self._call(self._stub.AnalyzePlan, request).spark_version.version)

    def release(self, session: str) -> None:
        """Release a session: the server stops everything in it. An unknown session is not an error."""
        request = self._proto.ReleaseSessionRequest(session_id=session, client_type=CLIENT_TYPE)
        request.user_context.user_id = self._server.user
        self._call(self._stub.ReleaseSession, request)

    def _call(self, method: Callable[..., Any], request: object) -> Any:
        try:
            return method(request, metadata=self._metadata, timeout=ANSWER_S)
        except self._grpc.RpcError as error:
            raise self._meaning(error) from error

    def _meaning(self, error: Any) -> CheckpointError:
        code, details = error.code(), str(error.details() or "")
        status, at = self._grpc.StatusCode, {"server": self._server.endpoint}
        if "SESSION_CLOSED" in details or "SESSION_CHANGED" in details:
            return FencedError(
                "the session of this execution has been released: another attempt has replaced it, and does the work",
                **at,
            )
        if code in (status.UNAUTHENTICATED, status.PERMISSION_DENIED):
            given = "does not take the connection's token" if self._server.token else "asks for a token"
            return CheckpointError(
                f"the Spark Connect server {given}. Put the server's spark.connect.authenticate.token into the "
                "connection's password",
                code="wrong_server",
                **at,
            )
        if code is status.UNIMPLEMENTED:
            return CheckpointError(
                "the answer there is not from a Spark Connect server. Check the connection's host and port",
                code="wrong_server",
                **at,
            )
        return UnreachableError(
            f"the Spark Connect server did not answer: {code.name}: {details[:300]}", code="server_unreachable", **at
        )

    def _check_host(self) -> None:
        """Check that the host answers and is the token's server: grpc would try again and again."""
        server = self._server
        if server.authority is not None:
            heard = hear(server.host, server.port, server.authority)
            if heard is not Heard.SERVER:
                why = f"the Spark server of the job cannot be used: {heard}"
                if heard is Heard.STRANGER:
                    raise CheckpointError(why, code="wrong_server", server=server.endpoint)
                raise UnreachableError(why, code="server_unreachable", server=server.endpoint)
            return
        try:
            socket.create_connection((server.host, server.port), CONNECT_S).close()
        except OSError as error:
            raise UnreachableError(
                f"the Spark Connect server cannot be reached: {error}. Check the connection's host and port, and that "
                "the server runs",
                code="server_unreachable",
                server=server.endpoint,
            ) from error

    def _no_protocol(self) -> UnreachableError:
        if self._server.authority is not None:
            why = "Spark does not: it has stopped, or is very busy"
        elif self._server.use_ssl:
            why = (
                "it does not answer by TLS, or its certificate is not trusted here. Where it has no TLS, take use_ssl "
                "out of the connection's extra; for a certificate of your own set GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
            )
        else:
            why = (
                "it does not speak Spark Connect in plain text. Where TLS is in front of it, set use_ssl in the "
                "connection's extra: {\"use_ssl\": true}; else the port may be another service's"
            )
        return UnreachableError(f"the host answers, but {why}", code="server_unreachable", server=self._server.endpoint)


def check_version(server_version: str, client_version: str, endpoint: str) -> str | None:
    """Compare server and PySpark; returns a warning if their versions differ and may work together.

    Raises:
        InvalidConfigError: the versions do not work together.
    """
    server, client = server_version.split("."), client_version.split(".")
    if server[0] != client[0]:
        raise InvalidConfigError(
            f"the Spark Connect server is Spark {server_version}, and this worker has PySpark {client_version}. Use a "
            f"server of Spark {client[0]}, or submit this stage with spark-submit",
            server=endpoint,
        )
    if server[:2] == client[:2]:
        return None
    return (
        f"the Spark Connect server {endpoint} is Spark {server_version} and this worker has PySpark {client_version}: "
        "what is new in one of them may be missing in the other"
    )


def channel_builder(server: ConnectServer, session: str) -> DefaultChannelBuilder:
    """Return the builder for PySpark's connection; it trusts only the server's own authority, if there is one."""
    _client_packages()
    import grpc
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    # The machine's proxy is neither for its own loopback nor for the job's server.
    direct: list[tuple[str, Any]] = [("grpc.enable_http_proxy", 0)]
    if server.authority is not None:
        trusted = grpc.ssl_channel_credentials(server.authority.encode())
        direct.append(("grpc.ssl_target_name_override", CERTIFICATE_HOST))
    elif server.token is not None and not server.use_ssl:
        # This machine (`server_of`), by its address: PySpark's own builder gives a token only to the name `localhost`.
        trusted = grpc.local_channel_credentials()
    else:
        return DefaultChannelBuilder(server.url(session), direct if server.host in _LOOPBACK else None)
    token = server.token

    class TrustsOne(DefaultChannelBuilder):
        def toChannel(self) -> grpc.Channel:  # noqa: N802
            shown = grpc.access_token_call_credentials(token)
            return self._secure_channel(self.endpoint, grpc.composite_channel_credentials(trusted, shown))

    return TrustsOne(server.url(session), direct)


def import_client() -> None:
    """Import PySpark's client of Spark Connect.

    Raises:
        InvalidConfigError: it lacks a package here; the message says how to install it.
    """
    _client_packages()
    import pyspark.sql.connect.session  # noqa: F401 - what every application needs


def _client_packages() -> tuple[Any, Any]:
    try:
        import grpc
        import pyspark.sql.connect.client.core  # noqa: F401 - it says which package is missing
        from pyspark.sql.connect import proto
    except ImportError as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InvalidConfigError(
            f"PySpark's client of Spark Connect cannot run on this worker: {first}. Install it: "
            "pip install 'airflow-cairn[connect]'"
        ) from error
    return grpc, proto
