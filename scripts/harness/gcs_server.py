"""A Google Cloud Storage on loopback: fake-gcs-server, whose uploads honour conditions under concurrency."""

from __future__ import annotations

from pathlib import Path

import requests

from ..setup.gcsserver import ensure_gcs_server
from .ports import LOOPBACK, free_port, is_listening
from .processes import ProcessDiedError, RealProcess
from .service import Service


class GcsServer(Service):
    """The server; objects live in its memory.

    Args:
        root: where to keep the log; None for a temporary folder.
    """

    def __init__(self, root: Path | None = None) -> None:
        super().__init__("gcs", root)
        self.port = 0

    @property
    def endpoint_url(self) -> str:
        """The address for Cairn's store and for Spark's connector."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it listens; a port that somebody else takes meanwhile is tried again.

        Raises:
            ProcessDiedError: it ended at once, three times.
            SetupError: it could not be built.
        """
        program = ensure_gcs_server()
        for tries_left in (2, 1, 0):
            self.port = free_port()
            command: list[str | Path] = [
                program,
                *("-scheme", "http", "-host", LOOPBACK, "-port", str(self.port)),
                *("-public-host", f"{LOOPBACK}:{self.port}", "-backend", "memory", "-log-level", "error"),
            ]
            process = RealProcess("fake-gcs-server", command, self.root / "fake-gcs-server.log")
            try:
                process.wait_until(lambda: is_listening(self.port), 300, f"fake-gcs-server on port {self.port}")
            except ProcessDiedError:
                process.stop()
                if not tries_left:
                    raise
            else:
                self._processes["fake-gcs-server"] = process
                return

    def create_bucket(self, name: str) -> str:
        """Make an empty bucket.

        Returns:
            Its name.
        """
        made = requests.post(f"{self.endpoint_url}/storage/v1/b?project=tests", json={"name": name}, timeout=30)
        made.raise_for_status()
        return name
