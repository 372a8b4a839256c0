"""A real `spark-submit` with nothing but the runtime zip, on the PySpark that is locked and on the oldest supported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_cairn.checkpoint.answers import Failed
from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark.handover.runtime_zip import runtime_zip
from scripts.harness.spark.start import fast_conf
from scripts.setup.base import CACHE, only_one, run
from scripts.setup.uv import ensure_uv
from tests.real.spark.pipeline import Pipeline

pytestmark = pytest.mark.spark

OLDEST = "4.0.0"
APPLICATION = Path(__file__).parent / "applications" / "totals.py"
WINDOW = Slice("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")


def oldest_pyspark() -> Path:
    """Give the programs of a virtual environment with the oldest PySpark and nothing else, made once."""
    home = CACHE / f"pyspark-{OLDEST}"
    stamp = home / ".complete"
    with only_one():
        if not stamp.exists():
            uv = ensure_uv()
            run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, home])
            into = ("--python", home / "bin" / "python")
            # Without this project's settings: by them every PySpark is the newest.
            run([uv, "pip", "install", "--no-config", "--quiet", "--compile-bytecode", *into, f"pyspark=={OLDEST}"])
            stamp.touch()
    return home / "bin"


class Submitter:
    """Submits the application as an operator would, from one environment."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.zip = runtime_zip(folder)
        where: list[str | Path] = [programs / "python", "-c", "import pyspark; print(*pyspark.__path__)"]
        self.spark_home = subprocess.run(where, capture_output=True, text=True, check=True, cwd=folder).stdout.strip()
        # Without site-packages: PySpark comes from its own home, Cairn from the zip, and nothing else is there.
        python = folder / "bare-python"
        python.write_text(f'#!/bin/sh\nexec "{programs / "python"}" -S "$@"\n')
        python.chmod(0o755)
        self.python = python

    def submit(self, conf: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **fast_conf(), **conf}
        words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK_"))}
        return subprocess.run(
            [
                str(self.programs / "spark-submit"),
                *("--master", "local[2]", "--py-files", str(self.zip)),
                *words,
                str(APPLICATION),
                *arguments,
            ],
            env={**environ, "SPARK_HOME": self.spark_home, "PYSPARK_PYTHON": str(self.python)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


def found(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-4000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    result: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return result


@pytest.fixture(params=["locked", "oldest"])
def submitter(request: pytest.FixtureRequest, tmp_path: Path) -> Submitter:
    """The environment of this test run, or one with the oldest PySpark."""
    programs = Path(sys.executable).parent if request.param == "locked" else oldest_pyspark()
    return Submitter(programs, tmp_path)


def test_epochs_by_spark_submit(submitter: Submitter, tmp_path: Path) -> None:
    pipeline = Pipeline(f"file://{tmp_path}/lake", None)
    pipeline.trigger("one", WINDOW)
    first = found(submitter.submit(pipeline.conf(pipeline.begin("one"))))
    assert pipeline.complete("one") == 1
    assert first["cairn"].startswith(str(tmp_path)), "from the zip, as Spark has copied it"
    assert ".zip" in first["cairn"]
    assert (first["airflow"], first["boto3"]) == (False, False)
    assert (first["runs"], first["seen"]) == (1, [])
    assert first["slice"] == [WINDOW.start, WINDOW.end]
    if str(submitter.programs).startswith(str(CACHE)):
        assert first["spark"] == OLDEST

    pipeline.trigger("two")
    failed = submitter.submit(pipeline.conf(pipeline.begin("two")), "fail")
    assert failed.returncode != 0
    assert "ValueError: this day is broken" in failed.stderr + failed.stdout
    assert pipeline.listing("chk-0000000002/state/") == []
    progress = pipeline.coordinator.progress(epoch_name("two"))
    assert isinstance(progress, Failed)
    assert progress.detail == "routes: ValueError: this day is broken"

    second = found(submitter.submit(pipeline.conf(pipeline.begin("two"))))
    assert (second["runs"], second["seen"], second["league"]) == (2, [0, 1, 2], [0, 1, 2])
    assert pipeline.complete("two") == 3


def test_an_application_that_was_not_submitted_by_cairn_says_so(tmp_path: Path) -> None:
    done = Submitter(Path(sys.executable).parent, tmp_path).submit({})
    assert done.returncode != 0
    assert "this application was not submitted by SparkEpochOperator: conf spark.cairn.handover is missing" in (
        done.stderr + done.stdout
    )
