"""An archive of classes is made for a real Spark, and a driver maps it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from airflow_cairn.hooks.class_archive import FILE, class_archive_conf, make
from airflow_cairn.hooks.spark_site import SparkSite
from scripts.setup.java import ensure_java
from scripts.setup.venv import VENV

pytestmark = pytest.mark.spark

APPLICATION = """
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
print("MAPPED", [line.split()[-1] for line in Path(f"/proc/{jvm}/maps").read_text().splitlines() if ".jsa" in line])
"""


def test_a_driver_maps_the_archive_that_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "spark"
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    for name, value in {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(VENV / "bin" / "python"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    program = str(home / "bin" / "spark-submit")
    assert make(program) == home / FILE

    application = tmp_path / "application.py"
    application.write_text(APPLICATION)
    conf = {"spark.ui.enabled": "false", **class_archive_conf({}, SparkSite(os.environ, program))}
    words = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [program, "--master", "local[1]", *words, str(application)], capture_output=True, text=True, check=False
    )
    assert f"{home / FILE}" in done.stdout, done.stdout + done.stderr[-3000:]
