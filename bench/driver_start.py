"""Measures how much faster a Spark driver starts from a class archive: one small application, in turn with and without.

Run it as `.venv/bin/python -m bench.driver_start [--runs N] [--json]` on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from scripts.harness.spark.start import ensure_archive, fast_conf
from scripts.setup.java import ensure_java

_APPLICATION = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
spark.range(10000).selectExpr("id % 10 as k", "id").groupBy("k").count().write.parquet(sys.argv[1])
"""


def seconds(folder: Path, number: int, conf: Mapping[str, str]) -> float:
    """Run the application once, and return its duration."""
    application = folder / "application.py"
    application.write_text(_APPLICATION)
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    command = [
        str(Path(sys.executable).parent / "spark-submit"),
        *("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
        *words,
        str(application),
        str(folder / f"out-{number}"),
    ]
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "JAVA_HOME": str(ensure_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    begin = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, env=env, cwd=folder)
    return time.monotonic() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each kind (default: 5)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plain: list[float] = []
    fast: list[float] = []
    ensure_archive()
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        folder = Path(name)
        for run in range(options.runs):
            plain.append(seconds(folder, 2 * run, {}))
            fast.append(seconds(folder, 2 * run + 1, fast_conf()))
    result = {
        "ratio_of_medians": round(statistics.median(fast) / statistics.median(plain), 2),
        "archive_s": [round(each, 1) for each in fast],
        "plain_s": [round(each, 1) for each in plain],
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(f"with the class archive a driver takes {result['ratio_of_medians']} of the time")
        print(f"archive: {result['archive_s']} s, plain: {result['plain_s']} s")


if __name__ == "__main__":
    main()
