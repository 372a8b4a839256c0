"""Backends as fixtures, and S3 options that do not wait long."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from airflow_cairn.storage import ObjectStore, S3Options
from scripts.harness.azure_server import AzureServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.s3_server import S3Server
from tests.unit.storage import backends
from tests.unit.storage.backends import Backend

_numbers = itertools.count()


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    """A moto server in this process, on a free port."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(
    params=["files", "moto", *(pytest.param(name, marks=pytest.mark.s3) for name in ("s3", "gcs", "azure"))]
)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """Each of the five, empty."""
    if request.param == "files":
        return backends.files(tmp_path / "lake")
    if request.param == "moto":
        url = request.getfixturevalue("moto_url")
        options = S3Options(endpoint_url=url, access_key="moto", secret_key="moto-secret")
        client = boto3.client(
            "s3", endpoint_url=url, aws_access_key_id="moto", aws_secret_access_key="moto", region_name="us-east-1"
        )
        bucket = f"contract-{next(_numbers)}"
        client.create_bucket(Bucket=bucket)
        return backends.s3("moto", client, bucket, options)
    if request.param == "gcs":
        google: GcsServer = request.getfixturevalue("gcs_server")
        return backends.gcs(google.endpoint_url, google.create_bucket(f"contract-{next(_numbers)}"))
    if request.param == "azure":
        azure: AzureServer = request.getfixturevalue("azure_server")
        return backends.azure(azure.endpoint_url, azure.root_of(f"contract-{next(_numbers)}"))
    server: S3Server = request.getfixturevalue("s3_server")
    bucket = request.getfixturevalue("s3_bucket")
    return backends.s3("s3", server.client(), bucket, request.getfixturevalue("s3_options"))


@pytest.fixture
def store(backend: Backend) -> ObjectStore:
    """One handle of the backend."""
    return backend.open()
