"""The meaning of Azure's faults (semantics W3).

A create that is lost is answered 409 `BlobAlreadyExists`: that is a 412 here, no conflict to be sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..facts import FACTS
from ..network.faults import Refused as RefusedByStore
from ..network.faults import Words

LOST = frozenset({"BlobAlreadyExists", "UnauthorizedBlobOverwrite"})
"""Codes of a create whose blob is there; the second if the caller may not overwrite."""
KEPT = frozenset({"BlobImmutableDueToPolicy", "DirectoryIsNotEmpty", "LeaseIdMissing"})
"""Codes of a blob that may not be written or deleted, with whichever status: each is a 409 here."""
_NO_RIGHT = frozenset({"AuthorizationFailure", "AuthorizationPermissionMismatch", "InsufficientAccountPermissions"})
_BAD_NAME = frozenset({"InvalidResourceName", "InvalidUri", "OutOfRangeInput"})
_ACTION = "Microsoft.Storage/storageAccounts/blobServices/containers"
WORDS = Words(
    # *Storage Blob Data Contributor* has the first four.
    rights={
        "get": f"{_ACTION}/blobs/read",
        "create": f"{_ACTION}/blobs/write and /blobs/add/action",
        "list": f"{_ACTION}/blobs/read",
        "delete": f"{_ACTION}/blobs/delete",
        "rules": f"{_ACTION}/read and blobServices/read",
    },
    find_credentials=FACTS["abfss"].find_credentials,
    check="Check the identity and its roles",
    bucket="container",
)


@dataclass
class Refused(RefusedByStore):
    """The service refused the request, with a code of Azure."""

    @property
    def lacks_right(self) -> bool:
        return self.code in _NO_RIGHT

    @property
    def conflict(self) -> bool:
        return super().conflict and self.code not in KEPT and not self.bucket_gone

    @property
    def bucket_gone(self) -> bool:
        return self.code in ("ContainerNotFound", "ContainerBeingDeleted")

    @property
    def bad_name(self) -> bool:
        return self.code in _BAD_NAME
