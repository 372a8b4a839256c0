"""The Spark conf by which the operator hands over, its reading in the application, and the secrets beside it.

The conf names two things: the storage, and the key of one document in it, the handover, which holds everything else.
The conf never holds a credential: Spark's web UI, logs and command lines show it. Only people who look at that UI read
the keys under `FOR_PEOPLE`.

In deploy mode cluster the secrets are Hadoop credentials (semantics V4). `spark-submit` passes them on like delegation
tokens: on YARN with the container's request, on Kubernetes as a Secret that the driver's pod mounts and that goes with
the pod. Neither way uses a conf, an argument, a variable or a staged file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import quote, unquote

from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.layout import check_job, check_relative
from ...checkpoint.errors import InvalidConfigError
from ...storage import AzureOptions, GcsOptions, ObjectStore, S3Options, UnsupportedStorageError, open_store
from ...storage.names import StorageUri, parse_storage_uri
from ...storage.network.options import EMULATED_KEY
from ...storage.network.waiting import Waiting
from ...storage.open import OPTIONS, StoreOptions
from ...storage.records import dataclass

PREFIX = "spark.cairn."
"""Prefix of all of Cairn's keys; an author's conf may not set them."""

STORAGE = f"{PREFIX}storage"
JOB = f"{PREFIX}job"
HANDOVER = f"{PREFIX}handover"
SOURCES = f"{PREFIX}sources"
"""The folders of the DAG's sources: files that a stored list names elsewhere are not read (semantics W10)."""
S3_ENDPOINT = f"{PREFIX}s3.endpoint"
S3_REGION = f"{PREFIX}s3.region"
_STORES: dict[type[StoreOptions], dict[str, str]] = {
    S3Options: {
        "endpoint_url": S3_ENDPOINT,
        "region": S3_REGION,
        "request_payer": f"{PREFIX}s3.requestPayer",
        "server_side_encryption": f"{PREFIX}s3.encryption",
        "sse_kms_key_id": f"{PREFIX}s3.kmsKeyId",
        "expected_bucket_owner": f"{PREFIX}s3.bucketOwner",
    },
    GcsOptions: {"endpoint_url": f"{PREFIX}gcs.endpoint"},
    AzureOptions: {
        "endpoint_url": f"{PREFIX}azure.endpoint",
        "client_id": f"{PREFIX}azure.clientId",
        "tenant_id": f"{PREFIX}azure.tenantId",
    },
}
"""The conf key of each option of a bucket's store. No credential is among them."""
LOCAL_STATE = f"{PREFIX}localState.folder"
LOCAL_STATE_BYTES = f"{PREFIX}localState.bytes"

CHECKPOINT = f"{PREFIX}checkpoint"
EPOCH = f"{PREFIX}epoch"
ATTEMPT = f"{PREFIX}attempt"
STAGE = f"{PREFIX}stage"
SLICE = f"{PREFIX}slice"
RESTORE = f"{PREFIX}restore"

FOR_PEOPLE = frozenset({CHECKPOINT, EPOCH, ATTEMPT, STAGE, SLICE, RESTORE})
"""Shown in the Spark UI only; Cairn trusts the handover document."""


@dataclass(frozen=True, slots=True)
class Handed:
    """The location of the application's handover."""

    storage: StorageUri
    job: str
    handover_key: str
    """Relative to the job's prefix."""
    options: StoreOptions | None = None
    """Access to the storage, without credentials."""
    local_state: str | None = None
    """Folder of the Spark server's copies of state (semantics V3); None: the server has none."""
    local_state_bytes: int = 0
    sources: Mapping[str, StorageUri] = field(default_factory=dict)
    """The folder of each source of the DAG that has one, by the source's name."""

    def open_store(self) -> ObjectStore:
        """Open the storage with the credentials that this process finds by itself (environment, instance role)."""
        return open_driver_store(self.storage, self.options, waits=True)


def handover_conf(
    handover: Handover,
    handover_key: str,
    *,
    storage: StorageUri,
    options: StoreOptions | None = None,
    sources: Mapping[str, StorageUri] | None = None,
) -> dict[str, str]:
    """Build the Spark conf that names an application's epoch.

    Args:
        handover: the answer of `Coordinator.begin`.
        handover_key: the key of the handover document, relative to the job's prefix.
        storage: the storage's URI.
        options: access to the storage; its credentials are left out.
        sources: the folder of each source that has one, by name.
    """
    window = {"start": handover.slice.start, "end": handover.slice.end}
    conf = {
        STORAGE: str(storage),
        JOB: handover.job,
        HANDOVER: handover_key,
        # Without blanks and quotes: not every service says what becomes of them.
        SOURCES: quote(json.dumps({name: str(folder) for name, folder in (sources or {}).items()})),
        CHECKPOINT: str(handover.checkpoint),
        EPOCH: handover.epoch,
        ATTEMPT: str(handover.attempt),
        STAGE: handover.stage,
        # The slice's detail is the author's and may be long or private; only the handover holds it.
        SLICE: json.dumps(window),
        RESTORE: str(handover.restore.checkpoint) if handover.restore else "none",
    }
    return conf | store_conf(options)


READ = (
    STORAGE,
    JOB,
    HANDOVER,
    SOURCES,
    *(key for keys in _STORES.values() for key in keys.values()),
    LOCAL_STATE,
    LOCAL_STATE_BYTES,
)
"""The keys that `parse` looks up."""


def parse(get: Callable[[str], str | None]) -> Handed:
    """Parse the handover's location.

    Args:
        get: looks up a conf key; None if it is not set.

    Raises:
        InvalidConfigError: the application was not submitted by a SparkEpochOperator.
        InvalidKeyError: the URI of the storage or of a source is invalid (semantics W5).
        DocumentError: the handover key leads out of the job's checkpoints (semantics W5).
    """
    found = {key: get(key) for key in (HANDOVER, STORAGE, JOB)}
    for key, value in found.items():
        if not value:
            raise InvalidConfigError(
                f"this application was not submitted by SparkEpochOperator: conf {key} is missing. Run it as a task: "
                "SparkEpochOperator(task_id=…, application=…) in the DAG; or by hand, without Airflow: python -m "
                "airflow_cairn.testing FILE. To read a published table outside of an epoch use "
                "airflow_cairn.spark.table"
            )
    storage = parse_storage_uri(found[STORAGE])
    return Handed(
        storage=storage,
        job=check_job(str(found[JOB])),
        handover_key=check_relative(str(found[HANDOVER])),
        options=store_options(get, storage),
        local_state=get(LOCAL_STATE) or None,
        local_state_bytes=int(get(LOCAL_STATE_BYTES) or 0),
        sources={name: parse_storage_uri(uri) for name, uri in json.loads(unquote(get(SOURCES) or "{}")).items()},
    )


def store_conf(options: StoreOptions | None) -> dict[str, str]:
    """Build the conf of a driver's access to a bucket, without credentials."""
    keys = {} if options is None else _STORES[type(options)]
    return {key: value for name, key in keys.items() if (value := getattr(options, name))}


def store_options(get: Callable[[str], str | None], storage: str | StorageUri) -> StoreOptions | None:
    """Parse the conf of `store_conf` about a storage's kind of store; None if it sets nothing.

    Args:
        get: looks up a conf key; None if it is not set.
        storage: the storage's URI.

    Raises:
        UnsupportedStorageError: the URI's scheme is unknown.
        InvalidKeyError: the URI has no accepted form.
    """
    kind = OPTIONS.get(parse_storage_uri(storage).scheme)
    found = {name: value for name, key in _STORES[kind].items() if (value := get(key))} if kind else {}
    return kind(**found) if kind and found else None  # type: ignore[arg-type]


def open_driver_store(storage: str | StorageUri, options: StoreOptions | None, *, waits: bool = False) -> ObjectStore:
    """Open a storage in the driver's process, with the process's credentials where `options` have none.

    Args:
        storage: the storage's URI.
        options: access to the storage.
        waits: wait some minutes for a store that refuses for a moment.

    Raises:
        UnsupportedStorageError: the scheme is unknown, or a package of its store is missing.
    """
    try:
        return open_store(storage, options=options, waiting=Waiting("this driver") if waits else None)
    except ModuleNotFoundError as error:
        if error.name not in ("boto3", "botocore"):
            raise
        raise UnsupportedStorageError(
            "this driver's Python has no boto3, by which Cairn reads and writes its documents on S3. Install it where "
            "the driver runs (pip install boto3), or ship it with the application's py_files",
            storage=storage,
        ) from error


TOKEN_FILES = "hadoop.token.files"
"""Java's system property that names credential files; a process reads them in addition to all others it finds."""

_MAGIC = b"HDTS\0"
"""Header of a credential file; every Hadoop reads this version."""
_ONE_BYTE = 127
_LENGTHS = -112


def credential_file(secrets: Mapping[str, str]) -> bytes:
    """Encode secrets as a file of Hadoop credentials."""
    words = [_MAGIC, _number(0), _number(len(secrets))]
    for name, value in secrets.items():
        words += [_counted(name), _counted(value)]
    return b"".join(words)


def credentials_from_jvm(jvm: Any, names: Iterable[str]) -> dict[str, str]:
    """Read secrets that were handed to this driver.

    Args:
        jvm: py4j's view of the driver's JVM.
        names: the names of the secrets.

    Raises:
        InvalidConfigError: a secret is missing.
    """
    credentials = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    found = {}
    for name in names:
        value = credentials.getSecretKey(jvm.org.apache.hadoop.io.Text(name))
        if value is None:
            raise InvalidConfigError(
                "this driver's Hadoop credentials lack a secret that it was submitted with: spark-submit has dropped "
                "it, as it does where it logs in by a keytab; let the worker have a ticket instead",
                secret=name,
            )
        found[name] = bytes(value).decode()
    return found


def _counted(text: str) -> bytes:
    data = text.encode()
    return _number(len(data)) + data


def _number(value: int) -> bytes:
    """Encode a number as Hadoop does: one byte if it fits, else the number of bytes and the bytes."""
    if value <= _ONE_BYTE:
        return bytes([value])
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return (_LENGTHS - len(data)).to_bytes(1, "big", signed=True) + data


# The conf and the variables by which a submitted application reaches the store, without credentials.


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


_GCS_SIZES = {
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
        **_GCS_SIZES,
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
        azure: access to the store; an endpoint is an emulator, whose key is public.
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
