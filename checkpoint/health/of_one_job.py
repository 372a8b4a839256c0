"""Examines one job and its storage for a page: writes nothing, and masks texts that look like secrets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...storage.port import ObjectStore
from ..documents.strict_json import Json
from ..errors import NoCheckpointError
from ..runtime import Runtime
from .examine import examine_storage
from .findings import Examination, Severity


@dataclass(frozen=True, slots=True)
class ExaminedJob:
    """Findings of an examination, and its time."""

    at_ms: int
    found: Examination

    @property
    def errors(self) -> int:
        """Number of findings that are errors."""
        return sum(each.severity is Severity.ERROR for each in self.found.findings)

    def as_json(self) -> dict[str, Json]:
        """Give the examination as plain JSON values."""
        return {**self.found.as_json(), "at_ms": self.at_ms}


def examine_job(store: ObjectStore, job: str, runtime: Runtime) -> ExaminedJob:
    """Make every check of a job and of its storage that writes nothing.

    Raises:
        NoCheckpointError: the storage has no such job; the text names no other.
    """
    try:
        found = examine_storage(store, runtime, job, write=False)
    except NoCheckpointError as error:
        raise NoCheckpointError("the job has no checkpoint yet, so there is nothing to examine", job=job) from error
    return ExaminedJob(runtime.now_ms(), replace(found.masked(), hints=[]))
