"""The jars by which PySpark's Spark reads and writes `s3a://` with the magic committer, and the conf that uses them.

`hadoop-aws` as it is pulls the AWS bundle, 686 MB. Without it, and with the three SDK modules that s3a really calls,
it is 23 MB. The committer's bridge to Spark (`PathOutputCommitProtocol`) is not in the wheel and not yet published for
Spark 4.3; the one of 4.1.1 works with it. Resolved once, by Spark's own Ivy, into `.cache/ivy`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .setup.base import CACHE, SetupError, only_one, say
from .setup.java import ensure_java
from .setup.venv import ensure_venv

_AWS_SDK = "2.35.4"
PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    f"software.amazon.awssdk:s3:{_AWS_SDK}",
    f"software.amazon.awssdk:s3-transfer-manager:{_AWS_SDK}",
    f"software.amazon.awssdk:sts:{_AWS_SDK}",
    "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1",
)
"""What to give to `spark-submit --packages`. hadoop-aws must be of the Hadoop version that pyspark ships."""

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
"""What to give to `--exclude-packages`: the bundle, other clouds and their needs, and what the wheel has itself."""

_IVY = CACHE / "ivy"
_RECORD = _IVY / "s3a-jars.json"
_NOTHING_TO_DO = "print('resolved')\n"


def _recorded() -> list[Path] | None:
    try:
        record = json.loads(_RECORD.read_text())
    except FileNotFoundError:
        return None
    jars = [_IVY / "jars" / name for name in record["jars"]]
    if record["packages"] != [*PACKAGES, *EXCLUDES] or not all(jar.is_file() for jar in jars):
        return None
    return jars


def _resolve() -> list[Path]:
    programs = ensure_venv()
    say("resolving the s3a jars from Maven Central (once, about 30 seconds)")
    for old in (_IVY / "jars").glob("*.jar"):
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="cairn-s3a-") as folder:
        application = Path(folder, "nothing.py")
        application.write_text(_NOTHING_TO_DO)
        command = [
            str(programs / "spark-submit"),
            *("--master", "local[1]"),
            *("--conf", f"spark.jars.ivy={_IVY}", "--conf", "spark.ui.enabled=false"),
            *("--packages", ",".join(PACKAGES), "--exclude-packages", ",".join(EXCLUDES)),
            str(application),
        ]
        env = {
            **os.environ,
            "JAVA_HOME": str(ensure_java()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": str(programs / "python"),
        }
        done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
    jars = sorted((_IVY / "jars").glob("*.jar"))
    if done.returncode or not jars:
        reason = next((line for line in done.stderr.splitlines() if "unresolved" in line or "Exception" in line), "")
        raise SetupError(
            f"the s3a jars could not be resolved: {reason.strip() or f'status {done.returncode}'}."
            " Check that Maven Central can be reached, then type: make setup"
        )
    _RECORD.write_text(json.dumps({"packages": [*PACKAGES, *EXCLUDES], "jars": [jar.name for jar in jars]}, indent=1))
    return jars


def s3a_jars() -> list[Path]:
    """Give the local jars for `spark.jars`, fetching them first if they are not there.

    Raises:
        SetupError: Maven Central cannot be reached, or there is no Java.
    """
    found = _recorded()
    if found is None:
        with only_one():
            found = _recorded() or _resolve()
    return found


def s3a_conf(endpoint_url: str, *, region: str = "us-east-1") -> dict[str, str]:
    """Give the Spark conf for s3a with the magic committer on a server other than AWS.

    No credentials: they come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN in the environment of
    the driver and the executors, because conf is shown in the web UI and on command lines.

    Args:
        endpoint_url: of the S3 server, `http://127.0.0.1:7070`.
        region: that requests are signed for.
    """
    hadoop = {
        "endpoint": endpoint_url,
        "endpoint.region": region,
        "path.style.access": "true",
        "connection.ssl.enabled": str(endpoint_url.startswith("https:")).lower(),
        "aws.credentials.provider": "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
        "committer.name": "magic",
    }
    return {
        "spark.jars": ",".join(str(jar) for jar in s3a_jars()),
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in hadoop.items()},
        "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
    }


def main() -> int:
    """Print the jars as one comma-separated line.

    Returns:
        The exit status.
    """
    try:
        print(",".join(str(jar) for jar in s3a_jars()))
    except SetupError as error:
        sys.stderr.write(f"setup: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
