"""Starts drivers beside their tasks from an archive of the classes that they load, if a user has made one.

Such a driver starts in about half of the time. An archive fits one Java and one Spark. So it lies in the home of Spark,
and is made on that machine: `python -m airflow_cairn.hooks.class_archive`. The JVM ignores an archive that does not
fit. Cairn makes no archive by itself: the JVM that writes one takes 10 to 20 seconds longer to end, ends with an error
if it cannot write, and in a container for one driver writes an archive that is never read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .spark_site import SparkSite

FILE = "cairn-classes.jsa"
"""Name of the archive, in the home of Spark."""
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
    """Return the conf with which a driver that runs beside its task starts from the archive.

    Returns:
        Empty if there is no archive, or if author or site configure how drivers share classes, or set
        `spark.driver.defaultJavaOptions`.
    """
    archive = _archive(site)
    if archive is None or not archive.is_file() or _shares_classes_itself(conf, site):
        return {}
    return {DEFAULTS: f"-XX:SharedArchiveFile={archive} {_QUIET}"}


def lacks_archive(conf: Mapping[str, Any], site: SparkSite) -> bool:
    """Return whether drivers could start from an archive, and none has been made."""
    archive = _archive(site)
    if archive is None or archive.is_file() or _shares_classes_itself(conf, site):
        return False
    # Spark puts these folders on the driver's class path, and Java makes no archive if a folder there has files.
    settings = site.environ.get("SPARK_CONF_DIR") or archive.parent / "conf"
    folders = [settings, *filter(None, map(site.environ.get, ("HADOOP_CONF_DIR", "YARN_CONF_DIR")))]
    return not any(Path(each).is_dir() and any(Path(each).iterdir()) for each in folders)


def make(binary: str = "spark-submit", archive: str | Path | None = None) -> Path:
    """Make the archive, in the home of Spark unless a file is named, by a driver that reads and writes some Parquet.

    Raises:
        FileNotFoundError: the program does not exist, or there is no Spark at its place.
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
            draft.replace(archive)  # a driver that starts now reads a whole archive, or none
        finally:
            draft.unlink(missing_ok=True)
    return archive


def main(words: list[str]) -> int:
    """Make the archive and print its path; the words are the arguments of `make`."""
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


def _shares_classes_itself(conf: Mapping[str, Any], site: SparkSite) -> bool:
    """Return whether author or site configure how drivers share classes, or set the options that Cairn would use."""
    options = java_options(conf, site)
    return bool({**site.conf, **conf}.get(DEFAULTS)) or any(
        word in options for word in ("-Xshare", "SharedArchive", "ArchiveClasses", "AOT")
    )


def java_options(conf: Mapping[str, Any], site: SparkSite) -> str:
    """Return all options of author and site for the JVM of a driver that runs beside its task."""
    given, environ = {**site.conf, **conf}, site.environ
    options = (given.get(DEFAULTS), given.get(EXTRA), *map(environ.get, ("JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")))
    return " ".join(str(each) for each in options if each)


def _archive(site: SparkSite) -> Path | None:
    """Return the path of a `spark-submit`'s archive, whether or not it exists; None if there is no Spark."""
    return next((home / FILE for home in site.homes() if (home / "jars").is_dir()), None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
