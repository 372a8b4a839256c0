"""Judges the facts of a cluster; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...checkpoint.health.findings import Finding, error, warning
from ...spark.session import OLDEST, numbers_of
from .cluster_facts import ClusterFacts, NoAnswer, Silence
from .spark_checks import JAVA, TOO_NEW
from .spark_facts import java_major

_MISMATCH = re.compile(r"different version:? (\d+\.\d+) than")
"""PySpark's error when an executor's Python differs from the driver's."""
_LOST = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): ")
_TRACE = re.compile(r"\n\s*at ")
_NO_STAGE = "no stage can run there"
_NO_FUNCTION = "each function in Python fails there"
_OF_DRIVERS = "set `spark.pyspark.python` to one Python for driver and executors (docs/how-to/run-on-a-cluster.md)"
_OF_SERVER = "start the Spark Connect server with `PYSPARK_PYTHON` set to such a Python"


def no_answer(conn_id: str, none: NoAnswer) -> Finding:
    """Return the finding that the cluster gave no facts although it was asked.

    Args:
        conn_id: the Spark connection.
        none: the reason.
    """
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


def check_spark(conn_id: str, facts: ClusterFacts) -> Iterator[Finding]:
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


def check_java(conn_id: str, facts: ClusterFacts) -> Iterator[Finding]:
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


def check_python(conn_id: str, facts: ClusterFacts) -> Iterator[Finding]:
    """Compare the Python of the executors with that of the driver, or of the client of a Spark Connect server."""
    ours = _minor(facts.python)
    failure = facts.failed.get("python", "")
    mismatch = _MISMATCH.search(failure)
    theirs = {_minor(each) for each in facts.executor_python} | ({mismatch[1]} if mismatch else set())
    who = "this worker's" if facts.over_connect else "the driver's"
    where = _OF_SERVER if facts.over_connect else _OF_DRIVERS
    if others := sorted(theirs - {ours}):
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


def cause_of(failure: str) -> str:
    """Return the most informative line of Spark's error: the error of a lost task, the last line of a traceback.

    Args:
        failure: the whole error, with its traces.
    """
    lost = _LOST.search(failure)
    said = _TRACE.split(failure[lost.end() :] if lost else failure, maxsplit=1)[0]
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it gave no cause"]
    return lines[-1 if "Traceback (most recent" in said else 0][:300]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
