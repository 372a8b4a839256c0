"""One job as this process has it open, and the base of what is done with it."""

from __future__ import annotations

from collections.abc import Iterator

from ..storage.errors import CairnError, ErrorKind
from ..storage.names import RESERVED
from ..storage.port import ObjectStore
from .documents.head import Head
from .runtime import Runtime, system_runtime
from .store.attempt_documents import AttemptDocuments
from .store.before_swap import open_heads
from .store.head_store import AfterSwap
from .store.job_files import JobFiles
from .store.metadata_references import LastWritten


class OpenJob:
    """The objects of one job, and what this process remembers of them.

    Raises:
        InvalidNameError: the job's name does not match the grammar.
    """

    def __init__(self, store: ObjectStore, job: str, runtime: Runtime, after_swap: AfterSwap | None = None) -> None:
        self.files = JobFiles(store, job)
        self.heads = open_heads(self.files, runtime, after_swap)
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


def heads_of(store: ObjectStore) -> Iterator[tuple[str, Head | CairnError]]:
    """Yield the jobs of a storage in order, each with its head, or with why that cannot be read.

    Raises:
        UnavailableError: the store did not answer.
        ForbiddenError: the store refused to answer.
    """
    for name in store.list_folders(""):
        if name == RESERVED:
            continue
        try:
            head = open_heads(JobFiles(store, name), system_runtime()).load()
        except CairnError as error:
            # A broken document, or a folder that is no job's; a store that does not answer is not the job's fault.
            if error.kind not in (ErrorKind.DATA, ErrorKind.INVALID):
                raise
            yield name, error
            continue
        if head.revision:
            yield name, head
