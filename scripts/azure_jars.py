"""The jars by which PySpark's Spark reads and writes `abfss://` with Hadoop's manifest committer.

For why `spark-hadoop-cloud` is the one of 4.1.1 see `s3a_jars.py`.
"""

from __future__ import annotations

from pathlib import Path

from .maven_jars import HADOOP, JarSet

_AZURE = JarSet(
    "azure",
    packages=("org.apache.spark:spark-hadoop-cloud_2.13:4.1.1", f"org.apache.hadoop:hadoop-azure:{HADOOP}"),
    excludes=(
        "software.amazon.awssdk:*",
        "software.amazon.s3.analyticsaccelerator:*",
        "com.google.cloud.bigdataoss:gcs-connector",
        "com.microsoft.azure:azure-storage",
        "org.apache.hadoop:hadoop-aws",
        "org.apache.hadoop:hadoop-client-api",
        "org.apache.hadoop:hadoop-client-runtime",
        "org.apache.hadoop:hadoop-cloud-storage",
        "org.apache.hadoop:hadoop-huaweicloud",
        "org.apache.hadoop.thirdparty:*",
        "com.squareup.okhttp3:*",
        "com.squareup.okio:*",
        "org.eclipse.jetty:*",
        "org.hdrhistogram:*",
        "com.fasterxml.jackson.core:*",
        "com.fasterxml.jackson.dataformat:*",
        "commons-codec:commons-codec",
        "commons-logging:commons-logging",
        "joda-time:joda-time",
        "io.netty:*",
        "org.slf4j:*",
    ),
)


def azure_jars() -> list[Path]:
    """Give the local jars for `spark.jars`, fetching them first if they are not there (2.4 MB)."""
    return _AZURE.jars()
