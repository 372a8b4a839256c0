"""Checkpoint storage: the object-store port, its stores, and the probe that recognises a safe store (semantics W).

Users import the names of `__all__`; the modules below are internal.

Importing this package imports neither boto3, google-auth, Airflow nor Spark; `open_store` loads a backend when it is
needed.
"""

from __future__ import annotations

from .. import import_when_used
from .errors import (
    CairnError,
    ConflictError,
    DocumentError,
    ErrorKind,
    ForbiddenError,
    GoneError,
    InvalidKeyError,
    OutcomeUnknownError,
    StorageError,
    UnavailableError,
    UnsupportedStorageError,
)
from .network.options import AzureOptions, GcsOptions, S3Options
from .open import open_store
from .port import Blob, ConditionFailed, DeleteFailure, ObjectStat, ObjectStore, PendingUpload, WriteResult, Written
from .probe import ensure_probed, probe

__all__ = [
    "AzureOptions",
    "Blob",
    "CairnError",
    "ConditionFailed",
    "ConflictError",
    "DeleteFailure",
    "DocumentError",
    "ErrorKind",
    "ForbiddenError",
    "GcsOptions",
    "GoneError",
    "InvalidKeyError",
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
    "ensure_probed",
    "open_store",
    "probe",
]

RENAMED = {
    "NewerFormatError": "DocumentError",
    **dict.fromkeys(("ClockSkewError", "MissingRightError", "NoCredentialsError"), "ForbiddenError"),
    "BucketGoneError": "GoneError",
    "InvalidNameError": "InvalidKeyError",
    "InvalidRequestError": "StorageError",
}
__getattr__ = import_when_used(__name__, dict.fromkeys(RENAMED.values(), ".errors"), RENAMED)
