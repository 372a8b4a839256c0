"""The meaning of Google Cloud Storage's faults (semantics W3).

A 429 is an answer to a request that was not carried out: the service takes about one write a second to one name.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..network.faults import Refused as RefusedByStore
from ..network.faults import Words

_BUSY = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "backendError"})
WORDS = Words(
    rights={
        "get": "storage.objects.get",
        "create": "storage.objects.create (and storage.objects.delete, as a swap replaces the object)",
        "list": "storage.objects.list",
        "delete": "storage.objects.delete",
        "rules": "storage.buckets.get",
    },
    find_credentials=(
        "Give this machine a service account or workload identity, set GOOGLE_APPLICATION_CREDENTIALS to a file of "
        "credentials, or name an Airflow connection with key_path"
    ),
    check="Check the service account and its rights",
)


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

    @property
    def bad_name(self) -> bool:
        return self.status == 400 and "name" in self.text.lower()
