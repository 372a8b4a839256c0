"""Judges a machine's equipment for a Spark driver; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...checkpoint.health.findings import Finding, error, warning
from ...spark.pyspark_versions import check_pyspark
from ...spark.session import OLDEST, numbers_of
from .spark_facts import SparkFacts

JAVA = 17
"""The oldest supported Java: Spark 4 requires it, and Cairn is tested on no older one."""
FIRST_CLIENT = (4, 0)
"""The first Spark with a `pyspark-client`; Airflow's Spark provider requires that package, so no older Spark fits."""
TOO_NEW = (5, 0)
"""The first Spark that is too new."""
PYTHON = (3, 10)
"""The oldest Python for Cairn's part of a driver."""

_NUMBERS = re.compile(r"\d+(\.\d+)*")
_PYTHON_CONF = "Set `spark.pyspark.python` to one Python for driver and executors (docs/how-to/run-on-a-cluster.md)"


def check_spark(facts: SparkFacts) -> Iterator[Finding]:
    """Find problems that keep a driver from starting."""
    if facts.program is None or facts.home is None:
        yield error(
            "spark-missing",
            "spark-submit",
            "no spark-submit with a Spark beside it was found by PATH and SPARK_HOME",
            "no stage can be submitted from this machine",
            "pip install 'airflow-cairn[spark]', with its environment's `bin` on PATH; or set SPARK_HOME to the home "
            "of a Spark",
        )
        return
    if facts.java is None:
        yield error(
            "java-missing",
            "java",
            "no Java was found by JAVA_HOME and PATH, or it does not start",
            "spark-submit is a Java program, so no stage can be submitted from this machine",
            f"Install Java {JAVA} or newer, and set JAVA_HOME: `apt-get install openjdk-{JAVA}-jre-headless`",
        )
    elif facts.java < JAVA:
        yield error(
            "java-old",
            "java",
            f"this Java is version {facts.java}",
            f"Cairn needs Java {JAVA} or newer, as Spark 4 does",
            f"Set JAVA_HOME to a newer one: `apt-get install openjdk-{JAVA}-jre-headless`",
        )
    if facts.spark is not None and not OLDEST <= numbers_of(facts.spark) < TOO_NEW:
        yield error(
            "spark-unfit",
            str(facts.home),
            f"spark-submit starts Spark {facts.spark}",
            "Cairn needs Spark 3.5 or newer, below 5",
            "pip install 'airflow-cairn[spark]', or set SPARK_HOME to the home of such a Spark",
        )


def check_packages(facts: SparkFacts) -> Iterator[Finding]:
    """Compare the packages that hold PySpark with each other and with the Spark that is started."""
    full, client = facts.packages.get("pyspark"), facts.packages.get("pyspark-client")
    yield from check_pyspark(full, client)
    used = full or client
    if used and facts.spark and FIRST_CLIENT <= numbers_of(facts.spark) != numbers_of(used):
        yield warning(
            "spark-versions",
            str(facts.home),
            f"spark-submit starts Spark {facts.spark}, and this Python has PySpark {used}",
            "a client of a Spark Connect server would speak to another version, and tests run on another than stages",
            _one_version(facts.spark, facts.packages),
        )


def _one_version(spark: str, packages: Mapping[str, str]) -> str:
    """Return how to get one version: from the installed ones first, because not every Spark exists as a package."""
    names = [name for name in ("pyspark", "pyspark-client") if name in packages]
    if "pyspark" in packages:
        start = "export SPARK_HOME=$(python -c 'import pyspark; print(pyspark.__path__[0])')"
    else:
        start = f"Set SPARK_HOME to the home of Spark {packages['pyspark-client']}"
    # The part behind the numbers is the vendor's, and no package has it.
    release = _NUMBERS.match(spark)
    assert release is not None
    install = f"pip install {' '.join(f'{name}=={release[0]}' for name in names)}"
    gaps = f"{names[-1]} is not there for each Spark"
    return f"{start}. Or, if the package index has that version: {install} ({gaps})"


def check_python(facts: SparkFacts) -> Iterator[Finding]:
    """Compare the Pythons of driver and executors, as far as they are on this machine."""
    driver, executor = facts.driver_python, facts.executor_python
    if driver and executor and driver != executor:
        yield error(
            "python-versions",
            "spark.pyspark.python",
            f"the driver's Python is {driver}, and the executors' {executor}",
            "Spark refuses each function in Python (PYTHON_VERSION_MISMATCH)",
            _PYTHON_CONF,
        )
    if driver and tuple(map(int, driver.split("."))) < PYTHON:
        yield error(
            "python-old",
            "spark.pyspark.python",
            f"the driver's Python is {driver}",
            "Cairn's part of the driver needs Python {}.{} or newer".format(*PYTHON),
            _PYTHON_CONF,
        )


def check_s3a_jars(facts: SparkFacts) -> Iterator[Finding]:
    """Find jars that Spark lacks for an `s3://` storage, unless the stages bring them themselves."""
    if facts.home is None or facts.conf.get("spark.driver.extraClassPath"):
        return
    hadoop = facts.version_of("hadoop-client-api-")
    own = facts.version_of("hadoop-aws-")
    packages = "Give `packages` to the stages as in docs/how-to/run-on-s3.md, or put the jars into `{}`"
    if not facts.is_given("hadoop-aws"):
        yield warning(
            "jars-missing",
            "hadoop-aws",
            "neither Spark's jars nor its conf have hadoop-aws",
            "a stage that does not bring it itself fails with `No FileSystem for scheme s3a`",
            packages.format(facts.home / "jars"),
        )
    elif own and hadoop and own != hadoop:
        yield error(
            "jars-versions",
            "hadoop-aws",
            f"hadoop-aws is {own}, and Spark's Hadoop {hadoop}",
            "the two share internal classes: reading or writing s3a fails with NoSuchMethodError",
            f"Replace it by hadoop-aws-{hadoop}.jar in `{facts.home / 'jars'}`",
        )
    if facts.is_given("hadoop-aws") and not facts.is_given("spark-hadoop-cloud"):
        yield warning(
            "committer-missing",
            "spark-hadoop-cloud",
            "neither Spark's jars nor its conf have spark-hadoop-cloud",
            "Spark commits to S3 by copying every file: safe, and slow",
            packages.format(facts.home / "jars"),
        )
    if facts.conf.get("spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version") == "2":
        yield error(
            "committer-unsafe",
            "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version",
            "the file committer's algorithm is version 2",
            "it makes files visible before the job has succeeded, so Cairn refuses the write",
            "Take this conf out of spark-defaults.conf",
        )
