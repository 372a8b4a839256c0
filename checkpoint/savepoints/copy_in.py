"""Copies a savepoint's files into the job, and says in lines of metadata where they are now (semantics R6, C5).

Every name follows from the import's token and from the savepoint's own names, and every file is made once: a process
that goes on with an import finds what is done already, and ends up with the same lines. What is copied is checked
against the savepoint's checksum: on the way, or by the server that has copied it and says what its content is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from functools import partial

from ...storage.errors import GoneError
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..acts.assemble import count_table_file
from ..answers import FilesProgress
from ..documents import layout, metadata
from ..documents.acknowledgement import Output, StateHandle
from ..documents.attempt import BacklogEpoch, DocumentRef, Execution, Slice
from ..documents.codec import OutputName
from ..documents.entries import ImportEntry
from ..documents.metadata import (
    HandleLine,
    HookLine,
    InFlightLine,
    Line,
    MetadataHeader,
    StageLine,
    Trailer,
    encode_line,
)
from ..documents.strict_json import Json
from ..errors import DocumentError, InvalidStateError, NoSavepointError
from ..store import source_lists
from ..store.job_files import PIECE_BYTES, JobFiles, pieces
from ..store.jsonl import Spool
from . import savepoint_format
from .copy_out import Move, in_order
from .integrity import Savepoint
from .savepoint_format import FolderFiles

AT_ONCE = 8
"""Files that are copied at the same time."""


@dataclass(slots=True)
class Copied:
    """The copies, for the head and for the metadata that names them."""

    body: Spool
    """The lines of the metadata behind its header."""
    header: MetadataHeader
    """Header of the checkpoint that the savepoint was made from, with the sources' positions as this job keeps them."""
    stages: int = 0
    hooks: int = 0
    in_flight: int = 0
    files: int = 0
    """Files that the lines name."""
    size_bytes: int = 0
    tables: dict[OutputName, str] = field(default_factory=dict)
    table_files: Counter[str] = field(default_factory=Counter)
    left_out: tuple[str, ...] = ()
    owing: tuple[str, ...] = ()


class ImportCopy:
    """Copies one savepoint into a job.

    Args:
        folder: a store that is rooted at the savepoint's folder.
        savepoint: what that holds.
        files: the job's files.
        entry: the import.
        on_progress: called after each file.
    """

    def __init__(
        self,
        folder: ObjectStore,
        savepoint: Savepoint,
        files: JobFiles,
        entry: ImportEntry,
        on_progress: Callable[[FilesProgress], None],
    ) -> None:
        self._folder = folder
        self._savepoint = savepoint
        self._source = FolderFiles(folder, savepoint.header.job)
        self._files = files
        self._entry = entry
        self._on_progress = on_progress
        self._outputs: dict[str, tuple[Output, Output]] = {}
        """Outputs of the stage or execution that is being read, there and here, by id."""
        self._at = ""
        self._tags: dict[str, str | None] = {}
        """Tags of the savepoint's files, by their keys there."""
        self._before: frozenset[str] = frozenset()
        """Files that an earlier process of this import has copied."""

    def run(self, body: Spool) -> Copied:
        """Copy every file, and fill `body` with the lines that name the copies.

        Raises:
            NoSavepointError: a file of the savepoint is missing or altered, or it is not a savepoint any more.
            DocumentError: its metadata is broken or altered, or is no longer that of the import.
            InvalidStateError: the temporary folder of this machine is full.
        """
        self._tags = {found.key: found.etag for found in self._folder.list("")}
        self._before = frozenset(found.key for found in self._files.listing(layout.folder(self._entry.home)))
        copied: Copied | None = None
        for line in self._here():
            if isinstance(line, MetadataHeader):
                copied = Copied(body, line)
                continue
            assert copied is not None  # the format puts the header first
            _count(copied, line)
            try:
                body.put(encode_line(line))
            except OSError as error:
                raise _full(error) from error
            if isinstance(line, HandleLine):
                end = self._savepoint.end
                self._on_progress(FilesProgress(end.files, copied.files, end.size_bytes, copied.size_bytes))
        assert copied is not None  # read to its end
        return copied

    def _here(self) -> Iterator[Line]:
        """Yield the savepoint's lines as they are here, in their order, each once its file is written."""
        return in_order((self._moved(line) for line in self._lines()), AT_ONCE)

    def _lines(self) -> Iterator[Line]:
        for line in savepoint_format.read(self._folder):
            if isinstance(line, savepoint_format.SavepointEnd):
                if line != self._savepoint.end:
                    raise DocumentError(
                        "another savepoint has taken the place of this one while it was read; name it again",
                        savepoint=self._folder.uri,
                    )
            elif not isinstance(line, savepoint_format.SavepointHeader):
                yield line

    def _moved(self, line: Line) -> Move[Line] | Line:
        if isinstance(line, HandleLine):
            # Bound now: the next stage's outputs take the place of these.
            there, here = self._folders(line.handle)
            return partial(self._file, line, there, here)
        if isinstance(line, StageLine | InFlightLine):
            self._at = line.stage
            self._outputs = {each.id: (each, self._output(line.stage, each)) for each in line.outputs}
            outputs = tuple(here for _, here in self._outputs.values())
            execution = self._execution(line.execution)
            if isinstance(line, InFlightLine):
                return replace(line, outputs=outputs, execution=execution)
            owes = tuple(self._backlog_epoch(each) for each in line.owes)
            return replace(line, outputs=outputs, execution=execution, owes=owes, committables={})
        if isinstance(line, MetadataHeader):
            return replace(line, slice=self._slice(line.slice))
        return line

    def _execution(self, execution: Execution) -> Execution:
        """Give an execution as it is called here; its token, by which readers know it, stays."""
        return replace(execution, home=self._entry.home)

    def _backlog_epoch(self, unread: BacklogEpoch) -> BacklogEpoch:
        inputs = {uid: self._execution(each) for uid, each in unread.inputs.items()}
        return replace(unread, inputs=inputs, slice=None if unread.slice is None else self._slice(unread.slice))

    def _slice(self, slice_: Slice) -> Slice:
        return replace(
            slice_,
            sources=None if slice_.sources is None else {k: self._relisted(k, v) for k, v in slice_.sources.items()},
            positions=None
            if slice_.positions is None
            else {k: self._relisted(k, v) for k, v in slice_.positions.items()},
            base=None,
        )

    def _relisted(self, source: str, value: Json) -> Json:
        """Give a part or a position with its lists kept here; each list says whose it is, so it is written anew."""

        def put(listed: metadata.SideList) -> metadata.SideList:
            name = hashlib.sha256(f"{self._entry.token}/{listed.key}/{listed.sha256}".encode()).hexdigest()[:16]
            place = source_lists.SideLists(self._files, self._entry.origin.epoch, self._entry.home, lambda: name)
            try:
                return place.put(source, source_lists.read(self._source, listed))
            except GoneError as error:
                raise self._broken(listed.key, "it is gone") from error

        return metadata.replaced(value, put)

    def _output(self, stage: str, output: Output) -> Output:
        """Give an output with its folder here. Two folders of the savepoint are never one here."""
        name = hashlib.sha256(output.folder.rstrip("/").encode()).hexdigest()[:16]
        folder = layout.output_folder(self._entry.home, stage, 1, self._entry.token, name, output.id)
        return replace(output, folder=folder)

    def _folders(self, handle: StateHandle) -> tuple[str, str]:
        found = self._outputs.get(handle.output)
        if found is None:
            raise DocumentError("the savepoint has a file without an output", key=handle.path, output=handle.output)
        there, here = found[0].folder.rstrip("/") + "/", found[1].folder
        if found[0].appended is not None:
            # Its files come from the folders of many epochs; here they share one, so that plain readers find them.
            there, _, name = handle.path.rpartition("/")
            return handle.path, f"{here}{hashlib.sha256(there.encode()).hexdigest()[:16]}-{name}"
        if handle.path.startswith(there):
            return there, here
        # It was taken over from elsewhere; its folder has a place of its own.
        there = handle.path.rpartition("/")[0] + "/"
        name = hashlib.sha256(there.rstrip("/").encode()).hexdigest()[:16]
        here = layout.output_folder(self._entry.home, self._at, 1, self._entry.token, name, handle.output)
        return there, here

    def _file(self, line: HandleLine, there: str, here: str) -> Line:
        handle = line.handle
        key = here + handle.path.removeprefix(there)
        wanted = DocumentRef(key, handle.size_bytes, savepoint_format.sha256_of(handle.checksum, key=handle.path))
        if not (key in self._before and self._files.stands(wanted)) and not self._copied(handle.path, wanted):
            self._copy(handle.path, wanted)
        etag = self._files.stat(key).etag
        assert etag is not None, "a stat gives the tag"
        # The savepoint's own checksum is the content's, wherever it lies (semantics W9).
        content = None if etag == handle.checksum else handle.checksum
        return replace(line, handle=replace(handle, path=key, checksum=etag, content=content))

    def _copied(self, there: str, wanted: DocumentRef) -> bool:
        """Copy a file on the server, if there is one for both; False where it has to pass through here."""
        etag = self._tags.get(there)
        if etag is None:
            return False
        try:
            found = self._files.store.copy_from(self._folder, there, self._files.full(wanted.key), etag=etag)
        except GoneError as error:
            raise self._broken(there, "it is gone") from error
        if found is not None and found != (f"{savepoint_format.ALGORITHM}{wanted.sha256}",):
            raise self._broken(there, f"expected sha256:{wanted.sha256}, found {found[0]}")
        return found is not None

    def _copy(self, there: str, wanted: DocumentRef) -> None:
        here, size_bytes, sha256 = wanted.key, wanted.size_bytes, wanted.sha256
        with Spool() as spool:
            try:
                for piece in pieces(self._source.read_range, there, PIECE_BYTES, size_bytes):
                    spool.put(piece)
            except GoneError as error:
                raise self._broken(there, "it is gone") from error
            except OSError as error:
                raise _full(error) from error
            ref = spool.reference(here)
            if (ref.size_bytes, ref.sha256) != (size_bytes, sha256):
                raise self._broken(there, f"expected {size_bytes} bytes of sha256:{sha256}, found sha256:{ref.sha256}")
            if not spool.create(self._files, here):
                raise DocumentError("another object has the name made for this one", key=self._files.full(here))

    def _broken(self, key: str, problem: str) -> NoSavepointError:
        return NoSavepointError(
            f"the savepoint is not whole: {key}: {problem}. Nothing of the job has changed; copy the savepoint again, "
            "or name another",
            savepoint=self._folder.uri,
        )


def ends_of(copied: Copied, job: str, checkpoint: int, epoch: str) -> tuple[bytes, bytes]:
    """Give the lines before and after the body in the metadata of one checkpoint of the job."""
    header = replace(copied.header, job=job, checkpoint=checkpoint, epoch=epoch, attempt=1, restored_from=None)
    trailer = Trailer(copied.stages, copied.files, copied.in_flight, copied.hooks)
    return encode_line(header), encode_line(trailer)


def _count(copied: Copied, line: Line) -> None:
    if isinstance(line, HandleLine):
        copied.files += 1
        copied.size_bytes += line.handle.size_bytes
        count_table_file(copied.table_files, line)
    elif isinstance(line, StageLine):
        copied.stages += 1
        copied.tables.update({each.name: each.folder for each in line.outputs if each.kind == "table"})
        if line.left_out:
            copied.left_out = tuple(sorted((*copied.left_out, line.stage)))
        elif line.owes:
            copied.owing = tuple(sorted((*copied.owing, line.stage)))
    elif isinstance(line, InFlightLine):
        copied.in_flight += 1
    elif isinstance(line, HookLine):
        copied.hooks += 1


def _full(error: OSError) -> InvalidStateError:
    return InvalidStateError(f"the temporary folder of this machine cannot hold a file: {error}. Make room there")
