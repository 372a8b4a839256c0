"""Starts drivers beside their tasks from an archive of the classes that they load, where somebody has made one.

A driver that starts from it takes about half of the time. An archive fits one Java and one Spark, so it stands in the
home of Spark and is made where that is installed: `python -m airflow_cairn.hooks.class_archive`. The JVM ignores an
archive that does not fit. Cairn makes none by itself: the JVM that writes it takes 10 to 20 seconds more to end, ends
with an error where it cannot write, and in a container of its own a driver would only write and never read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .drivers.spark_site import SparkSite

FILE = "cairn-classes.jsa"
"""The archive, in the home of Spark."""
DEFAULTS, EXTRA = "spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_APPLICATION = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.getOrCreate()
rows = spark.range(1000, numPartitions=2).select("id", (F.col("id") % 10).alias("key"))
rows.write.parquet(sys.argv[1] + "/rows")
read = spark.read.parquet(sys.argv[1] + "/rows")
counted = read.union(read).groupBy("key").agg(F.count("*").alias("rows"), F.sum("id").alias("sum"))
counted.repartition(2, "key").sortWithinPartitions("key").write.parquet(sys.argv[1] + "/counted")
counted.collect()
"""


def class_archive_conf(conf: Mapping[str, Any], site: SparkSite) -> dict[str, str]:
    """Give the conf by which a driver that runs beside its task starts from the archive.

    Args:
        conf: what the operator submits with.
        site: where it is submitted.

    Returns:
        Nothing where there is no archive, or where author or site say how drivers share classes, or set
        `spark.driver.defaultJavaOptions`.
    """
    archive = _archive(site)
    if archive is None or not archive.is_file() or _is_said_otherwise(conf, site):
        return {}
    return {DEFAULTS: f"-XX:SharedArchiveFile={archive} {_QUIET}"}


def lacks_archive(conf: Mapping[str, Any], site: SparkSite) -> bool:
    """Tell whether drivers would start from an archive that can be made and is not there.

    Args:
        conf: what stages are submitted with.
        site: where they are submitted.
    """
    archive = _archive(site)
    if archive is None or archive.is_file() or _is_said_otherwise(conf, site):
        return False
    # Spark has these folders on the driver's class path, and Java makes no archive while one there has files.
    settings = site.environ.get("SPARK_CONF_DIR") or archive.parent / "conf"
    folders = [settings, *filter(None, map(site.environ.get, ("HADOOP_CONF_DIR", "YARN_CONF_DIR")))]
    return not any(Path(each).is_dir() and any(Path(each).iterdir()) for each in folders)


def make(binary: str = "spark-submit", archive: str | Path | None = None) -> Path:
    """Make the archive, by a driver that reads and writes a little Parquet.

    Args:
        binary: `spark-submit`, or the path of it.
        archive: the file; None for the one in the home of Spark, where drivers look for it.

    Raises:
        FileNotFoundError: there is no such program, or no Spark where it is.
        subprocess.CalledProcessError: the driver could not write it; its output says why.
    """
    archive = Path(archive) if archive else _archive(SparkSite(os.environ, binary))
    if archive is None:
        raise FileNotFoundError(f"there is no Spark beside {binary}: set SPARK_HOME")
    with tempfile.TemporaryDirectory(prefix="cairn-classes-") as folder:
        application = Path(folder, "application.py")
        application.write_text(_APPLICATION)
        draft = archive.with_suffix(f".{os.getpid()}")
        options = f"{DEFAULTS}=-XX:ArchiveClassesAtExit={draft} {_QUIET}"
        command = [binary, "--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", options]
        try:
            subprocess.run(
                [*command, str(application), folder],
                env={"PYSPARK_PYTHON": sys.executable, **os.environ},
                check=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            draft.chmod(0o644)
            draft.replace(archive)  # a driver that starts meanwhile reads a whole one, or none
        finally:
            draft.unlink(missing_ok=True)
    return archive


def main(words: list[str]) -> int:
    """Make the archive and say where it is.

    Args:
        words: `spark-submit`, or the path of it, and the file of the archive; both may be left out, as in `make`.

    Returns:
        The exit status.
    """
    try:
        sys.stdout.write(f"{make(*words[:2])}\n")
    except subprocess.CalledProcessError as error:
        said = error.stdout.decode(errors="replace")[-4000:]
        sys.stderr.write(f"{said}\nno archive was made: the driver ended with {error.returncode}\n")
        return 1
    except OSError as error:
        sys.stderr.write(f"no archive was made: {error}\n")
        return 1
    return 0


def _is_said_otherwise(conf: Mapping[str, Any], site: SparkSite) -> bool:
    """Tell whether author or site say how drivers share classes, or set the options by which Cairn would say it."""
    given, environ = {**site.conf, **conf}, site.environ
    options = f"{given.get(EXTRA, '')} {environ.get('JAVA_TOOL_OPTIONS', '')} {environ.get('SPARK_SUBMIT_OPTS', '')}"
    return bool(given.get(DEFAULTS)) or any(
        word in options for word in ("-Xshare", "SharedArchive", "ArchiveClasses", "AOT")
    )


def _archive(site: SparkSite) -> Path | None:
    """Give where the archive of a `spark-submit` stands, or will stand; None where there is no Spark."""
    return next((home / FILE for home in site.homes() if (home / "jars").is_dir()), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
