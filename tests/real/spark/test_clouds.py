"""Epochs on Google Cloud Storage (fake-gcs-server) and Azure (Azurite), by the manifest committer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from airflow_cairn.spark.handover.conf import azure_conf, gcs_conf
from scripts.azure_jars import azure_jars
from scripts.gcs_jars import gcs_jars
from scripts.harness.azure_server import HOST, AzureServer
from scripts.harness.gcs_server import GcsServer
from scripts.harness.spark.start import small_conf
from scripts.setup.venv import VENV

# Spark by other connectors than s3a; tests/unit/storage/ uses both stores, test_committer.py the committer.
pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.soak]

ROOT = str(Path(__file__).parents[3])
ENDS_WITHIN_S = 30
APPLICATION = Path(__file__).parent / "applications" / "cloud_epochs.py"


def test_epochs_on_google_cloud_storage(gcs_server: GcsServer, tmp_path: Path) -> None:
    conf = {"spark.jars": ",".join(map(str, gcs_jars())), **gcs_conf(gcs_server.options)}
    check_epochs(f"{gcs_server.root_of('epochs')}/team/cairn", gcs_server.endpoint_url, conf, tmp_path)


def test_epochs_on_azure(azure_server: AzureServer, tmp_path: Path) -> None:
    conf = {"spark.jars": ",".join(map(str, azure_jars())), **azure_conf(azure_server.options, HOST)}
    check_epochs(f"{azure_server.root_of('epochs')}/team/cairn", azure_server.endpoint_url, conf, tmp_path)


def check_epochs(storage: str, endpoint_url: str, conf: dict[str, str], tmp_path: Path) -> None:
    """semantics A4, A5, C4, R4, W1: two epochs, a driver that dies in the second, and a job moved by a savepoint

    And the JVM ends with its program: hadoop-azure's threads have kept it for minutes.
    """
    words = [word for key, value in {**conf, **small_conf()}.items() for word in ("--conf", f"{key}={value}")]
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), ROOT)))
    done = subprocess.run(
        [VENV / "bin" / "spark-submit", *words, str(APPLICATION), storage, endpoint_url],
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert time.monotonic() - found["stopped at"] < ENDS_WITHIN_S
    assert found["manifest"]
    assert found["killed at"] != "None", "the second epoch's driver died at a write"
    assert found["restored"] == [["A-B", 1], ["A-B", 1]], "each epoch once"
    assert found["many"] == 1000
    assert found["daily"] == [["A-B", 1], ["A-B", 1], ["B/C=D", 2], ["B/C=D", 2], ["E-F", 4]]
    assert found["league"] == [["A-B", 7]]
    assert found["whole"] == [True] * len(found["whole"]) != []
    assert found["left"] == []
