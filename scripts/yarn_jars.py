"""YARN's daemons, which the wheel of PySpark lacks: it holds Hadoop's client and Spark's side of YARN only.

`hadoop-client-minicluster` has them in one jar that fits the wheel's shaded client; by their own artifacts it would be
155 jars. The ResourceManager signs certificates with Bouncy Castle, which that jar leaves out.
"""

from __future__ import annotations

from pathlib import Path

from .maven_jars import HADOOP, JarSet

_YARN = JarSet(
    "yarn",
    packages=(
        f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
        "org.bouncycastle:bcpkix-jdk18on:1.82",
    ),
    excludes=(
        "org.apache.hadoop:hadoop-client-api",
        "org.apache.hadoop:hadoop-client-runtime",
        "org.xerial.snappy:snappy-java",
    ),
)


def yarn_jars() -> list[Path]:
    """Give the jars for the class path of YARN's daemons, beside the wheel's own; fetched if not there (67 MB)."""
    return _YARN.jars()
