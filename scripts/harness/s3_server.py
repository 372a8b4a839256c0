"""A real S3 server on loopback: versitygw, with conditional writes that hold under concurrency."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cairn.storage import S3Options

from ..setup.s3server import ensure_s3_server
from .bucket_server import BucketServer
from .ports import LOOPBACK

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

REGION = "us-east-1"


class S3Server(BucketServer):
    """The server; objects live in a folder that goes with it.

    With `keep_alive` a client may send many requests over one connection, as to S3. Clients of pyarrow may not: they
    send a checksum after the data, versitygw leaves it unread, and takes it for the next request (HTTP 400).
    """

    region = REGION

    def __init__(
        self,
        root: Path | None = None,
        *,
        access_key: str = "cairn-access",
        secret_key: str = "cairn-secret-0123456789",
        keep_alive: bool = True,
    ) -> None:
        super().__init__("s3", root)
        self.access_key = access_key
        self.secret_key = secret_key
        self.keep_alive = keep_alive

    @property
    def endpoint_url(self) -> str:
        """The address for boto3 and s3a; path-style addressing is needed."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The variables by which AWS clients, in Python and in Java, find the account and the server."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def options(self) -> S3Options:
        return S3Options(self.endpoint_url, REGION, self.access_key, self.secret_key)

    def start(self) -> None:
        """Start the server and wait until it listens; a port that another program takes is tried again."""
        program = ensure_s3_server()
        data = self.root / "data"
        data.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        keep = ["--keep-alive"] if self.keep_alive else []
        self.port = self.start_listening(
            "versitygw",
            lambda port: [program, "--port", f"{LOOPBACK}:{port}", "--region", REGION, *keep, "posix", data],
            env,
        )

    def client(self) -> S3Client:
        """Give a boto3 client for this server, that tries each request once."""
        import boto3
        from botocore.config import Config

        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, region_name=REGION)
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=config,
        )

    def create_bucket(self, name: str) -> str:
        self.client().create_bucket(Bucket=name)
        return name

    def root_of(self, bucket: str) -> str:
        return f"s3://{self.create_bucket(bucket)}"
