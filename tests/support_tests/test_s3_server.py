"""The S3 server is real: it starts, its conditions hold, and nothing of it is left."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from botocore.exceptions import ClientError

from scripts.harness.ports import is_listening
from scripts.harness.s3_server import S3Server

pytestmark = pytest.mark.s3


def test_of_writers_that_race_one_wins(s3_server: S3Server, s3_bucket: str) -> None:  # semantics W6
    client = s3_server.client()

    def create(body: int) -> bool:
        try:
            client.put_object(Bucket=s3_bucket, Key="head.json", Body=str(body).encode(), IfNoneMatch="*")
        except ClientError as error:
            assert error.response["Error"]["Code"] in {"PreconditionFailed", "ConditionalRequestConflict"}
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(create, range(8)))
    assert answers.count(True) == 1
    assert client.get_object(Bucket=s3_bucket, Key="head.json")["Body"].read() == str(answers.index(True)).encode()


def test_it_leaves_no_process_and_no_folder() -> None:
    with S3Server() as server:
        server.create_bucket("here")
        pids = [process.pid for process in server.family()]
        assert pids and is_listening(server.port)
    assert not is_listening(server.port)
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert not server.root.exists()
