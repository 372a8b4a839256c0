"""The stores that the contract is held against: files, moto, the real S3 server, fake-gcs-server, and Azurite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from airflow_cairn.storage import AzureOptions, GcsOptions, ObjectStore, S3Options
from airflow_cairn.storage.azure import AzureStore
from airflow_cairn.storage.gcs import GcsStore
from airflow_cairn.storage.local.store import LocalStore
from airflow_cairn.storage.s3.store import S3Store


@dataclass(frozen=True)
class Backend:
    """One place, of which any number of independent handles can be opened."""

    name: str
    open: Callable[[], ObjectStore]
    begin_upload: Callable[[str], str] | None = None


def files(root: Path) -> Backend:
    return Backend("files", lambda: LocalStore(root))


def s3(name: str, client: object, bucket: str, options: S3Options, prefix: str = "lake/cairn") -> Backend:
    def begin_upload(key: str) -> str:
        answer = client.create_multipart_upload(Bucket=bucket, Key=f"{prefix}/{key}")  # type: ignore[attr-defined]
        return str(answer["UploadId"])

    # A page of three entries makes every listing of the suite cross pages.
    return Backend(name, lambda: S3Store(f"s3://{bucket}/{prefix}", options, page_size=3), begin_upload)


def gcs(endpoint_url: str, bucket: str) -> Backend:
    options = GcsOptions(endpoint_url)
    return Backend("gcs", lambda: GcsStore(f"gs://{bucket}/lake/cairn", options, page_size=3))


def azure(endpoint_url: str, container: str) -> Backend:
    options = AzureOptions(endpoint_url)
    return Backend("azure", lambda: AzureStore(f"{container}/lake/cairn", options, page_size=3))
