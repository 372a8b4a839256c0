"""A Google Cloud Storage on loopback: fake-gcs-server, whose uploads honour conditions under concurrency."""

from __future__ import annotations

from pathlib import Path

import requests

from airflow_cairn.storage import GcsOptions

from ..setup.gcsserver import ensure_gcs_server
from .bucket_server import BucketServer
from .ports import LOOPBACK


class GcsServer(BucketServer):
    """The server; objects live in its memory."""

    def __init__(self, root: Path | None = None) -> None:
        super().__init__("gcs", root)

    @property
    def endpoint_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def options(self) -> GcsOptions:
        return GcsOptions(self.endpoint_url)

    def start(self) -> None:
        """Start the server and wait until it listens; a port that another program takes is tried again."""
        program = ensure_gcs_server()
        self.port = self.start_listening(
            "fake-gcs-server",
            lambda port: [
                program,
                *("-scheme", "http", "-host", LOOPBACK, "-port", str(port)),
                *("-public-host", f"{LOOPBACK}:{port}", "-backend", "memory", "-log-level", "error"),
            ],
        )

    def create_bucket(self, name: str) -> str:
        made = requests.post(f"{self.endpoint_url}/storage/v1/b?project=tests", json={"name": name}, timeout=30)
        made.raise_for_status()
        return name

    def root_of(self, bucket: str) -> str:
        return f"gs://{self.create_bucket(bucket)}"
