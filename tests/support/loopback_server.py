"""An HTTP server in this process, for stand-ins and proxies."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Self


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    """The probe of stores connects sixteen times at once."""


class LoopbackServer:
    """Runs from `with` to its end, on a free port of loopback.

    Args:
        handler: answers the requests.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
