"""Epochs on the real S3 server through s3a: by the magic committer where it is there, else by renaming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.spark.handover.conf import s3a_conf, store_conf
from airflow_cairn.storage import S3Options
from scripts.harness.s3_server import S3Server
from scripts.s3a_jars import s3a_jars
from tests.support.s3_proxy import ASKED, OWNER, S3Proxy, demands, lowered

pytestmark = [pytest.mark.s3, pytest.mark.spark]

ROOT = Path(__file__).parents[3]
APPLICATIONS = Path(__file__).parent / "applications"


Found = dict[str, Any]


def arguments(server: S3Server, storage: str, jars: list[Path]) -> list[str]:
    conf = {"spark.jars": ",".join(str(jar) for jar in jars), **s3a_conf(S3Options(server.endpoint_url, server.region))}
    return [storage, server.endpoint_url, server.region, json.dumps(conf)]


def run_in_turn(server: S3Server, folder: Path, **applications: list[str]) -> list[Found]:
    """Run applications with their arguments in one driver; gives what each has found, and what all have logged."""
    paths = [[str(APPLICATIONS / f"{name}.py"), *given] for name, given in applications.items()]
    environ = {**os.environ, **server.env, "PYTHONPATH": str(ROOT), "S3_LOG": str(server.root / "versitygw.log")}
    # The conf alone must do; AWS_ENDPOINT_URL_S3 would reach boto3 by another way.
    del environ["AWS_ENDPOINT_URL_S3"], environ["AWS_REGION"], environ["AWS_DEFAULT_REGION"]
    done = subprocess.run(
        [sys.executable, str(APPLICATIONS / "in_turn.py"), json.dumps(paths)],
        env=environ,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    assert server.secret_key not in done.stdout + done.stderr
    lines = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(lines) == len(paths)
    return [{**json.loads(line), "stderr": done.stderr} for line in lines]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    """A server for clients of pyarrow too."""
    with S3Server(keep_alive=False) as made:
        yield made


@pytest.fixture(scope="module")
def found(server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """What two applications have found, by the magic committer."""
    given = {
        "s3_epochs": arguments(server, f"s3://{server.create_bucket('magic')}/team/cairn", s3a_jars()),
        "s3_sources": arguments(server, f"s3://{server.create_bucket('reads')}/lake", s3a_jars()),
    }
    return dict(zip(given, run_in_turn(server, tmp_path_factory.mktemp("s3a"), **given), strict=True))


def test_epochs_on_s3(server: S3Server, found: dict[str, Found]) -> None:  # semantics A4, A5, C4, R4, P1, W1, W7
    check_epochs(server, "magic", found["s3_epochs"], magic=True)
    _check_rescaled(found["s3_epochs"])


@pytest.mark.soak
def test_epochs_on_s3_by_renaming(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> None:
    jars = [jar for jar in s3a_jars() if "spark-hadoop-cloud" not in jar.name]
    given = arguments(s3_server, f"s3://{s3_bucket}/team/cairn", jars)
    [found] = run_in_turn(s3_server, tmp_path, s3_epochs=given)
    check_epochs(s3_server, s3_bucket, found, magic=False)


def check_epochs(server: S3Server, bucket: str, found: Found, *, magic: bool) -> None:
    assert found["magic"] is magic
    assert ("commits to S3 by copying every file" in found["stderr"]) is not magic
    assert found["protocol after"] == found["protocol before"], "the session is as it was"
    files = [key for key in found["written"] if not key.endswith(".parquet")]
    assert [key.partition("/files.model/")[2] for key in files] == ["empty", "model.bin", "trees 1/a=b.json"]
    assert len(found["written"]) == 6 + len(files), "what is no data is deleted, folder markers too"
    assert found["restored"] == [["A-B", 1], ["B-C", 2]]
    assert found["many"] == 1000
    assert found["behind"] == [["D-E", 4]], "written in the background"
    assert found["model restored"]
    assert found["copy"] == found["model"], "from the disk to S3, to S3, and back"
    assert found["longest name"] > 100
    assert found["league"] == [["A-B", 7]], "carried over by reference"
    assert found["daily"] == [["A-B", 1], ["B/C=D", 3], ["E-F", 4]], "a table that grows, one partition replaced"
    assert found["whole"] == [True]
    assert "boom" in found["declined"]
    assert found["after failure"] == []
    assert found["fenced"].startswith("this attempt has been replaced")
    assert found["after fence"] == []
    client = server.client()
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
    keys = [item["Key"] for item in client.list_objects_v2(Bucket=bucket, Prefix="team/cairn/")["Contents"]]
    assert not [key for key in keys if key.endswith("/") or "_SUCCESS" in key or "magic" in key or "_temporary" in key]


def test_files_in_a_bucket_and_tables_appended_to(found: dict[str, Found]) -> None:
    """semantics T11, C4: by their names as they are, whatever Spark reads as a pattern, and by their tags"""
    here = found["s3_sources"]
    assert here["Iceberg"] == here["Delta"] == [[0, 1, 2, 3], True, 2], "each row once, and no other file stays"
    for name in ("Iceberg", "Delta"):
        assert here[f"{name} requests"] < 160, "a second write by the committer costs 60 more"
    assert here["odd"], "each by its name, and no other"
    assert "'co:lon[1].csv'" in here["refused"]
    assert "b.csv was written again" in here["before"]
    assert "b.csv was written again" in here["while"]
    assert here["total"] == 31, "each file once, as it is"
    assert here["no bucket"].startswith("the source 'files' cannot list s3://no-such-bucket")


@pytest.mark.soak  # tests/unit/storage/test_bucket_headers.py has each header and the conf of s3a that sends it
def test_a_bucket_that_asks_for_headers_gets_them_from_s3a_too(tmp_path: Path) -> None:  # semantics W3
    """Each request of boto3 and of s3a has them, or is refused: the server's own account is the bucket's owner."""
    with S3Server(access_key=OWNER) as server, S3Proxy(server.endpoint_url) as proxy:
        bucket = server.create_bucket("asks")
        proxy.rules += [demands(option) for option in ASKED]
        s3 = S3Options(proxy.url, server.region, **{option: value for option, (_, value) in ASKED.items()})  # type: ignore[arg-type]
        conf = {"spark.jars": ",".join(map(str, s3a_jars())), **s3a_conf(s3, bucket), **store_conf(s3)}
        [found] = run_in_turn(server, tmp_path, s3_headers=[f"s3://{bucket}/cairn", json.dumps(conf)])
    assert found["totals"] == [["A-B", 1], ["B-C", 2]]
    assert found["daily"] == [["one", 1], ["two", 1]]
    assert found["league"] == [["two", 7]]
    assert found["whole"] == [True] * len(found["whole"])
    assert found["with all"] == "none"
    for key, refused in found["without"].items():
        assert "AccessDenied" in refused, f"{key} is what sends the header"
    agents = {"boto" if "Boto3" in lowered(each)["user-agent"] else "s3a" for each in proxy.requests}
    assert agents == {"boto", "s3a"}


def _check_rescaled(found: Found) -> None:
    """semantics R4, P1: from 2 subtasks by a savepoint to 7, and from DataFrames to 3"""
    assert found["rescaled"]
    assert found["bootstrapped"]
    assert found["same rows"], "as the command prints them, and as Spark reads the path that it prints"
    assert len(found["rows read"]) == 7
    assert all(0 < read <= in_row_groups < 6_000 / 3 for read, in_row_groups in found["rows read"])
