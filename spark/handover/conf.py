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
