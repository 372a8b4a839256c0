"""Spark writes and reads the real S3 server through s3a, by the magic committer, with no credentials in its conf."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.harness.s3_server import S3Server
from scripts.harness.spark.start import small_conf
from scripts.s3a_jars import s3a_conf

pytestmark = [pytest.mark.s3, pytest.mark.spark]

_APPLICATION = """
import json, sys
from pyspark.sql import SparkSession
conf, url = json.loads(sys.argv[1]), sys.argv[2]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config(map=conf).getOrCreate()
spark.range(1000).repartition(3).write.parquet(url)
print("rows", spark.read.parquet(url).count())
spark.stop()
"""


def test_spark_writes_and_reads_by_the_magic_committer(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    conf = {**s3a_conf(s3_server.endpoint_url), **small_conf()}
    assert s3_server.secret_key not in json.dumps(conf)
    done = subprocess.run(
        [sys.executable, "-c", _APPLICATION, json.dumps(conf), f"s3a://{s3_bucket}/table"],
        env={**os.environ, **s3_server.env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "rows 1000" in done.stdout
    client = s3_server.client()
    success = json.loads(client.get_object(Bucket=s3_bucket, Key="table/_SUCCESS")["Body"].read())
    assert success["committer"] == "magic"
    keys = [item["Key"] for item in client.list_objects_v2(Bucket=s3_bucket)["Contents"]]
    assert sum(key.endswith(".parquet") for key in keys) == 3
    assert not [key for key in keys if "__magic" in key], "the committer cleaned up after itself"
    assert not client.list_multipart_uploads(Bucket=s3_bucket).get("Uploads")
