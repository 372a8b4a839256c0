"""Free ports on loopback."""

from __future__ import annotations

import errno
import random
import socket

LOOPBACK = "127.0.0.1"

_RANGE = range(15_000, 32_000)
"""Below what Linux and macOS give for "any port", so that no connection takes a port given away here."""

_given: set[int] = set()
_any = random.SystemRandom()


def free_port() -> int:
    """Give a loopback port that nobody listens on, and that this process has not given away before.

    Another process may still take it before it is used: its starter must notice when the server dies.
    """
    while True:
        port = _any.choice(_RANGE)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def is_listening(port: int) -> bool:
    """Tell whether something accepts connections on a loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Servers do so too: the rest of an ended connection does not keep a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True
