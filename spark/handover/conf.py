"""What the operator hands to the application by Spark conf, and how the application reads it.

Two facts are handed over: where the storage is, and the key of one document in it, the handover. Everything else stands
there. There is never a credential among them: conf is shown in Spark's web UI, in logs and on command lines. The keys
under `FOR_PEOPLE` are read only by people who look at that UI.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from ...checkpoint.documents.attempt import Handover
from ...checkpoint.documents.layout import check_job, check_relative
from ...checkpoint.errors import InvalidConfigError
from ...storage import ObjectStore, S3Options, UnsupportedStorageError, open_store
from ...storage.uris import StorageUri, parse_storage_uri

PREFIX = "spark.cairn."
"""All keys of ours begin so; an author's conf may not set them."""

STORAGE = f"{PREFIX}storage"
JOB = f"{PREFIX}job"
HANDOVER = f"{PREFIX}handover"
S3_ENDPOINT = f"{PREFIX}s3.endpoint"
S3_REGION = f"{PREFIX}s3.region"
LOCAL_STATE = f"{PREFIX}localState.folder"
LOCAL_STATE_BYTES = f"{PREFIX}localState.bytes"

CHECKPOINT = f"{PREFIX}checkpoint"
EPOCH = f"{PREFIX}epoch"
ATTEMPT = f"{PREFIX}attempt"
STAGE = f"{PREFIX}stage"
SLICE = f"{PREFIX}slice"
RESTORE = f"{PREFIX}restore"

FOR_PEOPLE = frozenset({CHECKPOINT, EPOCH, ATTEMPT, STAGE, SLICE, RESTORE})
"""Shown in the Spark UI; what is believed is the handover document."""


@dataclass(frozen=True, slots=True)
class Handed:
    """Where the application finds its handover."""

    storage: StorageUri
    job: str
    handover_key: str
    """Relative to the job's prefix."""
    endpoint: str | None = None
    """URL of an S3 server other than AWS."""
    region: str | None = None
    local_state: str | None = None
    """Folder of the copies of state that the Spark server has (semantics V3); None: it has none."""
    local_state_bytes: int = 0

    def open_store(self) -> ObjectStore:
        """Open the storage, with the credentials that this process finds by itself (environment, instance role).

        Raises:
            UnsupportedStorageError: as `open_driver_store`.
        """
        return open_driver_store(self.storage, s3_options(self.endpoint, self.region))


def handover_conf(
    handover: Handover,
    handover_key: str,
    *,
    storage: StorageUri,
    endpoint: str | None = None,
    region: str | None = None,
) -> dict[str, str]:
    """Give the Spark conf that tells an application which epoch it is to work on.

    Args:
        handover: what `Coordinator.begin` answered.
        handover_key: its key, relative to the job's prefix.
        storage: the storage's URI.
        endpoint: URL of an S3 server other than AWS.
        region: the bucket's region.
    """
    window = {"start": handover.slice.start, "end": handover.slice.end}
    conf = {
        STORAGE: str(storage),
        JOB: handover.job,
        HANDOVER: handover_key,
        CHECKPOINT: str(handover.checkpoint),
        EPOCH: handover.epoch,
        ATTEMPT: str(handover.attempt),
        STAGE: handover.stage,
        # The slice's detail is the author's own and may be long or private; the handover holds it.
        SLICE: json.dumps(window),
        RESTORE: str(handover.restore.checkpoint) if handover.restore else "none",
    }
    return conf | {key: value for key, value in ((S3_ENDPOINT, endpoint), (S3_REGION, region)) if value}


READ = (STORAGE, JOB, HANDOVER, S3_ENDPOINT, S3_REGION, LOCAL_STATE, LOCAL_STATE_BYTES)
"""What `parse` looks up."""


def parse(get: Callable[[str], str | None]) -> Handed:
    """Read what was handed over.

    Args:
        get: looks a conf key up; None where it is not set.

    Raises:
        InvalidConfigError: the application was not submitted by a SparkEpochOperator.
        InvalidKeyError: the storage URI is none (semantics W5).
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
    return Handed(
        storage=parse_storage_uri(found[STORAGE]),
        job=check_job(str(found[JOB])),
        handover_key=check_relative(str(found[HANDOVER])),
        endpoint=get(S3_ENDPOINT) or None,
        region=get(S3_REGION) or None,
        local_state=get(LOCAL_STATE) or None,
        local_state_bytes=int(get(LOCAL_STATE_BYTES) or 0),
    )


def s3_options(endpoint: str | None, region: str | None) -> S3Options | None:
    """Give S3 options without credentials; None where there is nothing to say."""
    return S3Options(endpoint_url=endpoint, region=region) if endpoint or region else None


def open_driver_store(storage: str | StorageUri, s3: S3Options | None) -> ObjectStore:
    """Open a storage in the driver's process, whose own credentials are used where `s3` has none.

    Raises:
        UnsupportedStorageError: the scheme is none of ours, or boto3 is not installed where S3 is meant.
        InvalidKeyError: the URI is of no accepted form.
    """
    try:
        return open_store(storage, s3=s3)
    except ModuleNotFoundError as error:
        if error.name not in ("boto3", "botocore"):
            raise
        raise UnsupportedStorageError(
            "this driver's Python has no boto3, by which Cairn reads and writes its documents on S3. Install it where "
            "the driver runs (pip install boto3), or ship it with the application's py_files",
            storage=storage,
        ) from error
