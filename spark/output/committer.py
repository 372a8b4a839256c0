"""The output committer: a listing must show only committed files, because Cairn trusts listings.

Three committers guarantee this. The classic `FileOutputCommitter` with algorithm version 1 moves all files when the job
commits. The magic committer of s3a uploads in place and makes the files visible when the job commits. Google Cloud
Storage, and Azure without a hierarchical namespace, cannot rename a folder in one step. So on both clouds Hadoop's
manifest committer writes a list of each task's files, commits the task by renaming that list, and moves the files when
the job commits. Version 2 of the classic committer is refused: it publishes a task's files when the task commits, so a
task that dies meanwhile leaves files that a listing shows.

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
from ...storage import AzureOptions, GcsOptions, S3Options
from ...storage.errors import GoneError
from ...storage.network.options import EMULATED_KEY
from ...storage.records import dataclass
from ..execution.failure_kinds import ABFS_PACKAGES, GS_PACKAGES, S3A_PACKAGES
from ..execution.transport import conf_of, identity_of, is_remote

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

_FORMAT = {
    # Other readers take Spark's default, INT96, for nanoseconds, and show the year 9999 as 1816. Spark reads both.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # LEGACY writes dates before 1582 by the Julian calendar, and only Spark reads those correctly. EXCEPTION, the
    # default of Spark 3, refuses them.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
"""Session settings with which Spark writes values that other readers read as Spark does (semantics W12)."""

_LOADER = "org.apache.spark.util.Utils"

_SUCCESS_BYTES = 1024 * 1024
_CURE = f"Add {S3A_PACKAGES} to the application's packages"


@dataclass(frozen=True, slots=True)
class Committer:
    """The settings of one write's committer."""

    signs: str
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


def choose(spark: SparkSession, url: str) -> Committer:
    """Choose the committer for a write to a URL.

    Raises:
        InvalidConfigError: version 2 is set, or the classes are missing without which no write to `gs://` or `abfss://`
            is safe.
    """
    _refuse_version_2(spark)
    manifest = MANIFEST.get(url.partition(":")[0])
    if manifest is not None:
        for name in (_CLOUD_PROTOCOL, *(value for value in manifest.options.values() if "." in value)):
            if not _is_there(spark, name):
                raise InvalidConfigError(
                    "Spark lacks the manifest committer, and no other is safe on Google Cloud Storage and Azure: the "
                    "classic one renames folders there file by file, so a task that dies meanwhile leaves rows behind. "
                    f"Add {GS_PACKAGES if url.startswith('gs:') else ABFS_PACKAGES} to the application's packages "
                    "(Hadoop 3.3.5 or newer)",
                    missing=name,
                )
        return manifest
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


_CURES = {
    MAGIC.signs: (
        "magic",
        f"fs.s3a.committer.magic.enabled is true and that no factory is set for s3a ({FACTORY}s3a)",
    ),
    MANIFEST["gs"].signs: ("manifest", f"no other factory is set for the storage's scheme ({FACTORY}…)"),
}
"""By `Committer.signs`: the committer's name, and what to check if another one has written."""


@dataclass(slots=True)
class _Set:
    """A session's settings before Cairn's, and the number of writes that still need Cairn's."""

    before: dict[str, str | None]
    writes: int = 0


_sessions: dict[Any, _Set] = {}
"""The sessions that Cairn's writes use now, shared by all writers of the process: two may use one session."""
_lock = Lock()


class InForce:
    """Sets a session's committer while any write needs it; safe to use from several threads."""

    def __init__(self, spark: SparkSession, committer: Committer) -> None:
        self._spark = spark
        self._key = identity_of(spark)
        self.committer = committer

    @contextmanager
    def write(self) -> Iterator[dict[str, str]]:
        """Yield a write's options; the first write sets the session, and the end of the last one resets it."""
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
                # Set and not unset: unsetting would also forget the values given at submit.
                self._spark.conf.set(key, value)


def verify(committer: Committer, files: JobFiles, success_key: str) -> None:
    """Check that the chosen committer really committed a write: its `_SUCCESS` names the committer.

    Args:
        committer: the committer that was chosen.
        files: the job's files.
        success_key: key of the `_SUCCESS` object, relative to the job's prefix.

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
    if found != committer.signs:
        name, cure = _CURES[committer.signs]
        raise InvalidConfigError(
            f"the output was to be written by the {name} committer and was not; what a listing of it shows cannot be "
            f"trusted. Check that {cure}",
            key=files.full(success_key),
            expected=committer.signs,
            found=found,
        )


_PROVIDERS = (
    "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""The places where s3a looks for credentials, in order. Executors on other machines do not have the driver's
environment: Spark copies the keys from it into the Hadoop conf that it sends them, where the second and the third find
them (measured).

The first is named as in AWS SDK 1, because the Hadoop of the Spark that gets this conf is not known here: Hadoop 3.3
(Spark 3.5) has only that SDK, and later versions take the name for the class of SDK 2 (measured on Hadoop 3.3.4 and
3.5.0)."""


_ENCRYPTIONS = {"AES256": "AES256", "aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS"}
"""s3a's name for each of S3's ways to encrypt."""


def s3a_conf(s3: S3Options | None = None, bucket: str = "") -> dict[str, str]:
    """Build the conf by which a submitted application reaches S3, without credentials.

    Each JVM finds the credentials itself: in its environment, or else by its container's or instance's role. An
    author's own conf should override this, for clusters that get credentials in another way (web identity).

    Args:
        s3: access to S3; a server other than AWS is addressed by path.
        bucket: the storage's; requests to it alone have the headers that it asks for. Empty: all requests have them.
    """
    s3 = s3 or S3Options()
    hadoop = {"aws.credentials.provider": ",".join(_PROVIDERS)}
    if s3.region:
        hadoop["endpoint.region"] = s3.region
    if s3.endpoint_url:
        hadoop["endpoint"] = s3.endpoint_url
        hadoop["path.style.access"] = "true"
        hadoop["connection.ssl.enabled"] = str(s3.endpoint_url.startswith("https:")).lower()
    of_bucket = f"bucket.{bucket}." if bucket else ""
    if s3.request_payer:
        hadoop[f"{of_bucket}requester.pays.enabled"] = "true"
    if s3.server_side_encryption:
        hadoop[f"{of_bucket}encryption.algorithm"] = _ENCRYPTIONS[s3.server_side_encryption]
    if s3.sse_kms_key_id:
        hadoop[f"{of_bucket}encryption.key"] = s3.sse_kms_key_id
    if s3.expected_bucket_owner:
        # s3a has no option for this header. A Hadoop that does not know the setting omits the header.
        hadoop[f"{of_bucket}client.s3.custom.headers"] = f"x-amz-expected-bucket-owner={s3.expected_bucket_owner}"
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in sorted(hadoop.items())}


_IN_BYTES = {
    "fs.gs.block.size": str(64 << 20),
    "fs.gs.inputstream.inplace.seek.limit": str(8 << 20),
    "fs.gs.inputstream.min.range.request.size": str(2 << 20),
    "fs.gs.outputstream.buffer.size": str(8 << 20),
    "fs.gs.rewrite.max.chunk.size": str(512 << 20),
}
"""Hadoop 3.5 gives these defaults as texts such as `64m`; Google's connector (2.2.28, 4.0.4) reads numbers alone."""


def gcs_conf(gcs: GcsOptions | None = None) -> dict[str, str]:
    """Build the conf by which a submitted application reaches Google Cloud Storage, without credentials.

    Each JVM finds application default credentials itself. An author's own conf should override this.

    Args:
        gcs: access to the store; an endpoint by plain HTTP is an emulator, which gets no credentials.
    """
    hadoop = {
        "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        "fs.gs.auth.type": "APPLICATION_DEFAULT",
        **_IN_BYTES,
    }
    if gcs is not None and gcs.endpoint_url:
        hadoop["fs.gs.storage.root.url"] = f"{gcs.endpoint_url.rstrip('/')}/"
        if gcs.endpoint_url.startswith("http://"):
            hadoop |= {
                "fs.gs.auth.type": "UNAUTHENTICATED",
                # The same for Google's connector 2.2, which else would ask the machine's metadata server.
                "fs.gs.auth.service.account.enable": "false",
                "fs.gs.auth.null.enable": "true",
                "fs.gs.project.id": "emulated",
            }
    return {f"spark.hadoop.{name}": value for name, value in sorted(hadoop.items())}


def gcs_environment(gcs: GcsOptions) -> dict[str, str]:
    """Return the variables by which a driver beside its task finds the store and the credentials that the task has."""
    found = {"STORAGE_EMULATOR_HOST": gcs.endpoint_url, "GOOGLE_APPLICATION_CREDENTIALS": gcs.key_path}
    return {name: value for name, value in found.items() if value}


_IDENTITY = "org.apache.hadoop.fs.azurebfs.oauth2."


def azure_conf(azure: AzureOptions | None, host: str) -> dict[str, str]:
    """Build the conf by which a submitted application reaches an account of Azure, without credentials.

    Each JVM has a managed identity or a workload identity. An author's own conf should override this; its keys name the
    account too.

    Args:
        azure: access to the store; an endpoint is an emulator, whose public key is no secret.
        host: the account's, as in the storage's URI.
    """
    # Hadoop 3.5 counts requests in a thread for each client, and the JVM does not end while one runs (measured).
    hadoop = {"metrics.collection.enabled": "false"}
    if azure is not None and azure.endpoint_url:
        hadoop |= {
            "abfs.endpoint": azure.endpoint_url.partition("://")[2].rstrip("/"),
            f"account.key.{host}": EMULATED_KEY,
            f"account.key.{host.replace('.dfs.', '.blob.', 1)}": EMULATED_KEY,
            "account.hns.enabled": "false",
            "always.use.https": "false",
            "fns.account.service.type": "BLOB",
            "networking.library": "JDK_HTTP_URL_CONNECTION",  # the other library needs TLS (Hadoop 3.5: measured)
        }
    else:
        hadoop |= {f"account.auth.type.{host}": "OAuth"}
        tenant, client = (azure.tenant_id, azure.client_id) if azure else (None, None)
        provider = f"{_IDENTITY}{'WorkloadIdentity' if tenant else 'Msi'}TokenProvider"
        hadoop |= {f"account.oauth.provider.type.{host}": provider}
        hadoop |= {f"account.oauth2.msi.tenant.{host}": tenant} if tenant else {}
        hadoop |= {f"account.oauth2.client.id.{host}": client} if client else {}
    return {f"spark.hadoop.fs.azure.{name}": value for name, value in sorted(hadoop.items())}


def _refuse_version_2(spark: SparkSession) -> None:
    found = conf_of(spark, ALGORITHM, f"spark.hadoop.{ALGORITHM}")
    places = {f"the session's {key}": value for key, value in found.items()}
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


def _is_there(spark: SparkSession, name: str) -> bool:
    if is_remote(spark):
        found = spark.sql(f"SELECT reflect('{_LOADER}', 'classIsLoadable', '{name}')").first()
        return found is not None and found[0] == "true"
    jvm: Any = spark._jvm
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(name))
