"""The jars by which PySpark's Spark reads and writes `gs://` with Hadoop's manifest committer.

`spark-hadoop-cloud` names Google's connector, one jar with all that it needs; for why it is the one of 4.1.1 see
`s3a_jars.py`.
"""

from __future__ import annotations

from pathlib import Path

from .maven_jars import JarSet

_GCS = JarSet(
    "gcs",
    packages=("org.apache.spark:spark-hadoop-cloud_2.13:4.1.1",),
    excludes=(
        "software.amazon.awssdk:*",
        "software.amazon.s3.analyticsaccelerator:*",
        "org.apache.hadoop:*",
        "org.apache.httpcomponents:*",
        "org.wildfly.openssl:*",
        "com.squareup.okhttp3:*",
        "com.squareup.okio:*",
        "org.eclipse.jetty:*",
        "com.fasterxml.jackson.core:*",
        "com.fasterxml.jackson.dataformat:*",
        "commons-codec:commons-codec",
        "joda-time:joda-time",
        "io.netty:*",
        "org.slf4j:*",
    ),
)


def gcs_jars() -> list[Path]:
    """Give the local jars for `spark.jars`, fetching them first if they are not there (40 MB)."""
    return _GCS.jars()
