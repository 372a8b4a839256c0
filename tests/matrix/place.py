"""Storage of a cell's checkpoints: a folder of this machine, or a bucket of the real S3 server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from airflow_cairn.spark.handover.conf import S3_ENDPOINT, S3_REGION, s3a_conf
from airflow_cairn.storage import S3Options
from scripts.harness.s3_server import S3Server
from tests.matrix.spark_3_jars import s3a_jars_of_spark_3

_BUCKET = "matrix"


@dataclass(frozen=True)
class Place:
    """A storage, and what a driver is given to reach it."""

    storage: str
    s3: S3Options | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    """Conf that the operator gives besides the handover."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The credentials."""
    server: S3Server | None = None

    def conf_of_a_reader(self) -> dict[str, str]:
        """Give the conf of an application that reads tables and is no stage."""
        if self.s3 is None:
            return {**self.conf}
        return {**self.conf, S3_ENDPOINT: f"{self.s3.endpoint_url}", S3_REGION: f"{self.s3.region}"}

    def check_clean(self) -> None:
        """See that no committer has left anything.

        Raises:
            AssertionError: it has.
        """
        if self.server is None:
            return
        client = self.server.client()
        assert not client.list_multipart_uploads(Bucket=_BUCKET).get("Uploads"), "no upload is left"
        found = client.list_objects_v2(Bucket=_BUCKET)["Contents"]
        left = [
            item["Key"]
            for item in found
            if item["Key"].endswith("/") or any(word in item["Key"] for word in ("_SUCCESS", "magic", "_temporary"))
        ]
        assert left == [], left


def on_disk(folder: Path) -> Place:
    """Give a folder."""
    return Place(f"file://{folder}/lake")


@contextmanager
def on_s3() -> Iterator[Place]:
    """Start the S3 server and give a bucket of it, reached by s3a of Hadoop 3.3 with the magic committer."""
    with S3Server() as server:
        server.create_bucket(_BUCKET)
        conf = {
            **s3a_conf(S3Options(server.endpoint_url, server.region)),
            "spark.jars": ",".join(str(jar) for jar in s3a_jars_of_spark_3()),
            # versitygw refuses to delete in bulk what s3a deletes so (docs/reference/versions.md).
            "spark.hadoop.fs.s3a.multiobjectdelete.enable": "false",
        }
        credentials = {name: server.env[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        s3 = S3Options(
            endpoint_url=server.endpoint_url,
            region=server.region,
            access_key=server.access_key,
            secret_key=server.secret_key,
        )
        yield Place(f"s3://{_BUCKET}/team/cairn", s3, conf, credentials, server)
