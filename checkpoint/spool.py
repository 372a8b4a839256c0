"""Content on its way to the store: in memory while it is small, in a temporary file of this machine from then on."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from types import TracebackType

from .job_files import JobFiles
from .model import DocumentRef

SPOOL_BYTES = 1024 * 1024
"""What is kept in memory of one spool."""


class Spool:
    """Takes bytes, counts and hashes them, and keeps at most `SPOOL_BYTES` of them in memory; use it in a `with`."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES)  # noqa: SIM115  (closed by `__exit__`)
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def put(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            OSError: the machine's temporary folder is full.
        """
        self._file.write(data)
        self._digest.update(data)
        self.size_bytes += len(data)

    def pieces(self) -> Iterator[bytes]:
        """Yield what was put so far, piece by piece; nothing may be put meanwhile."""
        self._file.seek(0)
        while piece := self._file.read(SPOOL_BYTES):
            yield piece
        self._file.seek(0, os.SEEK_END)

    def reference(self, key: str) -> DocumentRef:
        """Describe what was put so far, as a document at `key`."""
        return DocumentRef(key=key, size_bytes=self.size_bytes, sha256=self._digest.hexdigest())

    def create(self, files: JobFiles, key: str) -> bool:
        """Write it at `key`, once; True if this very content stands there now, by any writer (semantics W2).

        Raises:
            OutcomeUnknownError: its answers were lost and nothing could be learnt; delete nothing.
        """
        return files.create_from(self.reference(key), self._file)
