"""Jars for Spark 3.5: of s3a with the magic committer, and of a Spark Connect server, which its PySpark does not hold.

`hadoop-aws` as it is pulls the AWS bundle, 280 MB. Without it, and with the three SDK modules that s3a calls, it is
10 MB.
"""

from __future__ import annotations

from pathlib import Path

from scripts.maven_jars import JarSet

_SPARK = "3.5.7"
"""The newest of 3.5 that these two are published for; they run on 3.5.9."""
_AWS_SDK = "1.12.262"

_S3A = JarSet(
    "s3a-spark-3.5",
    packages=(
        "org.apache.hadoop:hadoop-aws:3.3.4",
        f"com.amazonaws:aws-java-sdk-s3:{_AWS_SDK}",
        f"com.amazonaws:aws-java-sdk-sts:{_AWS_SDK}",
        f"com.amazonaws:aws-java-sdk-dynamodb:{_AWS_SDK}",
        f"org.apache.spark:spark-hadoop-cloud_2.12:{_SPARK}",
    ),
    excludes=(
        "com.amazonaws:aws-java-sdk-bundle",
        "com.google.cloud.bigdataoss:gcs-connector",
        "org.apache.hadoop:hadoop-azure",
        "org.apache.hadoop:hadoop-client-api",
        "org.apache.hadoop:hadoop-client-runtime",
        "org.apache.hadoop:hadoop-cloud-storage",
        "org.apache.hadoop:hadoop-openstack",
        "org.apache.httpcomponents:*",
        "com.fasterxml.jackson.core:*",
        "com.fasterxml.jackson.dataformat:*",
        "commons-codec:commons-codec",
        "commons-logging:commons-logging",
        "joda-time:joda-time",
        "software.amazon.ion:*",
        "org.slf4j:*",
    ),
)
_CONNECT = JarSet("connect-spark-3.5", (f"org.apache.spark:spark-connect_2.12:{_SPARK}",), ("org.slf4j:*",))


def s3a_jars_of_spark_3() -> list[Path]:
    """Give the jars of s3a for `spark.jars`, fetched first if they are not there.

    Raises:
        SetupError: Maven Central cannot be reached, or there is no Java.
    """
    return _S3A.jars()


def connect_jars_of_spark_3() -> list[Path]:
    """Give the jars of a Spark Connect server for `spark.jars`, fetched first if they are not there.

    Raises:
        SetupError: Maven Central cannot be reached, or there is no Java.
    """
    return _CONNECT.jars()
