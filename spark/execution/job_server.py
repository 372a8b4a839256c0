"""The Spark server that the job's stages share, as a decline knows it: whether it is gone (semantics F4, V4).

The attempt of a stage that declined may end before its task reports the failed try. So the decline itself says that the
server was gone; else the failure would count by itself, although it is one with those of the other stages.
"""

from __future__ import annotations

import socket

CONNECT_S = 10.0


class JobServer:
    """The one that this process's application runs on, if Cairn runs it."""

    def __init__(self) -> None:
        self._nonce = ""
        self._host, self._port = "", 0

    def use(self, nonce: str, host: str, port: int) -> None:
        """Take note of it.

        Args:
            nonce: of the server; empty: it is none that Cairn runs.
            host: where a client reaches it.
            port: there.
        """
        self._nonce, self._host, self._port = nonce, host, port

    def lost(self) -> str:
        """Give its nonce if it is gone; else nothing, also where there is no answer: it may be busy."""
        return self._nonce if self._nonce and listens(self._host, self._port) is False else ""


JOB_SERVER = JobServer()


def listens(host: str, port: int) -> bool | None:
    """Tell whether anything listens there; None: there is no answer in time.

    Args:
        host: a name or an address.
        port: to connect to.
    """
    try:
        socket.create_connection((host, port), CONNECT_S).close()
    except ConnectionError:
        return False
    except OSError:
        return None
    return True
