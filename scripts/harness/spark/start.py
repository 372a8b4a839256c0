"""Makes Spark drivers start fast: an archive of the classes that a driver loads, and a compiler that does not try hard.

Measured on two cores, a driver that writes one small Parquet file: 8 s as it is, under 4 s with the archive. The JVM
ignores an archive that does not fit it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from ...setup.base import CACHE, only_one, say
from ...setup.java import ensure_java
from ...setup.venv import VENV

_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
OPTION = "spark.driver.extraJavaOptions"
EXECUTOR_OPTION = "spark.executor.extraJavaOptions"


@cache
def archive() -> Path:
    """Give where the archive for this Java and this Spark stands, or will stand."""
    java = ensure_java() / "bin" / "java"
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[1]
    name = "".join(letter if letter.isalnum() else "-" for letter in f"{pyspark.__version__} {version}").strip("-")
    # It holds the jars' paths, so each environment has its own.
    name += "-" + hashlib.sha256(pyspark.__file__.encode()).hexdigest()[:8]
    return CACHE / "spark-classes" / f"{name}.jsa"


def fast_conf() -> dict[str, str]:
    """Give the Spark conf of an application whose JVMs start from the archive, where there is one.

    An executor on a standalone cluster of this machine has the driver's class path, so the archive fits it too: it
    takes a third of the processor time that it takes as it is.
    """
    found = archive()
    options = (
        f"{_SMALL} -XX:SharedArchiveFile={found} -Xlog:cds=off -Xlog:cds+dynamic=off" if found.exists() else _SMALL
    )
    return {OPTION: options, EXECUTOR_OPTION: options}


def archiving_conf(target: Path | None = None) -> dict[str, str]:
    """Give the Spark conf of a driver that writes the archive when it ends, which takes it 10 to 20 s more.

    Args:
        target: where to; None for where drivers look for it.
    """
    found = target or archive()
    found.parent.mkdir(parents=True, exist_ok=True)
    return {OPTION: f"{_SMALL} -XX:ArchiveClassesAtExit={found} -Xlog:cds=off -Xlog:cds+dynamic=off"}


def ensure_archive() -> None:
    """Write the archive, unless it is there, by a driver that does a little of what the tests' drivers do."""
    if archive().exists():
        return
    with only_one():
        if archive().exists():
            return
        say("archiving the classes that a Spark driver loads")
        draft = archive().with_suffix(".draft")
        with tempfile.TemporaryDirectory(prefix="cairn-archive-") as folder:
            words = [word for name, value in archiving_conf(draft).items() for word in ("--conf", f"{name}={value}")]
            subprocess.run(
                [
                    VENV / "bin" / "spark-submit",
                    *("--master", "local[2]", "--conf", "spark.ui.enabled=false"),
                    *("--conf", "spark.sql.shuffle.partitions=2", *words),
                    Path(__file__).with_name("first_driver.py"),
                    f"{folder}/rows",
                ],
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": str(VENV / "bin" / "python"),
                    "JAVA_HOME": str(ensure_java()),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_HOSTNAME": "localhost",
                },
                cwd=folder,
                check=True,
                capture_output=True,
            )
        # Only a whole one: a driver that starts meanwhile reads none.
        draft.replace(archive())
