"""Uploads on S3 that a replaced driver has begun: none is left, whether it notices or is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.handover.conf import s3a_conf
from airflow_cairn.storage import S3Options
from scripts.demo.compare import leftovers
from scripts.harness.s3_server import S3Server
from scripts.harness.wait import wait_until
from scripts.s3a_jars import s3a_jars
from tests.real.spark.pipeline import Pipeline
from tests.support.acking import ack_of
from tests.support.children import tell

pytestmark = [pytest.mark.s3, pytest.mark.spark]

ROOT = Path(__file__).parents[3]
APPLICATION = Path(__file__).parent / "applications" / "s3_replaced.py"


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a driver, its JVM first: it must not notice that its Python has gone."""
    if process.poll() is None:
        for member in reversed([psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]):
            member.kill()
    process.communicate()


@pytest.fixture
def storage(s3_bucket: str) -> str:
    return f"s3://{s3_bucket}/team/cairn"


@pytest.fixture
def driver(s3_server: S3Server, storage: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The application, by the magic committer: every file is an upload until its job commits."""
    jars = ",".join(str(jar) for jar in s3a_jars())
    conf = {"spark.jars": jars, **s3a_conf(S3Options(s3_server.endpoint_url, s3_server.region))}
    with (tmp_path / "stderr").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(APPLICATION), storage, s3_server.endpoint_url, s3_server.region, json.dumps(conf)],
            env={**os.environ, **s3_server.env, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    yield process
    kill(process)


@pytest.fixture
def pipeline(s3_server: S3Server, storage: str) -> Pipeline:
    """Job of the driver, seen from another process."""
    keys = (s3_server.access_key, s3_server.secret_key)
    return Pipeline(storage, None, s3=S3Options(s3_server.endpoint_url, s3_server.region, *keys))


def uploads(pipeline: Pipeline, checkpoint: int) -> list[str]:
    """Give the pending uploads of a checkpoint's stage."""
    folder = f"flights/chk-{checkpoint:010}/state/routes/"
    return [upload.key for upload in pipeline.store.uploads("flights/") if upload.key.startswith(folder)]


def take_over(pipeline: Pipeline, run_id: str) -> Submit:
    """Do what the next try of the stage's task does: fail over."""
    answer = pipeline.coordinator.begin(epoch_name(run_id), "routes", "the next try")
    assert isinstance(answer, Submit)
    return answer


def test_nothing_is_left_of_uploads_that_were_begun(
    driver: subprocess.Popen[str], pipeline: Pipeline, tmp_path: Path
) -> None:
    """semantics A2, F3, W7: a driver that lives on gives its uploads up; those of a dead one the cleaner does."""

    def said() -> str:
        return (tmp_path / "stderr").read_text()[-4000:]

    def both_write(checkpoint: int) -> None:
        wait_until(lambda: len(uploads(pipeline, checkpoint)) == 2, 300, "two pending uploads", details=said)

    both_write(1)
    next_try = take_over(pipeline, "one")
    assert driver.stdout is not None
    assert "attempt 2, checkpoint 2, runs the stage now" in driver.stdout.readline(), said()
    assert uploads(pipeline, 1) == []
    assert pipeline.listing("chk-0000000001/state/") == []
    pipeline.coordinator.acknowledge(ack_of(next_try.handover))
    assert pipeline.complete("one") == 2

    tell(driver, "go on")
    both_write(3)
    kill(driver)
    next_try = take_over(pipeline, "two")
    assert len(uploads(pipeline, 3)) == 2, "nobody has cleaned yet"
    pipeline.coordinator.acknowledge(ack_of(next_try.handover))
    assert pipeline.complete("two") == 4
    assert leftovers(pipeline.coordinator) == []
