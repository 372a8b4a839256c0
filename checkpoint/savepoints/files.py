"""The files of one savepoint that is being made, and of one that is disposed of (semantics P1, W4).

The folder belongs to one request of one job: before anything else lands in it, `_request` does, created once. So a
folder that holds foreign files is distinguished from one that this request has begun, before the job's head knows of
the savepoint; and a target that may not be written to is refused before, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ...storage.errors import GoneError
from ...storage.port import ConditionFailed, DeleteFailure, ObjectStore
from ..documents import codec
from ..documents.fields import Job, RequestId
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


class FolderFiles(JobFiles):
    """The folder of one savepoint, with the keys that its files have in the job."""

    def __init__(self, folder: ObjectStore, job: str) -> None:
        super().__init__(folder, job)
        self.prefix = ""


class SavepointFiles(FolderFiles):
    """The folder of one savepoint that is being made, or thrown away."""

    def claim(self, request: str) -> None:
        """Claim the folder for the request where it is empty; leave it as it is where the request has it already.

        Raises:
            SavepointRefusedError: foreign files are in the folder, or a savepoint of which the head knows no
                more.
            ForbiddenError: the store does not let us list or write there.
        """
        mine = FolderOwner(self.job, request)
        standing = [found.key for _, found in zip(range(2), self.listing(""), strict=False)]
        if not standing:
            data = codec.encode({"kind": KIND, "format": codec.FORMAT, **to_json(mine)})
            if not isinstance(self.create_bytes(REQUEST, data), ConditionFailed):
                return
        if self.owner() != mine or self.has(METADATA):
            raise SavepointRefusedError(
                "the savepoint's folder is not empty, and the job does not know the files in it. Take it under "
                "another request id, or into another target",
                job=self.job,
                savepoint=self.store.uri,
                found=", ".join(standing) or REQUEST,
            )

    def owner(self) -> FolderOwner | None:
        """Give whose folder it is; None where that is not said, or not as we say it."""
        try:
            blob = self.get(REQUEST, max_bytes=codec.MAX_MARKER_BYTES)
            body = codec.decode(blob.data, kind=KIND, key=self.full(REQUEST))
            return from_json(FolderOwner, body, key=self.full(REQUEST))
        except (GoneError, DocumentError):
            return None

    def leave(self) -> None:
        """Give up a folder that was claimed, and in which nothing was made."""
        self.delete([REQUEST])

    def empty(self) -> list[DeleteFailure]:
        """Delete everything in the folder: what makes it a savepoint first, what says whose it is last.

        A process that finds it half emptied finds no savepoint, and can go on.
        """
        failures = self.delete([METADATA]) or self.delete(self._below()) or self.delete([REQUEST])
        if failures:
            # It is no savepoint, or the next call with its request id empties the folder (semantics W7).
            log.warning("what is left of the failed savepoint %s could not be deleted: %s", self.store.uri, failures[0])
        return failures

    def _below(self) -> Iterator[str]:
        return (found.key for found in self.listing("") if found.key not in (METADATA, REQUEST))
