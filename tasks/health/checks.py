"""Judgements of a worker's facts: its equipment for a Spark driver, its cluster, and its Airflow; pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint

from packaging.requirements import Requirement

from ...checkpoint.health.findings import Finding, error, warning
from ...spark.execution.transport import OLDEST, numbers_of
from ...spark.pyspark_versions import check_pyspark
from .facts import ClusterFacts, NoAnswer, Silence, SparkFacts, java_major

JAVA = 17
"""The oldest supported Java: Spark 4 requires it, and Cairn is tested on no older one."""
FIRST_CLIENT = (4, 0)
"""The first Spark with a `pyspark-client`; Airflow's Spark provider requires that package, so no older Spark fits."""
TOO_NEW = (5, 0)
PYTHON = (3, 10)
"""The oldest Python for Cairn's part of a driver."""

_NUMBERS = re.compile(r"\d+(\.\d+)*")
_PYTHON_CONF = "Set `spark.pyspark.python` to one Python for driver and executors (docs/how-to/run-on-a-cluster.md)"


def check_own_spark(facts: SparkFacts) -> Iterator[Finding]:
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
    gaps = f"{names[-1]} does not exist for each Spark"
    return f"{start}. Or, if the package index has that version: {install} ({gaps})"


def check_own_python(facts: SparkFacts) -> Iterator[Finding]:
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


_MISMATCH = re.compile(r"different version:? (\d+\.\d+) than")
"""PySpark's error when an executor's Python differs from the driver's."""
_LOST = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): ")
_TRACE = re.compile(r"\n\s*at ")
_NO_STAGE = "no stage can run there"
_NO_FUNCTION = "each function in Python fails there"
_OF_DRIVERS = "set `spark.pyspark.python` to one Python for driver and executors (docs/how-to/run-on-a-cluster.md)"
_OF_SERVER = "start the Spark Connect server with `PYSPARK_PYTHON` set to such a Python"


def no_answer(conn_id: str, none: NoAnswer) -> Finding:
    """Return the finding that the cluster gave no facts although it was asked."""
    if none.silence is Silence.UNDEFINED:
        return error(
            "connection-missing",
            conn_id,
            none.why,
            "without it Airflow's Spark provider submits to YARN",
            f"airflow connections add {conn_id} --conn-type spark --conn-host spark://HOST --conn-port 7077, or name "
            "another one by `--spark-conn ID`, in the operator by `spark_conn_id`",
        )
    if none.silence is Silence.BROKEN:
        return error("connection-broken", conn_id, none.why, _NO_STAGE, "Correct the connection, then check again")
    return error(
        "cluster-failed",
        conn_id,
        f"the cluster did not run a small application: {none.why}",
        _NO_STAGE,
        "Mend what the message names: host, port or token of the connection; or have, in the cluster's UI, free cores "
        "and memory for an executor as the conf asks for it. Then check again",
    )


def check_cluster_spark(conn_id: str, facts: ClusterFacts) -> Iterator[Finding]:
    """Compare the Spark of driver, executors and client with each other and with the versions that Cairn supports."""
    who = facts.driver
    for name, version in ((who, facts.spark), *(("executors", each) for each in facts.executor_spark)):
        if not OLDEST <= numbers_of(version) < TOO_NEW:
            yield error(
                "spark-unfit",
                conn_id,
                f"Spark of the {name} is {version}",
                "Cairn needs Spark 3.5 or newer, below 5",
                "Have the connection lead to a cluster of such a Spark",
            )
    others = {each for each in facts.executor_spark if numbers_of(each) != numbers_of(facts.spark)}
    if others:
        yield warning(
            "spark-versions",
            conn_id,
            f"the {who} is Spark {facts.spark}, and executors are Spark {', '.join(sorted(others))}",
            "Spark sends its own classes from one to the other: tasks fail, or not all of them",
            f"Submit with Spark {min(others)}, or install Spark {facts.spark} on each machine of the cluster",
        )
    if numbers_of(facts.pyspark) != numbers_of(facts.spark):
        yield warning(
            "spark-versions",
            conn_id,
            f"the {who} is Spark {facts.spark}, and PySpark here is {facts.pyspark}",
            "what is new in one of them may be missing in the other",
            f"pip install pyspark=={facts.spark} pyspark-client=={facts.spark}, or a {who} of Spark {facts.pyspark}",
        )


def check_cluster_java(conn_id: str, facts: ClusterFacts) -> Iterator[Finding]:
    """Find a Java that is too old for Spark 4 and for Cairn."""
    driver = [(facts.driver, facts.java)] if facts.java else []
    for name, version in (*driver, *(("executors", each) for each in facts.executor_java)):
        if java_major(version) < JAVA:
            yield error(
                "java-old",
                conn_id,
                f"Java of the {name} is {version}",
                f"Cairn needs Java {JAVA} or newer, as Spark 4 does",
                f"Start them with JAVA_HOME set to a newer one: `apt-get install openjdk-{JAVA}-jre-headless`",
            )


def check_cluster_python(conn_id: str, facts: ClusterFacts) -> Iterator[Finding]:
    """Compare the Python of the executors with that of the driver, or of the client of a Spark Connect server."""
    ours = _minor(facts.python)
    failure = facts.failed.get("python", "")
    mismatch = _MISMATCH.search(failure)
    on_executors = {_minor(each) for each in facts.executor_python} | ({mismatch[1]} if mismatch else set())
    who = "this worker's" if facts.over_connect else "the driver's"
    where = _OF_SERVER if facts.over_connect else _OF_DRIVERS
    if others := sorted(on_executors - {ours}):
        yield error(
            "python-versions",
            conn_id,
            f"{who} Python is {ours}, and the executors' {', '.join(others)}",
            f"{_NO_FUNCTION} (PYTHON_VERSION_MISMATCH)",
            f"Install Python {ours} on each machine of the cluster, and {where}",
        )
    elif failure:
        yield error(
            "cluster-python",
            conn_id,
            f"the executors could not run a function in Python: {cause_of(failure)}",
            _NO_FUNCTION,
            f"Install Python {ours} on each machine of the cluster, and {where}",
        )


def check_cluster_storage(subject: str, facts: ClusterFacts) -> Iterator[Finding]:
    """Pass on what a driver has found of the storage."""
    if (failure := facts.failed.get("storage")) is not None:
        yield error(
            "cluster-storage",
            subject,
            f"the driver could not look at the storage: {cause_of(failure)}",
            "each stage with an Epoch block fails there",
            "Give the driver a Python of 3.10 or newer, and what its error names, such as boto3",
        )
    for each in facts.storage.findings if facts.storage else ():
        yield replace(each, what=f"as the driver of {subject} sees it: {each.what}")


def cause_of(failure: str) -> str:
    """Return the most informative line of Spark's error: the error of a lost task, the last line of a traceback."""
    lost = _LOST.search(failure)
    said = _TRACE.split(failure[lost.end() :] if lost else failure, maxsplit=1)[0]
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it gave no cause"]
    return lines[-1 if "Traceback (most recent" in said else 0][:300]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


PLUGIN = "airflow_cairn.plugin.cairn_plugin:CairnPlugin"
"""The target of the plugin's entry point."""
PROVIDER = "airflow_cairn.plugin.provider_info:get_provider_info"
PYSPARK = "pyspark>=4.0,<5"
"""The PySpark versions that a worker may have. Not a requirement of the package: extras bring PySpark."""
HEARTBEATS = 3
"""Heartbeats that a task should be able to miss before Airflow takes it for dead."""
LATE_S = 1_800
"""Detection time of a dead worker above which the delay exceeds the length of most epochs."""
KILL_S = 10
"""Time that a killed stage's task needs to end its driver on the cluster."""


def check_versions(requires: Iterable[str], installed: Callable[[str], str | None]) -> Iterator[Finding]:
    """Compare the installed versions with this Cairn's requirements."""
    for requirement in map(Requirement, requires):
        if requirement.marker is not None:
            continue  # of an extra
        found = installed(requirement.name)
        # pyspark-client stands in for pyspark where all stages run over Spark Connect.
        if found is None and requirement.name == "pyspark" and installed("pyspark-client"):
            continue
        if found is None or not requirement.specifier.contains(found, prereleases=True):
            yield error(
                "versions-unfit",
                requirement.name,
                f"{requirement.name} {found} is installed" if found else f"{requirement.name} is not installed",
                f"this Cairn is made for {requirement.specifier}",
                "pip install 'airflow-cairn[spark]'"
                if requirement.name == "pyspark"
                else f"pip install '{requirement.name}{requirement.specifier}'",
            )


def check_features(airflow: str, *, whole: bool) -> Iterator[Finding]:
    """Find features that are off because this Airflow is too old for them; one that supports `whole` has them all."""
    if not whole:
        yield warning(
            "airflow-limited",
            "apache-airflow",
            f"Airflow {airflow} has no retry policies, and keeps no state of tasks",
            "restart strategies are refused, an error that no retry cures is tried again all the same, and no driver "
            "outlives its task",
            "pip install 'apache-airflow>=3.3'",
        )


def check_plugin(plugins: Iterable[EntryPoint], providers: Iterable[EntryPoint]) -> Iterator[Finding]:
    """Check that Airflow finds and loads Cairn's plugin, and knows its provider."""
    found = next((each for each in plugins if each.value == PLUGIN), None)
    reinstall = "pip install --force-reinstall --no-deps airflow-cairn, then restart every process of Airflow"
    if found is None:
        yield error(
            "plugin-missing",
            "airflow.plugins",
            "no installed package gives Airflow the plugin of Cairn",
            "DAGs with a CheckpointTimetable cannot be read, and the tabs are missing",
            reinstall,
        )
    else:
        try:
            found.load()
        except (ImportError, AttributeError) as failed:
            yield error(
                "plugin-broken",
                "airflow.plugins",
                f"the plugin of Cairn cannot be loaded: {type(failed).__name__}: {failed}",
                "DAGs with a CheckpointTimetable cannot be read, and the tabs are missing",
                reinstall,
            )
    if not any(each.value == PROVIDER for each in providers):
        yield warning(
            "provider-missing",
            "apache_airflow_provider",
            "Airflow does not know Cairn as a provider",
            "`@task.spark_epoch` and the option `[cairn] deployment` are not there",
            reinstall,
        )


def check_settings(number: Callable[[str, str], int]) -> Iterator[Finding]:
    """Judge the settings that decide how soon a dead task is noticed, and how a killed task ends."""
    timeout_s = number("scheduler", "task_instance_heartbeat_timeout")
    interval_s = number("workers", "min_heartbeat_interval")
    name = "[scheduler] task_instance_heartbeat_timeout"
    if timeout_s < HEARTBEATS * interval_s:
        yield error(
            "heartbeat-short",
            name,
            f"a task counts as dead after {timeout_s} s, and sends a heartbeat every {interval_s} s",
            "tasks that are well are taken for dead: their stages run again while the first driver still runs",
            f"export AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT={max(300, HEARTBEATS * interval_s)}",
        )
    elif timeout_s > LATE_S:
        yield warning(
            "heartbeat-long",
            name,
            f"a dead worker is noticed after {timeout_s} s",
            "until then nothing fails over, and the checkpoint may run into its timeout",
            "export AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT=300",
        )
    kill_s = number("core", "killed_task_cleanup_time")
    if kill_s < KILL_S:
        yield warning(
            "kill-time-short",
            "[core] killed_task_cleanup_time",
            f"a task that is cleared or times out is killed after {kill_s} s",
            "it has no time to end its driver, which goes on and uses the cluster",
            "export AIRFLOW__CORE__KILLED_TASK_CLEANUP_TIME=60",
        )


def check_executor(executor: str, parallelism: int) -> Iterator[Finding]:
    """Judge the executor and how many tasks it runs at a time."""
    if parallelism == 1:
        yield error(
            "parallelism-one",
            "[core] parallelism",
            f"{executor} runs one task at a time",
            "a task that waits for another keeps it from running, so an epoch whose stages wait for each other stands "
            "still",
            "export AIRFLOW__CORE__PARALLELISM=32",
        )
