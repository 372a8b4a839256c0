"""The output committer: a listing must show only committed files, because Cairn trusts listings.

Three committers guarantee this. The classic `FileOutputCommitter` with algorithm version 1 moves all files when the job
commits. The magic committer of s3a uploads in place and makes the files visible when the job commits. Google Cloud
Storage, and Azure without a hierarchical namespace, cannot rename a folder in one step. So on both clouds Hadoop's
manifest committer writes a list of each task's files, commits the task by renaming that list, and moves the files when
the job commits. Version 2 of the classic committer is refused: it publishes a task's files when the task commits, so a
task that dies while it commits leaves files that a listing shows.

Each of Cairn's writes chooses its committer; nothing has to be set at submit (measured on Spark 4). The committers are
options of the write. Spark takes the commit protocol, and how it writes timestamps and dates, from the session alone,
so these are set during the write. A user's own write has them too if it runs in the same session at the same time,
because a DataFrame can only be written in its own session. All other writes of the user keep their settings.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, Any

from ...checkpoint.errors import InvalidConfigError
from ...checkpoint.store.job_files import JobFiles
from ...storage.errors import GoneError
from ...storage.records import dataclass
from ..execution.failure_kinds import ABFS_PACKAGES, GS_PACKAGES, S3A_PACKAGES
from ..execution.transport import conf_of, identity_of, is_remote, set_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("airflow_cairn")

ALGORITHM = "mapreduce.fileoutputcommitter.algorithm.version"
PROTOCOL = "spark.sql.sources.commitProtocolClass"
PARQUET_COMMITTER = "spark.sql.parquet.output.committer.class"
S3A_COMMITTER = "fs.s3a.committer.name"
FACTORY = "mapreduce.outputcommitter.factory.scheme."
"""Followed by the scheme of the URLs."""

_CLASSIC_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
_CLASSIC_COMMITTER = "org.apache.parquet.hadoop.ParquetOutputCommitter"
_CLOUD_PROTOCOL = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
_CLOUD_COMMITTER = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"

_MANIFEST_FACTORY = "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory"
_AZURE_FACTORY = "org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory"

_PARQUET_FORMAT = {
    # Other readers take Spark's default, INT96, for nanoseconds, and show the year 9999 as 1816. Spark reads both.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # LEGACY writes dates before 1582 by the Julian calendar, and only Spark reads those correctly. EXCEPTION, the
    # default of Spark 3, refuses them.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Session settings with which Spark writes values that other readers read as Spark does (semantics W12)."""

_VERSIONS = (ALGORITHM, f"spark.hadoop.{ALGORITHM}")
_READ = (*_VERSIONS, PROTOCOL, *_PARQUET_FORMAT)
"""The settings of a session that a write depends on."""

_LOADER = "org.apache.spark.util.Utils"

_SUCCESS_BYTES = 1024 * 1024
_CURE = f"Add {S3A_PACKAGES} to the application's packages"


@dataclass(frozen=True, slots=True)
class Committer:
    """The settings of one write's committer."""

    success_name: str
    """The name of the committer in `_SUCCESS`; empty for the classic one, which writes none."""
    protocol: str
    """The session setting during the write."""
    options: dict[str, str] = field(default_factory=dict)
    """Options of the write."""


CLASSIC = Committer("", _CLASSIC_PROTOCOL, {PARQUET_COMMITTER: _CLASSIC_COMMITTER, ALGORITHM: "1"})
MAGIC = Committer(
    "magic",
    _CLOUD_PROTOCOL,
    # The version matters where the protocol writes to a local folder (semantics V3).
    {PARQUET_COMMITTER: _CLOUD_COMMITTER, S3A_COMMITTER: "magic", ALGORITHM: "1"},
)
MANIFEST = {
    scheme: Committer(
        "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitter",
        _CLOUD_PROTOCOL,
        {PARQUET_COMMITTER: _CLOUD_COMMITTER, f"{FACTORY}{scheme}": factory, ALGORITHM: "1"},
    )
    for scheme, factory in (("gs", _MANIFEST_FACTORY), ("abfs", _AZURE_FACTORY), ("abfss", _AZURE_FACTORY))
}
"""By the scheme of the URLs. Where the answer to a rename is lost, Azure's factory compares tags."""


def choose(spark: SparkSession, url: str) -> CommitterSettings:
    """Choose the committer for a write to a URL.

    Raises:
        InvalidConfigError: version 2 is set, or the classes are missing without which no write to `gs://` or `abfss://`
            is safe.
    """
    with _lock:  # what another thread's write has set is not the session's own
        found = conf_of(spark, *_READ)
        own = None if identity_of(spark) in _sessions else found
    _refuse_version_2(spark, found)
    return CommitterSettings(spark, _committer_for(spark, url), own)


def _committer_for(spark: SparkSession, url: str) -> Committer:
    manifest = MANIFEST.get(url.partition(":")[0])
    if manifest is not None:
        missing = _missing(spark, _CLOUD_PROTOCOL, *(value for value in manifest.options.values() if "." in value))
        if missing:
            raise InvalidConfigError(
                "Spark lacks the manifest committer, and no other is safe on Google Cloud Storage and Azure: the "
                "classic one renames folders there file by file, so a task that dies then leaves rows behind. "
                f"Add {GS_PACKAGES if url.startswith('gs:') else ABFS_PACKAGES} to the application's packages "
                "(Hadoop 3.3.5 or newer)",
                missing=missing[0],
            )
        return manifest
    if not url.startswith("s3a:"):
        return CLASSIC
    if not _missing(spark, _CLOUD_PROTOCOL, _CLOUD_COMMITTER):
        return MAGIC
    log.warning(
        "The magic committer's classes are not on the classpath: Spark commits to S3 by copying every file. That is "
        "safe, and slow. %s.",
        _CURE,
    )
    return CLASSIC


_CURES = {
    MAGIC.success_name: (
        "magic",
        f"fs.s3a.committer.magic.enabled is true and that no factory is set for s3a ({FACTORY}s3a)",
    ),
    MANIFEST["gs"].success_name: ("manifest", f"no other factory is set for the storage's scheme ({FACTORY}…)"),
}
"""By `Committer.success_name`: the committer's name, and what to check if another one has written."""


@dataclass(slots=True)
class _Replaced:
    """A session's settings before Cairn's, and the number of writes that still need Cairn's."""

    before: dict[str, str | None]
    writes: int = 0


_sessions: dict[Any, _Replaced] = {}
"""The sessions that Cairn's writes use now, shared by all writers of the process: two may use one session."""
_lock = Lock()


class CommitterSettings:
    """Sets a session's committer while any write needs it; safe to use from several threads.

    `found` are the session's own settings, if they have just been read; else each write reads them.
    """

    def __init__(
        self, spark: SparkSession, committer: Committer, found: Mapping[str, str | None] | None = None
    ) -> None:
        self._found = found
        self._spark = spark
        self._key = identity_of(spark)
        self.committer = committer

    @contextmanager
    def write(self) -> Iterator[dict[str, str]]:
        """Yield a write's options; the first write sets the session, and the end of the last one resets it."""
        with _lock:
            if self._key not in _sessions:
                _sessions[self._key] = _Replaced(self._set())
            _sessions[self._key].writes += 1
        try:
            yield self.committer.options
        finally:
            with _lock:
                _sessions[self._key].writes -= 1
                if not _sessions[self._key].writes:
                    self._restore(_sessions.pop(self._key).before)

    def _set(self) -> dict[str, str | None]:
        wanted = {PROTOCOL: self.committer.protocol, **_PARQUET_FORMAT}
        found = self._found or conf_of(self._spark, *wanted)
        in_force = {**found, PROTOCOL: found[PROTOCOL] or _CLASSIC_PROTOCOL}
        before = {key: found[key] for key in wanted if in_force[key] != wanted[key]}
        set_conf(self._spark, {key: wanted[key] for key in before})
        return before

    def _restore(self, before: Mapping[str, str | None]) -> None:
        # What had a value is set and not unset: unsetting would also forget the values given at submit.
        set_conf(self._spark, before)


def verify(committer: Committer, files: JobFiles, success_key: str) -> None:
    """Check that the chosen committer really committed a write: its `_SUCCESS` names the committer.

    Raises:
        InvalidConfigError: `_SUCCESS` names another committer, or none (zero bytes: the classic one wrote it).
    """
    try:
        data = files.store.get(files.full(success_key), max_bytes=_SUCCESS_BYTES).data
    except GoneError:
        data = b""
    try:
        found = json.loads(data)["committer"] if data else "none"
    except (ValueError, KeyError, TypeError):
        found = "unreadable"
    if found != committer.success_name:
        name, cure = _CURES[committer.success_name]
        raise InvalidConfigError(
            f"another committer than the {name} committer has written this output, so a listing of it cannot be "
            f"trusted. Check that {cure}",
            key=files.full(success_key),
            expected=committer.success_name,
            found=found,
        )


def _refuse_version_2(spark: SparkSession, found: Mapping[str, str | None]) -> None:
    places = {f"the session's {key}": found[key] for key in _VERSIONS}
    if not is_remote(spark):
        # A client cannot read its server's Hadoop conf; there only the write's own option prevents version 2.
        places[f"Hadoop's {ALGORITHM}"] = spark._jsc.hadoopConfiguration().get(ALGORITHM)
    for where, value in places.items():
        if (value or "").strip() == "2":
            raise InvalidConfigError(
                f"{where} is 2. That output committer publishes files task by task, so a task that dies half-way "
                "leaves rows behind that a checkpoint would take for its own. Set it to 1, or remove it from conf, "
                "spark-defaults.conf and core-site.xml"
            )


def _missing(spark: SparkSession, *classes: str) -> list[str]:
    """Return those of some classes that Spark does not have; over Spark Connect it is asked once for all."""
    if is_remote(spark):
        asked = ", ".join(f"reflect('{_LOADER}', 'classIsLoadable', '{each}')" for each in classes)
        found = spark.sql(f"SELECT {asked}").first()
        there = [value == "true" for value in found or ()] or [False] * len(classes)
    else:
        jvm: Any = spark._jvm
        there = [bool(jvm.org.apache.spark.util.Utils.classIsLoadable(each)) for each in classes]
    return [name for name, is_there in zip(classes, there, strict=True) if not is_there]
