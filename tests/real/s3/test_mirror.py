"""The runbook for a second region, typed as it stands on its page, on the real S3 server; other providers (M1 to M6).

The files are written in parts, as s3a writes them, so each copy of one has another etag.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.errors import CheckpointError, RefusedError
from airflow_cairn.cli.main import main
from airflow_cairn.storage import ObjectStore, S3Options, open_store
from airflow_cairn.storage.s3.store import S3Store
from scripts.doc_blocks import Kind, doc_blocks
from scripts.harness.gcs_server import GcsServer
from scripts.harness.s3_server import S3Server
from scripts.setup.base import ROOT
from tests.real.s3.test_backup import InParts
from tests.support.world.world import JOB, World
from tests.unit.storage import backends

pytestmark = [pytest.mark.s3, pytest.mark.large]

KILLED = """
import os, signal, sys
from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.storage import S3Options, open_store
east, west, url = sys.argv[1:]
options = S3Options(endpoint_url=url)
def seen(progress):
    if progress.files_done == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Coordinator(open_store(east, s3=options), "flights").mirror(open_store(west, s3=options), seen)
"""
"""One pass, killed by the kernel after its third file."""


class Answers(io.StringIO):
    """A person at a terminal."""

    def isatty(self) -> bool:
        return True


def _typed(line: str, buckets: dict[str, str]) -> list[str]:
    words = shlex.split(line.removeprefix("$ "))[1:]
    for name, bucket in buckets.items():
        words = [word.replace(f"s3://{name}/", f"s3://{bucket}/") for word in words]
    return words


def test_the_runbook(s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = [each for each in doc_blocks(ROOT) if each.kind is Kind.SHELL and each.page.endswith("second-region.md")]
    set_up, away, back = ([line for line in each.text.splitlines() if line] for each in page)
    buckets = {"lake-west": s3_server.create_bucket(f"{s3_bucket}-west"), "lake": s3_bucket}
    for name, value in s3_server.env.items():
        monkeypatch.setenv(name, value)
    options = S3Options(endpoint_url=s3_server.endpoint_url)

    def job(uri: str, before: World | None = None) -> World:
        store = open_store(uri, s3=options)
        assert isinstance(store, S3Store)
        found = InParts(store, s3_server.client())
        if before is not None:
            found.clock, found._tokens = before.clock, before._tokens
        return found

    def typed(lines: list[str]) -> None:
        for line in lines:
            monkeypatch.setattr("sys.stdin", Answers("y\n"))
            assert main([*_typed(line, buckets), "--endpoint-url", s3_server.endpoint_url]) == 0, line

    east_uri, west_uri = f"s3://{buckets['lake']}/cairn", f"s3://{buckets['lake-west']}/cairn"
    east = job(east_uri)
    east.run_epoch("e1", "e2")
    command = [sys.executable, "-c", KILLED, east_uri, west_uri, s3_server.endpoint_url]
    died = subprocess.run(command, env={**os.environ, **s3_server.env}, check=False)
    assert died.returncode == -signal.SIGKILL
    typed(set_up)
    east.run_epoch("e3")
    typed(set_up)
    # The first region goes away while an epoch runs: nobody writes there any more, nor asks it.
    east.trigger("e4")
    handover = east.submit("e4", "clean").handover
    typed(away)
    west = job(west_uri, east)
    assert all(found.whole for found in west.coordinator().verify())
    assert west.folded() == {stage: ["e1", "e2", "e3"] for stage in ("clean", "routes", "airports", "report")}
    west.run_epoch("e4", "e5")
    # The first region comes back: a zombie driver ends, a pass is refused, and so is each trigger.
    east.drive(handover)
    with pytest.raises(RefusedError, match="was activated"):
        east.coordinator().mirror(west.store)
    with pytest.raises(CheckpointError, match="has moved"):
        east.trigger("e4")
    typed(back)
    home = job(f"s3://{buckets['lake']}/cairn-2", east)
    home.run_epoch("e6")
    assert home.folded()["report"] == ["e1", "e2", "e3", "e4", "e5", "e6"]


@pytest.mark.parametrize("way", ["files to S3", pytest.param("S3 to Google Cloud Storage", marks=pytest.mark.soak)])
def test_another_provider(
    way: str, s3_server: S3Server, s3_bucket: str, s3_options: S3Options, tmp_path: Path, gcs_server: GcsServer
) -> None:
    """The first store's tags say nothing at the second; the content's checksum does (semantics W9)."""
    bucket = open_store(f"s3://{s3_bucket}/cairn", s3=s3_options)
    assert isinstance(bucket, S3Store)
    target: ObjectStore = bucket
    first = World(open_store(f"file://{tmp_path}"))
    if way != "files to S3":
        first = InParts(bucket, s3_server.client())
        name = gcs_server.create_bucket("mirror")
        target = backends.gcs(gcs_server.endpoint_url, name).open()
    for epoch in ("e1", "e2", "e3"):
        first.run_epoch(epoch)
        first.coordinator().mirror(target)
    there = Coordinator(target, JOB)
    assert [found.whole for found in there.verify()] == [True, True]
    there.activate()
    second = World(target)
    second.clock, second._tokens = first.clock, first._tokens
    second.run_epoch("e4")
    assert second.folded()["report"] == ["e1", "e2", "e3", "e4"]
