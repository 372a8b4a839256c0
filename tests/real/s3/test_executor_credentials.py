"""The keys of an Airflow connection reach executors that have neither them nor an instance role, on a real cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.hooks import CheckpointStorageHook
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.cluster import SparkCluster
from scripts.harness.spark.start import small_conf
from scripts.s3a_jars import s3a_jars
from scripts.setup.venv import VENV

pytestmark = [pytest.mark.spark, pytest.mark.s3]

_APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(100).repartition(4).write.parquet(sys.argv[1])
print("rows:", spark.read.parquet(sys.argv[1]).count())
"""


@pytest.mark.soak  # a cluster; test_s3a.py reads and writes by these credentials
def test_executors_elsewhere(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, connections: Callable[[str, str], None]
) -> None:
    extra = {"endpoint_url": s3_server.endpoint_url, "region_name": "us-east-1"}
    keys = {"login": s3_server.access_key, "password": s3_server.secret_key}
    connections("lake", json.dumps({"conn_type": "aws", **keys, "extra": extra}))
    hook = CheckpointStorageHook(f"s3://{s3_bucket}/cairn", "lake")
    application = tmp_path / "application.py"
    application.write_text(_APPLICATION)
    conf = {**hook.driver_conf(), **small_conf(), "spark.ui.enabled": "false", "spark.task.maxFailures": "1"}
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    jars = ",".join(str(jar) for jar in s3a_jars())
    environ = {**os.environ, **hook.driver_environment(), "PYSPARK_PYTHON": sys.executable}
    with SparkCluster(1, root=tmp_path / "spark") as cluster:
        submit = str(VENV / "bin/spark-submit")
        command = [
            submit,
            "--master",
            cluster.master_url,
            "--jars",
            jars,
            *words,
            str(application),
            f"s3a://{s3_bucket}/out",
        ]
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
        )
    assert "rows: 100" in done.stdout, done.stdout[-3000:] + done.stderr[-6000:]
    assert s3_server.secret_key not in " ".join([*command, done.stdout, done.stderr])
