"""Makes Spark drivers start fast: an archive of the classes that a driver loads, and a compiler that does not try hard.

Measured on two cores, a driver that writes one small Parquet file: 8 s as it is, under 4 s with the archive. The JVM
ignores an archive that does not fit it.
"""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path

import pyspark

from ..setup.base import CACHE
from ..setup.java import ensure_java

_SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
OPTION = "spark.driver.extraJavaOptions"


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
    """Give the Spark conf of a driver that starts from the archive, where there is one."""
    found = archive()
    return {
        OPTION: f"{_SMALL} -XX:SharedArchiveFile={found} -Xlog:cds=off -Xlog:cds+dynamic=off"
        if found.exists()
        else _SMALL
    }


def archiving_conf() -> dict[str, str]:
    """Give the Spark conf of a driver that writes the archive when it ends, which takes it 10 to 20 s more."""
    found = archive()
    found.parent.mkdir(parents=True, exist_ok=True)
    return {OPTION: f"{_SMALL} -XX:ArchiveClassesAtExit={found} -Xlog:cds=off -Xlog:cds+dynamic=off"}
