"""The jars by which PySpark's Spark reads and writes `s3a://` with the magic committer.

`hadoop-aws` as it is pulls the AWS bundle, 686 MB. Without it, and with the three SDK modules that s3a really calls,
it is 23 MB. The committer's bridge to Spark (`PathOutputCommitProtocol`) is not in the wheel and not yet published for
Spark 4.3; the one of 4.1.1 works with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .maven_jars import HADOOP, JarSet
from .setup.base import SetupError

_AWS_SDK = "2.35.4"
PACKAGES = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    f"software.amazon.awssdk:s3:{_AWS_SDK}",
    f"software.amazon.awssdk:s3-transfer-manager:{_AWS_SDK}",
    f"software.amazon.awssdk:sts:{_AWS_SDK}",
    "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1",
)
"""Value of `spark-submit --packages`."""

EXCLUDES = (
    "software.amazon.awssdk:bundle",
    "com.google.cloud.bigdataoss:gcs-connector",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-huaweicloud",
    "com.squareup.okhttp3:okhttp",
    "org.eclipse.jetty:*",
    "com.fasterxml.jackson.core:*",
    "commons-codec:commons-codec",
    "io.netty:*",
    "org.slf4j:*",
)
"""Value of `--exclude-packages`: the bundle, other clouds and their needs, and the jars of the wheel itself."""

_S3A = JarSet("s3a", PACKAGES, EXCLUDES)


def s3a_jars() -> list[Path]:
    """Give the local jars for `spark.jars`, fetching them first if they are not there."""
    return _S3A.jars()


def main() -> int:
    """Print the jars as one comma-separated line."""
    try:
        print(",".join(str(jar) for jar in s3a_jars()))
    except SetupError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
