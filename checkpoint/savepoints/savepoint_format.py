"""The format of a savepoint: a folder with `_metadata`, and the files that it names (semantics P1, C5).

The folder has the layout of a job's folder, with the files of one checkpoint only: keys are those of the job
(`chk-<id>/state/…`, `chk-<id>/positions/…`, `epoch-lists/…`), relative to the folder. So the folder can be moved as a
whole, to another bucket or to files and back. Files are identified by the SHA-256 of their content, because a store's
tag does not survive a move.

`_metadata` is JSON lines: a header (`cairn.savepoint`), then the checkpoint's own lines as `metadata.py` has them, then
an end that counts them and holds the SHA-256 of all before it. It is created once, after everything that it names:
without it there is no savepoint. A store handed to this module is rooted at the folder.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from ...storage.errors import CairnError, GoneError
from ...storage.names import check_storage_uri, parse_storage_uri, same_place
from ...storage.port import ConditionFailed, DeleteFailure, ObjectStore
from ...storage.records import dataclass
from ..documents import codec, metadata
from ..documents.attempt import Slice
from ..documents.codec import CheckpointId, Count, Job, RequestId, Target
from ..documents.entries import SavepointEntry
from ..documents.layout import cut_part
from ..documents.metadata import HandleLine, Line, MetadataHeader, StageLine
from ..documents.strict_json import from_json, to_json
from ..errors import DocumentError, NoSavepointError, RefusedError
from ..store.job_files import READ_BYTES, JobFiles
from ..store.jsonl import MAX_LINE_BYTES
from .savepoint_request import OpenFolder

KIND = "cairn.savepoint"
END = "cairn.savepoint-end"
METADATA = "_metadata"
"""The key of the metadata in the folder, which is written last."""

ALGORITHM = "sha256:"
"""Prefix of a file's checksum in a savepoint; 64 hexadecimal digits follow."""

_CHECKSUM = re.compile(r"\Asha256:[0-9a-f]{64}\Z")
SHA256_GRAMMAR = r"\A[0-9a-f]{64}\Z"
"""Form of a SHA-256 in a savepoint."""
_SHA256 = re.compile(SHA256_GRAMMAR)


@dataclass(frozen=True, slots=True)
class SavepointHeader:
    """The first line: the job, and its request."""

    job: Job
    """The job whose savepoint it is."""
    savepoint: CheckpointId
    """Id of the savepoint, out of the job's sequence (semantics T5)."""
    request: RequestId
    taken_at_ms: Count
    """Time of the request, milliseconds since 1970 UTC."""


def check_sha256(value: str) -> None:
    """Check a SHA-256 that a document names.

    Raises:
        ValueError: the text is not one in hexadecimal.
    """
    if _SHA256.match(value) is None:
        raise ValueError("expected 64 hexadecimal digits")


@dataclass(frozen=True, slots=True)
class SavepointEnd:
    """The last line: counts and hash of the lines before."""

    files: Count
    """Files that the lines name, lists of the sources included."""
    size_bytes: Count
    """Size of these files."""
    sha256: Annotated[str, check_sha256]
    """SHA-256 of all bytes before this line."""


SavepointLine = SavepointHeader | Line
"""Between header and end are the lines of the checkpoint's metadata, the header of that included."""


@dataclass(frozen=True, slots=True)
class SavepointFile:
    """A file of a savepoint."""

    key: str
    """Relative to the savepoint's folder."""
    size_bytes: int
    sha256: str
    """Hash of its content, in hexadecimal."""


def folder_name(job: str, request: str, *, storage: str) -> str:
    """Give the name of a savepoint's folder below its target: the same request of a job gives the same folder.

    Args:
        job: the job's name.
        request: the request's id; with something behind it for one that follows one that has failed.
        storage: URI of the storage that the job lies in; another may have a job of this name.
    """
    token = hashlib.sha256(f"{storage}/{job}/{request}".encode()).hexdigest()[:12]
    return f"savepoint-{cut_part(job)}-{token}"


def travelling(line: Line) -> Line:
    """Give a checkpoint's line as its savepoint has it.

    Everything travels but two things. What was staged outside is committed by the job that staged it, and by no other.
    What the checkpoint's own epoch has read has been read; only the sources' positions after it are of use.
    """
    if isinstance(line, StageLine):
        return replace(line, committables={})
    if isinstance(line, MetadataHeader):
        return replace(line, slice=replace(line.slice, sources=None))
    return line


def files_of(line: SavepointLine) -> Iterator[SavepointFile]:
    """Yield the files that a line of a savepoint names.

    Raises:
        DocumentError: a checksum, or the list of a source, does not have the form of one.
    """
    if isinstance(line, HandleLine):
        handle = line.handle
        yield SavepointFile(handle.path, handle.size_bytes, sha256_of(handle.checksum, key=handle.path))
        return
    for listed in side_lists_of(line):
        if _SHA256.match(listed.sha256) is None:
            raise DocumentError("the checksum of a list is not a SHA-256", key=listed.key, found=listed.sha256[:80])
        yield SavepointFile(listed.key, listed.size_bytes, listed.sha256)


def side_lists_of(line: SavepointLine) -> Iterator[metadata.SideList]:
    """Yield the lists of the sources that a line names: with the positions, and in a stage's backlog."""
    slices: list[Slice] = []
    if isinstance(line, MetadataHeader):
        slices = [line.slice]
    elif isinstance(line, StageLine):
        slices = [unread.slice for unread in line.owes if unread.slice is not None]
    for slice_ in slices:
        yield from metadata.referred([slice_.sources, slice_.positions])


def sha256_of(checksum: str, *, key: str) -> str:
    """Give the SHA-256 that a file's checksum in a savepoint holds.

    Raises:
        DocumentError: it is of another kind.
    """
    if _CHECKSUM.match(checksum) is None:
        raise DocumentError(
            "the file of a savepoint is known by another checksum than SHA-256", key=key, found=checksum[:80]
        )
    return checksum.removeprefix(ALGORITHM)


def write(header: SavepointHeader, lines: Iterable[Line], put: Callable[[bytes], object]) -> SavepointEnd:
    """Hand a savepoint's whole metadata to `put`, a line at a time; gives its end.

    Args:
        header: the first line.
        lines: the checkpoint's, its header first; each file by its SHA-256.
        put: takes the bytes of one line.
    """
    digest = hashlib.sha256()
    files: dict[str, int] = {}

    def add(line: bytes) -> None:
        digest.update(line)
        put(line)

    add(codec.encode({"kind": KIND, "format": codec.FORMAT, **to_json(header)}))
    for line in lines:
        files.update((file.key, file.size_bytes) for file in files_of(line))
        add(metadata.encode_line(line))
    end = SavepointEnd(len(files), sum(files.values()), digest.hexdigest())
    put(codec.encode({"kind": END, **to_json(end)}))
    return end


def decode_line(raw: bytes, *, number: int, key: str) -> SavepointLine | SavepointEnd:
    """Parse one line; what it may be depends on its number, 0-based.

    Raises:
        DocumentError: it is not a line of ours, or of an unknown newer format.
    """
    document = codec.parse(raw, key=key)
    kind = document.get("kind") if isinstance(document, dict) else None
    if number == 0:
        if kind != KIND:
            raise DocumentError("this is not a savepoint's metadata", key=key, expected=KIND, found=str(kind)[:80])
        codec.check_format(document, key=key)
        return from_json(SavepointHeader, document, key=key)
    if kind == END:
        return from_json(SavepointEnd, document, key=key)
    return metadata.line_of(document, key=key, first=number == 1)


def read(folder: ObjectStore) -> Iterator[SavepointLine | SavepointEnd]:
    """Stream a savepoint's metadata, checked as it goes: the header first, the end last.

    Raises:
        DocumentError: it is truncated or altered, a line of it is broken or names a path outside of the folder, or it
            is of an unknown newer format. The content is certain only once the iteration has ended.
    """
    where = f"{folder.uri}/{METADATA}"
    digest = hashlib.sha256()
    files: dict[str, int] = {}
    end: SavepointEnd | None = None
    for number, raw in enumerate(_raw_lines(folder, where)):
        if end is not None:
            raise DocumentError("the savepoint's metadata has lines after its end", key=where)
        found = decode_line(raw, number=number, key=where)
        if isinstance(found, SavepointEnd):
            end = found
            if end != SavepointEnd(len(files), sum(files.values()), digest.hexdigest()):
                raise DocumentError("the savepoint's metadata has been altered", key=where)
        else:
            files.update((file.key, file.size_bytes) for file in files_of(found))
            digest.update(raw + b"\n")
        yield found
    if end is None:
        raise DocumentError("the savepoint's metadata is truncated; copy the savepoint again", key=where)


def _raw_lines(folder: ObjectStore, where: str) -> Iterator[bytes]:
    rest, offset = b"", 0
    while True:
        try:
            chunk = folder.read_range(METADATA, offset, READ_BYTES)
        except GoneError as error:
            raise NoSavepointError(
                "there is no savepoint: its _metadata is missing, which is written (and to be copied) last. Give the "
                "savepoint's own folder, or copy it again",
                savepoint=folder.uri,
            ) from error
        offset += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            raise DocumentError("the savepoint's metadata has a line that is too long", key=where)
        yield from whole
        if len(chunk) < READ_BYTES:
            break
    if rest:
        raise DocumentError("the savepoint's metadata is truncated; copy the savepoint again", key=where)


# The folder of one savepoint while it is made or disposed of (semantics P1, W4).
#
# The folder belongs to one request of one job: the first object in it is `_request`, which is created once. So a folder
# with foreign files is told from one that this request has begun, and a target that may not be written to is refused,
# before the job's head knows of the savepoint.
#
# The job's head says which folder it is, and a process that may write the head may name another one. So nothing is
# copied into a folder, and nothing in it is deleted, unless the folder itself says that it is this request's.


log = logging.getLogger("airflow_cairn")

REQUEST = "_request"
"""The key of the document that names the folder's owner."""

REQUEST_KIND = "cairn.savepoint-request"


@dataclass(frozen=True, slots=True)
class FolderOwner:
    """`_request`: whose folder it is."""

    job: Job
    request: RequestId
    storage: Target | None = None
    """URI of the storage that the job lies in: another one may have a job of this name. None: version 0.1 wrote this,
    or no job has asked."""

    def is_named_by(self, found: FolderOwner) -> bool:
        """Tell whether a folder names this owner, as far as it names one."""
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
            RefusedError: foreign files are in the folder, or a savepoint of which the head knows no
                more.
        """
        standing = [found.key for _, found in zip(range(2), self.listing(""), strict=False)]
        if not standing:
            data = codec.encode({"kind": REQUEST_KIND, "format": codec.FORMAT, **to_json(self._owner)})
            if not isinstance(self.create_bytes(REQUEST, data), ConditionFailed):
                self._ours = True
                return
        if not self.is_ours() or self.has(METADATA):
            raise RefusedError(
                "the savepoint's folder is not empty, and the job does not know the files in it. Take it under "
                "another request id, or into another target",
                code="savepoint_refused",
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
        """Delete everything in the folder, if it is ours: first the metadata, last the request, which says whose it is.

        A process that finds it half emptied finds no savepoint, and can go on.
        """
        if not self.is_ours():
            return []
        failures = self.delete([METADATA]) or self.delete(self._below()) or self.delete([REQUEST])
        if failures:
            # It is not a savepoint, or the next call with its request id empties the folder (semantics W7).
            log.warning("What is left of the failed savepoint %s could not be deleted: %s", self.store.uri, failures[0])
        return failures

    def _below(self) -> Iterator[str]:
        return (found.key for found in self.listing("") if found.key not in (METADATA, REQUEST))


def says(folder: ObjectStore, owner: FolderOwner) -> bool | None:
    """Tell whether a folder says that it is this owner's; None where it does not say whose it is."""
    try:
        blob = folder.get(REQUEST, max_bytes=codec.MAX_MARKER_BYTES)
        body = codec.decode(blob.data, kind=REQUEST_KIND, key=REQUEST)
        return owner.is_named_by(from_json(FolderOwner, body, key=REQUEST))
    except GoneError:
        return None
    except DocumentError:
        return False


# How a savepoint is named, by the URI of its folder or of the metadata in it, and how its folder is opened (P1, W10).
#
# Only the caller names places: a target or a savepoint's folder, as the DAG, the command or the person says it now.
# What the job's record says of a savepoint is compared with that, and is never opened for itself. The folder is
# opened below its target, so that a symlink in its place is refused.


def savepoint_folder(uri: object) -> str:
    """Give the URI of a savepoint's folder; everything that takes a savepoint's path reads it by this.

    Args:
        uri: of the folder, or of the `_metadata` in it, as tools that list files give it.

    Returns:
        The folder's, normalised as `check_storage_uri` does.
    """
    found = check_storage_uri(uri)
    folder = found.removesuffix(f"/{METADATA}")
    # What would leave no folder at all is refused as that.
    return found if folder == found else check_storage_uri(folder)


def open_named(uri: object, open_folder: OpenFolder) -> ObjectStore:
    """Open a savepoint that the caller names, by its folder or the `_metadata` in it."""
    folder = savepoint_folder(uri)
    where = parse_storage_uri(folder)
    above, _, name = where.path.rpartition("/")
    if not name or (where.scheme == "file" and not above):
        return open_folder(folder)  # nothing above it is a storage
    return open_folder(str(replace(where, path=above))).below(name)


def remove_folder(uri: str, open_folder: OpenFolder) -> None:
    """Remove a savepoint's folder if nothing is left in it; its target stays.

    Only a file system has folders without files. A folder that is in use again, or cannot be removed, stays: it is not
    a savepoint.
    """
    where = parse_storage_uri(uri)
    above, _, name = where.path.rpartition("/")
    if where.scheme == "file" and above:
        with suppress(CairnError):
            open_folder(str(replace(where, path=above))).delete([f"{name}/"])


def open_entry(entry: SavepointEntry, target: str | None, open_folder: OpenFolder) -> ObjectStore:
    """Open a savepoint that the job's record holds, if it lies in the target that the caller names.

    Args:
        entry: as the record says.
        target: the URI that the caller names; None: it names none.
        open_folder: opens it.

    Raises:
        RefusedError: the record has it elsewhere; nothing was opened.
    """
    if target is None or not same_place(entry.target, target):
        raise RefusedError(
            "the job's record has this savepoint in another target than the one named here, and Cairn opens no place "
            "that only a record names. Name the target where the savepoint was asked for: in its task, or by "
            "`cairn savepoint JOB TARGET --request-id ID` (`cairn stop` for a stop)",
            code="savepoint_refused",
            savepoint=entry.uri,
            request=entry.request,
            named=target or "none",
        )
    return open_folder(target).below(entry.folder)
