"""An epoch on S3 by a client of a real Spark Connect server: the magic committer, and the server's credentials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.spark.handover.conf import s3a_conf
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from airflow_cairn.storage import S3Options
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.connect_server import ConnectServer
from scripts.s3a_jars import s3a_jars
from tests.real.spark.pipeline import Pipeline

pytestmark = [pytest.mark.s3, pytest.mark.spark]

APPLICATION = Path(__file__).parent / "applications" / "connect_kinds.py"


@pytest.fixture
def server(s3_server: S3Server) -> Iterator[ConnectServer]:
    """Server that may write to the S3 server, by credentials of its own."""
    conf = {
        "spark.jars": ",".join(map(str, s3a_jars())),
        **s3a_conf(S3Options(s3_server.endpoint_url, s3_server.region)),
    }
    with ConnectServer(conf, env=s3_server.env) as it:
        yield it


@pytest.mark.soak  # test_s3a.py commits by it, test_connect.py has epochs of a client
def test_an_epoch_on_s3_is_committed_by_magic(
    server: ConnectServer, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:  # semantics A4, A5, W7
    s3 = S3Options(
        endpoint_url=s3_server.endpoint_url,
        region=s3_server.region,
        access_key=s3_server.access_key,
        secret_key=s3_server.secret_key,
    )
    pipeline = Pipeline(f"s3://{s3_bucket}/team/cairn", None, (StageSpec("routes", (), 2),), s3=s3)
    for number, run_id in enumerate(("one", "two"), 1):
        pipeline.trigger(run_id)
        submit = pipeline.begin(run_id)
        submission = Submission(
            str(APPLICATION),
            session_id(submit.handover.token),
            pipeline.conf(submit),
            {"host": "localhost", "port": server.port},
            (str(tmp_path),),
        )
        done = subprocess.run(
            [sys.executable, "-m", "airflow_cairn.spark.remote.client"],
            env={**os.environ, **s3_server.env, VARIABLE: submission.to_json()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert "commits to S3 by copying every file" not in done.stderr
        assert s3_server.secret_key not in done.stdout + done.stderr
        assert pipeline.complete(run_id) == number
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert found["totals"] == list(range(10))
    assert found["files"] == ["a.bin", "trees 1/ü=1.bin"]
    assert found["league"] == [7]
    kept = pipeline.listing("chk-0000000002/state/")
    assert not [key for key in kept if not key.endswith((".parquet", ".bin", "content.json"))], "no marker, no _SUCCESS"
    assert not s3_server.client().list_multipart_uploads(Bucket=s3_bucket).get("Uploads")
