"""The Spark server that the job's stages share: whether what listens at its address is that server (semantics F4, V4).

A connection proves nothing: another program may have taken the port of a server that has ended. So the server shows a
certificate that only a process with its token can have made, before anything is sent to it.

A decline asks too: the attempt of a stage that declined may end before its task reports the failed try. So the decline
itself says that the server was gone; else the failure would count by itself, although it is one with those of the
other stages.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ...checkpoint.runtime import system_runtime
from ...checkpoint.servers.record import KEY, ServersDocument
from ...storage.errors import CairnError
from ...storage.str_enum import StrEnum

if TYPE_CHECKING:
    from ...checkpoint.store.job_files import JobFiles

CONNECT_S = 10.0
"""For each step: the connection, and the certificate."""
CERTIFICATE_HOST = "cairn-server"
"""The name in the certificate of a server that Cairn runs. Each has an authority of its own, so that the name need not
tell servers apart."""


class Heard(StrEnum):
    """What was heard at the address of a server that Cairn runs; the value says so in a message."""

    SERVER = "it has shown that it is the job's server"
    NOTHING = "nothing listens at its port"
    STRANGER = (
        "what listens at its port does not have its certificate: another program, or the secret of the sessions was "
        "changed"
    )
    SILENCE = "it does not answer"
    """It has stopped, is very busy, or this machine does not reach it: its lease tells."""


def hear(host: str, port: int, authority: str) -> Heard:
    """Ask what listens at an address to prove that it is the server; nothing secret is sent.

    Args:
        host: a name or an address.
        port: to connect to.
        authority: that only a process with the server's token can have signed by, PEM.
    """
    import ssl  # a driver that asks no server needs none of it

    try:
        connection = socket.create_connection((host, port), CONNECT_S)
    except ConnectionError:
        return Heard.NOTHING
    except OSError:
        return Heard.SILENCE
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority)
    with connection:
        try:
            context.wrap_socket(connection, server_hostname=CERTIFICATE_HOST).close()
        except TimeoutError:
            return Heard.SILENCE
        except ConnectionError:
            return Heard.NOTHING  # it has just ended
        except OSError:
            return Heard.STRANGER
    return Heard.SERVER


class JobServer:
    """The one that this process's application runs on, if Cairn runs it."""

    def __init__(self) -> None:
        self._nonce = ""
        self._at: tuple[str, int, str] | None = None

    def use(self, nonce: str, host: str, port: int, authority: str | None) -> None:
        """Take note of it.

        Args:
            nonce: of the server; empty: it is none that Cairn runs.
            host: where a client reaches it.
            port: there.
            authority: of its certificate.
        """
        self._nonce = nonce
        self._at = None if authority is None else (host, port, authority)

    def lost(self, files: JobFiles) -> str:
        """Give its nonce if it is gone; else nothing. One that does not answer is gone once its lease has ended.

        Args:
            files: of the job.
        """
        if not self._nonce or self._at is None:
            return ""
        heard = hear(*self._at)
        is_gone = heard in (Heard.NOTHING, Heard.STRANGER) or self._has_no_lease(files, heard)
        return self._nonce if is_gone else ""

    def _has_no_lease(self, files: JobFiles, heard: Heard) -> bool:
        try:
            entry = files.read(ServersDocument, KEY)[0].find(self._nonce)
        except CairnError:
            return False
        if entry is None:
            return heard is Heard.SILENCE
        return entry.lease_until_ms <= system_runtime().now_ms()


JOB_SERVER = JobServer()
