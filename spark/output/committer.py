"""Which output committer writes: what a listing shows is believed, so it must show committed files only.

Two committers keep that promise: the classic `FileOutputCommitter` with algorithm version 1, which moves all files when
the job commits, and the magic committer of s3a, which uploads in place and makes them visible when the job commits.
Version 2 publishes task by task: a task that dies while it does so leaves files that a listing shows. It is refused.

All of it is chosen for each write of ours and nothing has to be set at submit, as measured on Spark 4: the commit
protocol is a session setting (set for the time of the write), the committers are options of the write. So a user's own
writes keep whatever they were given, and a user's settings do not reach ours. The same goes for the settings that say
how Spark writes timestamps and dates.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import GoneError
from ..execution.missing_packages import S3A_PACKAGES
from ..execution.transport import conf_of, identity_of, is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("airflow_cairn")

ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
PROTOCOL = "spark.sql.sources.commitProtocolClass"
PARQUET_COMMITTER = "spark.sql.parquet.output.committer.class"
S3A_COMMITTER = "fs.s3a.committer.name"

_CLASSIC_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
_CLASSIC_COMMITTER = "org.apache.parquet.hadoop.ParquetOutputCommitter"
_CLOUD_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
_CLOUD_COMMITTER = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"

_FORMAT = {
    # Spark's default, INT96, is nanoseconds to plain readers, who show the year 9999 as 1816. Spark reads both.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # LEGACY writes days of the Julian calendar, by which only Spark finds the right date before 1582. EXCEPTION, the
    # default of Spark 3, refuses such dates.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Settings of the session by which Spark writes values that every reader takes as Spark does (semantics W12)."""

_LOADER = "org.apache.spark.util.Utils"

_SUCCESS_BYTES = 1024 * 1024
_CURE = f"Add {S3A_PACKAGES} to the application's packages"


@dataclass(frozen=True, slots=True)
class Committer:
    """How one write commits."""

    magic: bool
    protocol: str
    """The session setting for the time of the write."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of the write."""


CLASSIC = Committer(False, _CLASSIC_PROTOCOL, {PARQUET_COMMITTER: _CLASSIC_COMMITTER, ALGORITHM: "1"})
MAGIC = Committer(
    True,
    _CLOUD_PROTOCOL,
    # The version counts where its protocol writes to a local folder (semantics V3).
    {PARQUET_COMMITTER: _CLOUD_COMMITTER, S3A_COMMITTER: "magic", ALGORITHM: "1"},
)


def choose(spark: SparkSession, url: str) -> Committer:
    """Choose the committer for a write to a `file:///…` or `s3a://…` URL.

    Raises:
        InvalidConfigError: the session is set to algorithm version 2.
    """
    _refuse_version_2(spark)
    if not url.startswith("s3a:"):
        return CLASSIC
    if all(_is_there(spark, name) for name in (_CLOUD_PROTOCOL, _CLOUD_COMMITTER)):
        return MAGIC
    log.warning(
        "The magic committer's classes are not on the classpath: Spark commits to S3 by copying every file. That is "
        "safe, and slow. %s.",
        _CURE,
    )
    return CLASSIC


@dataclass(slots=True)
class _Set:
    """What a session was before Cairn set it, and how many writes still need what it is set to."""

    before: dict[str, str | None]
    writes: int = 0


_sessions: dict[Any, _Set] = {}
"""The sessions by which Cairn writes just now. All writers of a process share it: two may write by one session."""
_lock = Lock()


class InForce:
    """Sets one session for writes by one committer, while there are any; several threads may write at once."""

    def __init__(self, spark: SparkSession, committer: Committer) -> None:
        self._spark = spark
        self._key = identity_of(spark)
        self.committer = committer

    @contextmanager
    def write(self) -> Iterator[dict[str, str]]:
        """Give the options of a write; before the first the session is set, after the last it is as it was."""
        with _lock:
            if self._key not in _sessions:
                _sessions[self._key] = _Set(self._set())
            _sessions[self._key].writes += 1
        try:
            yield self.committer.options
        finally:
            with _lock:
                _sessions[self._key].writes -= 1
                if not _sessions[self._key].writes:
                    self._restore(_sessions.pop(self._key).before)

    def _set(self) -> dict[str, str | None]:
        wanted = {PROTOCOL: self.committer.protocol, **_FORMAT}
        found = conf_of(self._spark, *wanted)
        in_force = {**found, PROTOCOL: found[PROTOCOL] or _CLASSIC_PROTOCOL}
        before = {key: found[key] for key in wanted if in_force[key] != wanted[key]}
        for key in before:
            self._spark.conf.set(key, wanted[key])
        return before

    def _restore(self, before: Mapping[str, str | None]) -> None:
        for key, value in before.items():
            if value is None:
                self._spark.conf.unset(key)
            else:
                # Set and not unset: that would also forget what was given at submit.
                self._spark.conf.set(key, value)


def verify_magic(files: JobFiles, success_key: str) -> None:
    """Check that a write was really committed by the magic committer: its `_SUCCESS` says so.

    Args:
        files: the job's files.
        success_key: key of the `_SUCCESS` object, relative to the job's prefix.

    Raises:
        InvalidConfigError: it names another committer, or none (zero bytes: the classic one wrote it).
    """
    try:
        data = files.store.get(files.full(success_key), max_bytes=_SUCCESS_BYTES).data
    except GoneError:
        data = b""
    try:
        found = json.loads(data)["committer"] if data else "none"
    except (ValueError, KeyError, TypeError):
        found = "unreadable"
    if found != "magic":
        raise InvalidConfigError(
            "the output was to be written by the magic committer and was not; what a listing of it shows cannot be "
            "trusted. Check that fs.s3a.committer.magic.enabled is true and that no factory is set for s3a "
            "(mapreduce.outputcommitter.factory.scheme.s3a)",
            key=files.full(success_key),
            expected="magic",
            found=found,
        )


_PROVIDERS = (
    "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""Where s3a looks for credentials. Executors on other machines do not have the driver's environment: Spark copies the
keys from there into the Hadoop conf that it sends them, and the two in the middle read them off it (measured).

The first has the name of the AWS SDK 1, as it is submitted to a Spark whose Hadoop is not known here: Hadoop 3.3 (Spark
3.5) has that SDK alone, and later ones take the name for the class of SDK 2 (measured on Hadoop 3.3.4 and 3.5.0)."""


def s3a_conf(endpoint: str | None = None, region: str | None = None) -> dict[str, str]:
    """Give the conf by which a submitted application reaches S3; there is no credential in it.

    Credentials are found by each JVM itself: in its environment, else by its container's or instance's role. An
    author's own conf should win over this, for clusters that have another way (web identity).

    Args:
        endpoint: URL of an S3 server other than AWS, which is then addressed by path.
        region: the bucket's region.
    """
    hadoop = {"aws.credentials.provider": ",".join(_PROVIDERS)}
    if region:
        hadoop["endpoint.region"] = region
    if endpoint:
        hadoop["endpoint"] = endpoint
        hadoop["path.style.access"] = "true"
        hadoop["connection.ssl.enabled"] = str(endpoint.startswith("https:")).lower()
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in sorted(hadoop.items())}


def _refuse_version_2(spark: SparkSession) -> None:
    found = conf_of(spark, ALGORITHM, f"spark.hadoop.{ALGORITHM}")
    places = {f"the session's {key}": value for key, value in found.items()}
    if not is_remote(spark):
        # A client cannot look into its server's; there the option of the write alone keeps version 2 away.
        places[f"Hadoop's {ALGORITHM}"] = spark._jsc.hadoopConfiguration().get(ALGORITHM)
    for where, value in places.items():
        if (value or "").strip() == "2":
            raise InvalidConfigError(
                f"{where} is 2. That output committer publishes files task by task, so a task that dies half-way "
                "leaves rows behind that a checkpoint would take for its own. Set it to 1, or remove it from conf, "
                "spark-defaults.conf and core-site.xml"
            )


def _is_there(spark: SparkSession, name: str) -> bool:
    if is_remote(spark):
        found = spark.sql(f"SELECT reflect('{_LOADER}', 'classIsLoadable', '{name}')").first()
        return found is not None and found[0] == "true"
    jvm: Any = spark._jvm
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(name))
