"""The sessions of a Spark Connect server, as the JVM knows it that this driver runs on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SERVICE = "SparkConnectService$"


@dataclass(frozen=True, slots=True)
class ServerSession:
    """One session, open or closed."""

    id: str
    """That the client has chosen."""
    server_id: str
    """That the server has: by it the session's artifacts are known, and its Python processes."""
    key: Any = field(repr=False, compare=False)
    """By which the JVM finds it: its user and `id`."""


class JvmSessions:
    """What Spark's own manager of sessions tells and does. None of it counts as a use of a session.

    Args:
        jvm: py4j's view of the driver's JVM.
    """

    def __init__(self, jvm: Any) -> None:
        package = jvm.org.apache.spark.sql.connect.service
        self._service = getattr(getattr(package, _SERVICE), "MODULE$")

    @property
    def port(self) -> int:
        """Where the server listens."""
        return int(self._service.localPort())

    def opened(self) -> list[ServerSession]:
        """Give the sessions that are open."""
        return list(_sessions(self._service.sessionManager().listActiveSessions()))

    def closed(self) -> list[ServerSession]:
        """Give those that are not, as far as Spark remembers them: the last thousand."""
        return list(_sessions(self._service.sessionManager().listClosedSessions()))

    def close(self, session: ServerSession) -> None:
        """Close a session: Spark interrupts what runs in it, and never takes it again. One that is closed is no error.

        Args:
            session: by `opened`.

        Raises:
            Py4JError: Spark failed to. It takes the session for closed then all the same.
        """
        # As Spark does it for a client that releases its session; it may not come back.
        self._service.sessionManager().closeSession(session.key, False)


def _sessions(of_scala: Any) -> Iterator[ServerSession]:
    for at in range(of_scala.size()):
        found = of_scala.apply(at)
        yield ServerSession(str(found.sessionId()), str(found.serverSessionId()), found.key())
