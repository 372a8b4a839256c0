"""A driver maps the archive of classes that the command has made for this Spark (scripts/harness/spark/start.py)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from airflow_cairn.hooks import class_archive
from airflow_cairn.hooks.spark_site import SparkSite
from scripts.harness.spark.start import archive
from scripts.setup.java import ensure_java
from scripts.setup.venv import VENV

# How fast a JVM starts, and no result; tests/unit/hooks/ has the conf.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

APPLICATION = """
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
print("MAPPED", [line.split()[-1] for line in Path(f"/proc/{jvm}/maps").read_text().splitlines() if ".jsa" in line])
"""


def test_a_driver_maps_the_archive_that_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(VENV / "bin" / "python"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    # All drivers of this environment would start from one in its Spark, and not only those that are to.
    monkeypatch.setattr(class_archive, "FILE", str(archive()))
    program = str(VENV / "bin" / "spark-submit")
    application = tmp_path / "application.py"
    application.write_text(APPLICATION)
    conf = {"spark.ui.enabled": "false", **class_archive.class_archive_conf({}, SparkSite(os.environ, program))}
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [program, "--master", "local[1]", *words, str(application)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert str(archive()) in done.stdout, done.stdout + done.stderr[-3000:]
