"""The meaning of Google Cloud Storage's faults (semantics W3).

A 403 is never taken for absence, and only the service's own 404 means that something is gone. A 429 is an answer to a
request that was not carried out: the service takes about one write a second to one name.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidKeyError,
    StorageError,
    UnavailableError,
    UnsupportedStorageError,
)
from ..network.faults import Fault, NoAnswer
from ..network.faults import Refused as RefusedByStore

NO_CREDENTIALS = "noCredentials"
"""Stands for the service's reason if no request was sent, as there are no credentials for it."""

_BUSY = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "backendError"})
RIGHTS = {
    "get": "storage.objects.get",
    "create": "storage.objects.create (and storage.objects.delete, as a swap replaces the object)",
    "list": "storage.objects.list",
    "delete": "storage.objects.delete",
    "rules": "storage.buckets.get",
}
"""The permission that each request needs."""


@dataclass
class Refused(RefusedByStore):
    """The service refused the request, with a reason of its own as the code."""

    @property
    def transient(self) -> bool:
        return super().transient or (self.status == 403 and self.code in _BUSY)

    @property
    def conflict(self) -> bool:
        return super().conflict or self.status == 429

    @property
    def bucket_gone(self) -> bool:
        return self.status == 404 and "bucket" in self.text


def explain(fault: Fault, *, store: str, doing: str, key: str) -> StorageError:
    """Convert a fault to an error of `errors.py`."""
    facts = {"store": store, "doing": doing, "key": key}
    if isinstance(fault, NoAnswer):
        return fault.explained(**facts)
    assert isinstance(fault, RefusedByStore)
    said = f"{fault.code}: {fault.text}" if fault.text else fault.code
    if fault.code == NO_CREDENTIALS:
        return ForbiddenError(
            f"no credentials were found, so nothing was asked of the store ({fault.text}). Give this machine a service "
            "account or workload identity, set GOOGLE_APPLICATION_CREDENTIALS to a file of credentials, or name an "
            "Airflow connection with key_path",
            code="no_credentials",
            **facts,
        )
    if fault.transient or fault.status == 429:
        return UnavailableError(f"the store fails or is throttled ({said}). Try again later", **facts)
    if fault.status in (401, 403):
        return ForbiddenError(
            f"the store refuses these credentials ({said}). Check the service account and its rights: this takes "
            f"{RIGHTS[doing]}; nothing is known about what exists there",
            code="missing_right" if fault.status == 403 else "",
            **facts,
        )
    if fault.bucket_gone:
        return GoneError(
            "the bucket does not exist. Create it, or correct the storage URI", code="bucket_gone", **facts
        )
    if fault.status == 404:
        return GoneError("there is no such object", **facts)
    if fault.status in (409, 412):
        return ConflictError(f"another write of this key was under way ({said}), nothing landed. Try again", **facts)
    if fault.status == 400 and "name" in fault.text.lower():
        return InvalidKeyError(f"the store refuses this name ({said}). Choose another", **facts)
    return UnsupportedStorageError(
        f"the store refuses a request that Cairn needs ({said}, status {fault.status}). Use a store that supports it",
        **facts,
    )
