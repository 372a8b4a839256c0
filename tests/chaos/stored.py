"""A job's folder, in a bucket or on a disk, read as what it is: objects, JSON, lines of JSON. Nothing of Cairn's."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests
from azure.storage.blob import ContainerClient

from airflow_cairn.storage.network.options import EMULATED, EMULATED_KEY
from scripts.harness.azure_server import AzureServer
from scripts.harness.bucket_server import BucketServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.s3_server import S3Server

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


@dataclass(frozen=True)
class Stored:
    """One object as a listing shows it."""

    size: int
    etag: str


class Folder:
    """Objects below a prefix.

    Args:
        client: of the S3 server.
        bucket: where.
        prefix: ending in `/`.
    """

    def __init__(self, client: S3Client, bucket: str, prefix: str) -> None:
        self._client = client
        self.bucket = bucket
        self.prefix = prefix

    def below(self, prefix: str) -> Folder:
        """Give a folder of the same bucket."""
        return Folder(self._client, self.bucket, prefix)

    def objects(self) -> dict[str, Stored]:
        """List all of them, keys relative to the prefix."""
        found: dict[str, Stored] = {}
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        for page in pages:
            for each in page.get("Contents", []):
                found[each["Key"].removeprefix(self.prefix)] = Stored(each["Size"], each["ETag"])
        return found

    def uploads(self) -> list[str]:
        """Name the multipart uploads that were begun and not ended."""
        answer = self._client.list_multipart_uploads(Bucket=self.bucket)
        return [each["Key"] for each in answer.get("Uploads", []) if each["Key"].startswith(self.prefix)]

    def bytes(self, key: str) -> bytes:
        """Read an object."""
        return self._client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read()

    def json(self, key: str) -> Any:
        """Read a document."""
        return json.loads(self.bytes(key))


class FolderOnGoogle(Folder):
    """Folder on fake-gcs-server.

    Args:
        endpoint_url: of the server.
        bucket: where.
        prefix: ending in `/`.
    """

    def __init__(self, endpoint_url: str, bucket: str, prefix: str) -> None:
        self._endpoint_url = endpoint_url
        self.bucket = bucket
        self.prefix = prefix

    def below(self, prefix: str) -> Folder:
        return FolderOnGoogle(self._endpoint_url, self.bucket, prefix)

    def objects(self) -> dict[str, Stored]:
        page = self._ask("", prefix=self.prefix, maxResults="5000").json()
        assert "nextPageToken" not in page
        found = page.get("items", [])
        return {each["name"].removeprefix(self.prefix): Stored(int(each["size"]), each["generation"]) for each in found}

    def uploads(self) -> list[str]:
        return []  # no listing shows them

    def bytes(self, key: str) -> bytes:
        return self._ask(f"/{quote(self.prefix + key, safe='')}", alt="media").content

    def _ask(self, below: str, **params: str) -> requests.Response:
        answer = requests.get(f"{self._endpoint_url}/storage/v1/b/{self.bucket}/o{below}", params, timeout=60)
        answer.raise_for_status()
        return answer


class FolderOnAzure(Folder):
    """Folder on Azurite.

    Args:
        client: of the container.
        prefix: ending in `/`.
    """

    def __init__(self, client: ContainerClient, prefix: str) -> None:
        self._container = client
        self.bucket = client.container_name
        self.prefix = prefix

    def below(self, prefix: str) -> Folder:
        return FolderOnAzure(self._container, prefix)

    def objects(self) -> dict[str, Stored]:
        found = self._container.list_blobs(self.prefix)
        return {each.name.removeprefix(self.prefix): Stored(each.size, each.etag) for each in found}

    def uploads(self) -> list[str]:
        listed = self._container.list_blobs(self.prefix, include=["uncommittedblobs"])
        return sorted({each.name for each in listed} - {f"{self.prefix}{key}" for key in self.objects()})

    def bytes(self, key: str) -> bytes:
        return self._container.download_blob(self.prefix + key).readall()


def folder_of(server: BucketServer, root: str, prefix: str) -> Folder:
    """Give a folder of a server's bucket.

    Args:
        server: that runs.
        root: the URI of the bucket.
        prefix: ending in `/`.
    """
    bucket = root.partition("://")[2].partition("@")[0]
    if isinstance(server, S3Server):
        return Folder(server.client(), bucket, prefix)
    if isinstance(server, GcsServer):
        return FolderOnGoogle(server.endpoint_url, bucket, prefix)
    assert isinstance(server, AzureServer)
    account = f"{server.endpoint_url}/{EMULATED}"
    return FolderOnAzure(ContainerClient(account, bucket, credential=EMULATED_KEY), prefix)


class FolderOnDisk(Folder):
    """Folder on a disk.

    Args:
        root: what keys are relative to.
        prefix: ending in `/`.
    """

    bucket = ""

    def __init__(self, root: Path, prefix: str) -> None:
        self._root = root
        self.prefix = prefix

    def below(self, prefix: str) -> Folder:
        return FolderOnDisk(self._root, prefix)

    def objects(self) -> dict[str, Stored]:
        folder = self._root / self.prefix
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        return {key: Stored(len(data), f"sha256:{sha256(data)}") for key, data in files.items()}

    def uploads(self) -> list[str]:
        return []  # what a dead writer leaves lies beside the jobs, and goes with the next write

    def bytes(self, key: str) -> bytes:
        return (self._root / self.prefix / key).read_bytes()


def lines(data: bytes) -> list[dict[str, Any]]:
    """Read lines of JSON."""
    return [json.loads(line) for line in data.splitlines()]


def sha256(data: bytes) -> str:
    """Give the hexadecimal digest."""
    return hashlib.sha256(data).hexdigest()
