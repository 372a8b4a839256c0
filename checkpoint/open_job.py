"""One job as this process has it open, and the base of what is done with it."""

from __future__ import annotations

from ..storage.port import ObjectStore
from .runtime import Runtime
from .store.attempt_documents import AttemptDocuments
from .store.before_swap import open_heads
from .store.job_files import JobFiles
from .store.metadata_references import LastWritten


class OpenJob:
    """The objects of one job, and what this process remembers of them.

    Raises:
        InvalidNameError: the job's name does not match the grammar.
    """

    def __init__(self, store: ObjectStore, job: str, runtime: Runtime) -> None:
        self.files = JobFiles(store, job)
        self.heads = open_heads(self.files, runtime)
        self.documents = AttemptDocuments(self.files, self.heads.held)
        self.known = LastWritten()
        """What this process has written last: the cleaner need not read it again."""
        self.runtime = runtime


class UseCase:
    """Something that is done with one job."""

    def __init__(self, job: OpenJob) -> None:
        self._files = job.files
        self._heads = job.heads
        self._documents = job.documents
        self._known = job.known
        self._runtime = job.runtime
