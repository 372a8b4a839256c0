"""Where checkpoints live: the object-store port, its stores, and the probe that tells a safe one (semantics W).

Importing this package imports neither boto3 nor Airflow nor Spark; `open_store` loads a backend when it is needed.
"""

from __future__ import annotations

from .errors import (
    BucketGoneError,
    CairnError,
    ConflictError,
    DocumentError,
    ErrorKind,
    ForbiddenError,
    GoneError,
    InvalidKeyError,
    InvalidNameError,
    InvalidRequestError,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
    UnsupportedStorageError,
)
from .names import check_key, check_name, check_prefix
from .open import open_store
from .port import Blob, DeleteFailure, Lost, ObjectStat, ObjectStore, PendingUpload, WriteResult, Written
from .probe import ensure_probed, probe
from .s3.options import S3Options
from .uris import check_storage_uri

__all__ = [
    "Blob",
    "BucketGoneError",
    "CairnError",
    "ConflictError",
    "DeleteFailure",
    "DocumentError",
    "ErrorKind",
    "ForbiddenError",
    "GoneError",
    "InvalidKeyError",
    "InvalidNameError",
    "InvalidRequestError",
    "Lost",
    "ObjectStat",
    "ObjectStore",
    "OutcomeUnknownError",
    "PendingUpload",
    "S3Options",
    "StorageError",
    "UnavailableError",
    "UnsupportedStorageError",
    "WriteResult",
    "Written",
    "check_key",
    "check_name",
    "check_prefix",
    "check_storage_uri",
    "ensure_probed",
    "open_store",
    "probe",
]
