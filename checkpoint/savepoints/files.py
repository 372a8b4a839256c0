"""The files of one savepoint that is being made, and of one that is disposed of (semantics P1, W4).

The folder belongs to one request of one job: before anything else lands in it, `_request` does, created once. So a
folder that holds foreign files is distinguished from one that this request has begun, before the job's head knows of
the savepoint; and a target that may not be written to is refused before, too.

The job's head says which folder it is, and whoever may write the head may say another one. So nothing is copied into a
folder, and nothing in it is deleted, unless the folder itself says that it is this request's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...storage.errors import GoneError
from ...storage.port import ConditionFailed, DeleteFailure, ObjectStore
from ..documents import codec
from ..documents.fields import Job, RequestId, Target
from ..documents.strict_json import from_json, to_json
from ..errors import DocumentError, SavepointRefusedError
from ..store.job_files import JobFiles
from .savepoint_format import METADATA

log = logging.getLogger("airflow_cairn")

REQUEST = "_request"
"""The key of what says whose folder it is."""

KIND = "cairn.savepoint-request"


@dataclass(frozen=True, slots=True)
class FolderOwner:
    """`_request`: whose folder it is."""

    job: Job
    request: RequestId
    storage: Target | None = None
    """URI of the storage that the job lies in: another one may have a job of this name. None: version 0.1 wrote this,
    or no job has asked."""

    def is_said_by(self, found: FolderOwner) -> bool:
        """Tell whether this is what a folder says, as far as it says that."""
        return replace(found, storage=found.storage or self.storage) == self


class FolderFiles(JobFiles):
    """The folder of one savepoint, with the keys that its files have in the job."""

    def __init__(self, folder: ObjectStore, job: str) -> None:
        super().__init__(folder, job)
        self.prefix = ""


class SavepointFiles(FolderFiles):
    """The folder of one savepoint that is being made, or thrown away.

    Args:
        folder: a store that is rooted there.
        owner: whose it is.
    """

    def __init__(self, folder: ObjectStore, owner: FolderOwner) -> None:
        super().__init__(folder, owner.job)
        self._owner = owner
        self._ours = False

    def claim(self) -> None:
        """Claim the folder for the request where it is empty; leave it as it is where the request has it already.

        Raises:
            SavepointRefusedError: foreign files are in the folder, or a savepoint of which the head knows no
                more.
            ForbiddenError: the store does not let us list or write there.
        """
        standing = [found.key for _, found in zip(range(2), self.listing(""), strict=False)]
        if not standing:
            data = codec.encode({"kind": KIND, "format": codec.FORMAT, **to_json(self._owner)})
            if not isinstance(self.create_bytes(REQUEST, data), ConditionFailed):
                self._ours = True
                return
        if not self.is_ours() or self.has(METADATA):
            raise SavepointRefusedError(
                "the savepoint's folder is not empty, and the job does not know the files in it. Take it under "
                "another request id, or into another target",
                job=self.job,
                savepoint=self.store.uri,
                found=", ".join(standing) or REQUEST,
            )

    def is_ours(self) -> bool:
        """Tell whether the folder says that it is this request's, or has said so here: it is never another one's then.

        A process that copies may be slow, and find the folder disposed of; what it has written it takes away.
        """
        self._ours = self._ours or says(self.store, self._owner) is True
        return self._ours

    def leave(self) -> None:
        """Give up a folder that was claimed, and in which nothing was made."""
        if self.is_ours():
            self.delete([REQUEST])

    def empty(self) -> list[DeleteFailure]:
        """Delete everything in the folder, if it is ours: what makes it a savepoint first, what says whose it is last.

        A process that finds it half emptied finds no savepoint, and can go on.
        """
        if not self.is_ours():
            return []
        failures = self.delete([METADATA]) or self.delete(self._below()) or self.delete([REQUEST])
        if failures:
            # It is no savepoint, or the next call with its request id empties the folder (semantics W7).
            log.warning("what is left of the failed savepoint %s could not be deleted: %s", self.store.uri, failures[0])
        return failures

    def _below(self) -> Iterator[str]:
        return (found.key for found in self.listing("") if found.key not in (METADATA, REQUEST))


def says(folder: ObjectStore, owner: FolderOwner) -> bool | None:
    """Tell whether a folder says that it is this owner's; None where it does not say whose it is."""
    try:
        blob = folder.get(REQUEST, max_bytes=codec.MAX_MARKER_BYTES)
        body = codec.decode(blob.data, kind=KIND, key=REQUEST)
        return owner.is_said_by(from_json(FolderOwner, body, key=REQUEST))
    except GoneError:
        return None
    except DocumentError:
        return False
