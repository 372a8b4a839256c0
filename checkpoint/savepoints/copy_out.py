"""Copies the files of a completed checkpoint into a savepoint's folder, and describes them there (semantics P1, C5).

First the checkpoint is verified as for a restore, so that no damage is copied. Then its files are copied, several at
once, each under its own key; another process that copies the same savepoint writes the same bytes under the same names,
and creates only missing files. The metadata comes last, with bytes that do not depend on the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...storage.checksums import SHA256, Hasher, algorithm_of
from ...storage.errors import GoneError
from ...storage.records import dataclass
from ..answers import FilesProgress
from ..documents import metadata
from ..documents.acknowledgement import StateHandle
from ..documents.attempt import RestorePointer
from ..documents.metadata import HandleLine, Line
from ..errors import DamagedError
from ..store import job_files, metadata_file, verification
from ..store.job_files import GONE, PIECE_BYTES, JobFiles, pieces
from ..store.jsonl import Reference, Spool
from . import savepoint_format
from .savepoint_format import METADATA, SavepointEnd, SavepointFiles, SavepointHeader


@dataclass(frozen=True, slots=True)
class Copying:
    """The copying of one savepoint into its folder.

    Args:
        files: the job's.
        folder: where to.
        source: the checkpoint.
        epoch: its own.
        parallel: files that are copied at once.
        on_progress: called after each file, in the order of the metadata.
    """

    files: JobFiles
    folder: SavepointFiles
    source: RestorePointer
    epoch: str
    parallel: int
    on_progress: Callable[[FilesProgress], None]

    def run(self, header: SavepointHeader, still_wanted: Callable[[], bool]) -> SavepointEnd | None:
        """Copy every file, then create the metadata; gives its end, None if it is not `still_wanted` by then.

        Raises:
            DamagedError: the checkpoint is not whole, or the folder holds something else.
        """
        found = verification.verify_pointer(self.files, self.source, self.epoch)
        if not found.whole:
            raise DamagedError(
                f"the checkpoint that the savepoint is to be made from is damaged: {found.damages[0]}. Let an epoch "
                "complete, or rewind the job to a checkpoint that is whole; then take another one",
                code="savepoint_damaged",
                job=self.files.job,
                checkpoint=self.source.checkpoint,
                damages=len(found.damages),
            )
        with Spool() as spool:
            end = savepoint_format.write(header, self._lines(found.files, found.size_bytes), spool.put)
            if not still_wanted():
                return None
            if not spool.create(self.folder, METADATA):
                raise DamagedError(
                    "another savepoint's metadata is in the folder already; take it under another request id",
                    code="savepoint_damaged",
                    job=self.files.job,
                    savepoint=self.folder.store.uri,
                )
        return end

    def _lines(self, files: int, size_bytes: int) -> Iterator[Line]:
        """Yield the savepoint's lines, each once all files that it names have been copied."""
        done = bytes_done = 0
        for line in self._carried():
            if isinstance(line, HandleLine):
                done, bytes_done = done + 1, bytes_done + line.handle.size_bytes
                self.on_progress(FilesProgress(files, done, size_bytes, bytes_done))
            yield line

    def _carried(self) -> Iterator[Line]:
        # A savepoint names every file itself, so that it can be moved: manifests hold keys of this job.
        named = metadata_file.flattened(self.files, metadata_file.read(self.files, self.source.metadata))
        travelling = map(savepoint_format.travelling, named)
        return in_order((partial(self._carry, line) for line in travelling), self.parallel)

    def _carry(self, line: Line) -> Line:
        """Copy the files that a line names; gives the line for the savepoint."""
        copying = FileCopy(self.files, self.folder, self._altered)
        if isinstance(line, HandleLine):
            handle = line.handle
            sha256 = copying.copy(handle, SHA256)
            return replace(line, handle=replace(handle, checksum=sha256, content=None))
        for listed in savepoint_format.side_lists_of(line):
            handle = handle_of(listed, listed.etag)
            sha256 = copying.copy(handle, SHA256)
            if sha256 != handle.content:
                raise self._altered(listed.key, f"expected {handle.content}, found {sha256}")
        return line

    def _altered(self, key: str, problem: str) -> DamagedError:
        if problem == OCCUPIED:
            return DamagedError(
                "another file in the savepoint's folder has the name of one of its files; take it under another "
                "request id",
                code="savepoint_damaged",
                job=self.files.job,
                savepoint=self.folder.store.uri,
                key=key,
            )
        return DamagedError(
            f"a file of the checkpoint was changed while it was being copied: {problem}. Take another savepoint",
            code="savepoint_damaged",
            job=self.files.job,
            checkpoint=self.source.checkpoint,
            key=key,
        )


OCCUPIED = "another file has its name there"
"""The problem of a file whose name is taken by another in the target."""


def handle_of(ref: Reference, etag: str = "") -> StateHandle:
    """Describe a document as a file, to be copied as one; without a tag its bytes pass through here."""
    content = f"{savepoint_format.ALGORITHM}{ref.sha256}"
    return StateHandle(metadata.LIST_KIND, ref.key, ref.size_bytes, etag or content, content)


@dataclass(frozen=True, slots=True)
class FileCopy:
    """Copies files of a checkpoint under their own keys, and checks on the way that they are as they were written.

    Args:
        source: the job's files.
        target: where to.
        altered: gives the error for a key and its problem.
    """

    source: JobFiles
    target: JobFiles
    altered: Callable[[str, str], DamagedError]

    def copy(self, handle: StateHandle, algorithm: str) -> str:
        """Copy one file, on the server if there is one for both.

        Args:
            handle: the file.
            algorithm: of the checksum to give.

        Raises:
            DamagedError: the file is gone or altered, or another one has its name in the target.
        """
        try:
            return self._copy_on_the_server(handle, algorithm) or self._copy_through_here(handle, algorithm)
        except GoneError as error:
            raise self.altered(handle.path, GONE) from error

    def _copy_on_the_server(self, handle: StateHandle, algorithm: str) -> str | None:
        """Let the server copy, and compare the checksum of the copied bytes with that of the written ones.

        So a byte that flipped on the medium does not get a fresh and valid checksum in the copy (semantics W9).
        """
        known = job_files.known(handle)
        if handle.checksum == known:
            return None  # its tag is not known
        algorithms = list(dict.fromkeys([algorithm_of(known) if known else algorithm, algorithm]))
        copied = self._copied(handle, handle.checksum, algorithms)
        if copied is None and known is not None:
            etag = self.source.stat(handle.path).etag
            if etag is not None and etag != handle.checksum:
                copied = self._copied(handle, etag, algorithms)  # the file is a copy itself, and has another tag
        if copied is None:
            return None
        if known is not None and known not in copied:
            raise self.altered(handle.path, f"expected {known}, found {copied[0]}")
        return copied[-1]

    def _copied(self, handle: StateHandle, etag: str, algorithms: list[str]) -> tuple[str, ...] | None:
        return self.target.store.copy_from(
            self.source.store,
            self.source.full(handle.path),
            self.target.full(handle.path),
            etag=etag,
            algorithms=algorithms,
            content=job_files.known(handle) if etag == handle.checksum else None,
        )

    def _copy_through_here(self, handle: StateHandle, algorithm: str) -> str:
        known = job_files.known(handle)
        key = handle.path
        hashers = {name: Hasher(name) for name in {algorithm, algorithm_of(known) if known else algorithm}}
        with Spool() as spool:
            for piece in pieces(self.source.read_range, key, PIECE_BYTES):
                spool.put(piece)
                for hasher in hashers.values():
                    hasher.update(piece)
            if spool.size_bytes != handle.size_bytes:
                raise self.altered(key, f"expected {handle.size_bytes} bytes, found {spool.size_bytes}")
            if known is not None:
                if (found := hashers[algorithm_of(known)].checksum()) != known:
                    raise self.altered(key, f"expected {known}, found {found}")
            elif (etag := self.source.stat(key).etag) != handle.checksum:
                # Nothing but the tag is known of it, and a tag is compared and not computed (semantics W3).
                raise self.altered(key, f"expected {handle.checksum}, found {etag}")
            if not spool.create(self.target, key):
                raise self.altered(key, OCCUPIED)
        return hashers[algorithm].checksum()


# Moves the files of a savepoint, several at once, and gives the lines that name them in their order (P1, R6).
#
# A line comes out once its files are there, so what is written from the lines names no file that is missing.


T = TypeVar("T", Line, StateHandle)
Move = Callable[[], T]
"""Moves the files of one line, and returns the line with their new place."""

_AHEAD = 8
"""Lines that are read ahead, for each file that is moved at once."""


def in_order(moves: Iterable[Move[T] | T], parallel: int) -> Iterator[T]:
    """Yield lines in their order, each once its files are written.

    If a line fails, lines that have not begun do not begin, and its error is raised in its place.

    Args:
        moves: by line, what moves its files; or the line itself, where it names none.
        parallel: files that are moved at once; 1: in the caller's thread.
    """
    if parallel == 1:
        yield from (move() if callable(move) else move for move in moves)
        return
    due: deque[Future[T] | T] = deque()
    with ThreadPoolExecutor(parallel) as pool:
        try:
            for move in moves:
                due.append(pool.submit(move) if callable(move) else move)
                while due and (_is_settled(due[0]) or len(due) > parallel * _AHEAD):
                    yield _line(due.popleft())
            while due:
                yield _line(due.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


def _is_settled(due: Future[T] | T) -> bool:
    return not isinstance(due, Future) or due.done()


def _line(due: Future[T] | T) -> T:
    return due.result() if isinstance(due, Future) else due
