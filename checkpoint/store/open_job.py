"""One job as this process has it open, and the base class of the acts on it."""

from __future__ import annotations

from collections.abc import Iterator

from ...storage.errors import CairnError, ErrorKind
from ...storage.names import RESERVED
from ...storage.port import ObjectStore
from ..documents.head import Head
from ..runtime import Runtime, system_runtime
from .attempt_documents import AttemptDocuments
from .head_store import AfterSwap, open_heads
from .job_files import JobFiles
from .metadata_references import LastWritten


class OpenJob:
    """The objects of one job, with this process's memory of them.

    Raises:
        InvalidKeyError: the job's name does not match the grammar.
    """

    def __init__(self, store: ObjectStore, job: str, runtime: Runtime, after_swap: AfterSwap | None = None) -> None:
        self.files = JobFiles(store, job)
        self.heads = open_heads(self.files, runtime, after_swap)
        self.documents = AttemptDocuments(self.files, self.heads.held)
        self.known = LastWritten()
        """References of the metadata that this process has written last: the cleaner need not read it again."""
        self.runtime = runtime


class UseCase:
    """Base of the acts on one job."""

    def __init__(self, job: OpenJob) -> None:
        self._files = job.files
        self._heads = job.heads
        self._documents = job.documents
        self._known = job.known
        self._runtime = job.runtime


def heads_of(store: ObjectStore) -> Iterator[tuple[str, Head | CairnError]]:
    """Yield the jobs of a storage in order, each with its head, or with the error if that cannot be read.

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
            # The document is broken, or the folder is no job. A store that does not answer is another matter: raise.
            if error.kind not in (ErrorKind.DATA, ErrorKind.INVALID):
                raise
            yield name, error
            continue
        if head.revision:
            yield name, head
