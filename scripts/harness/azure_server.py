"""Azure's blobs on loopback: Azurite, which honours conditions under concurrency."""

from __future__ import annotations

from pathlib import Path

from airflow_cairn.storage import AzureOptions
from airflow_cairn.storage.azure import send
from airflow_cairn.storage.network.options import EMULATED

from ..setup.azurite import ensure_azurite
from .bucket_server import BucketServer
from .ports import LOOPBACK

HOST = f"{EMULATED}.dfs.core.windows.net"


class AzureServer(BucketServer):
    """The server; objects live in its memory."""

    def __init__(self, root: Path | None = None) -> None:
        super().__init__("azure", root)

    @property
    def endpoint_url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def options(self) -> AzureOptions:
        return AzureOptions(self.endpoint_url)

    def start(self) -> None:
        """Start the server and wait until it listens; a port that another program takes is tried again."""
        program = ensure_azurite()
        quiet = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck")
        self.port = self.start_listening(
            "azurite", lambda port: [*program, "--blobHost", LOOPBACK, "--blobPort", str(port), *quiet]
        )

    def root_of(self, bucket: str) -> str:
        send(self.options, HOST, "PUT", f"/{bucket}", {"restype": "container"}, {}).body()
        return f"abfss://{bucket}@{HOST}"
