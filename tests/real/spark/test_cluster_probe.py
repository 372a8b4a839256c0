"""The report of the doctor's application, by a Spark in this process; test_cluster_doctor.py has clusters."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from airflow_cairn.spark import cluster_probe
from airflow_cairn.tasks.health.facts import ClusterFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_is_asked_of_driver_and_executors(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    cluster_probe.main(["--of-a-service", cluster_probe.REPORT, str(file)])
    assert [*tmp_path.iterdir()] == [file]
    found = ClusterFacts.of(file.read_text(), over_connect=False)
    java = str(spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").collect()[0][0])
    version, python = pyspark.__version__, platform.python_version()
    assert (found.spark, found.pyspark, found.java, found.python) == (version, version, java, python)
    assert (found.executor_spark, found.executor_java, found.executor_python) == ((version,), (java,), (python,))
    assert (len(found.hosts), found.failed, found.storage) == (1, {}, None)


def test_a_report_through_the_storage(spark: SparkSession, tmp_path: Path) -> None:
    """It says too what the driver has found of the storage: here that nobody has handed one over."""
    cluster_probe.main([cluster_probe.REPORT, f"file://{tmp_path}/report"])
    (line,) = spark.read.text(f"file://{tmp_path}/report").collect()
    assert "spark.cairn" in json.loads(line.value)["storage"]["failed"]
