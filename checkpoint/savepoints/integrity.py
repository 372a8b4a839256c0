"""Reads a savepoint's folder, and checks that all its files exist and are unaltered (semantics P1, C5).

Reads and never writes. A file is known by the SHA-256 of its content, so the check reads every byte, and has the same
result after the savepoint was moved from its bucket to files and back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field

from ...storage.errors import GoneError
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..answers import FilesProgress
from ..documents.metadata import HookLine, MetadataHeader, StageLine
from ..errors import DocumentError
from ..rules.restored_state import RestoredStage
from ..store.job_files import PIECE_BYTES, pieces
from ..store.verification import restored_stage
from . import savepoint_format
from .savepoint_format import SavepointEnd, SavepointFile, SavepointHeader

THREADS = 8
"""Files that are read at once."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """Summary of a savepoint's metadata."""

    header: SavepointHeader
    source: MetadataHeader
    """Header of the checkpoint that the savepoint was made from."""
    end: SavepointEnd
    stages: tuple[RestoredStage, ...]
    """State of each stage, which has to be claimed and to fit (semantics R3, R4)."""
    hooks: tuple[str, ...]
    """Names of the master hooks with state in the savepoint."""
    files: tuple[SavepointFile, ...] = field(repr=False)
    """Every file of the savepoint, once."""


@dataclass(frozen=True, slots=True)
class SavepointDamage:
    """One damage of a savepoint."""

    key: str
    """Key, relative to the savepoint's folder."""
    problem: str

    def __str__(self) -> str:
        return f"{self.key}: {self.problem}"


def load(folder: ObjectStore) -> Savepoint:
    """Read a savepoint's metadata as a whole; the files themselves are not looked at.

    Raises:
        DocumentError: it is truncated, altered, broken, or of an unknown newer format.
    """
    header: SavepointHeader | None = None
    source: MetadataHeader | None = None
    end: SavepointEnd | None = None
    stages: list[RestoredStage] = []
    hooks: list[str] = []
    files: dict[str, SavepointFile] = {}
    for line in savepoint_format.read(folder):
        if isinstance(line, SavepointEnd):
            end = line
            continue
        files.update((file.key, file) for file in savepoint_format.files_of(line))
        if isinstance(line, SavepointHeader):
            header = line
        elif isinstance(line, MetadataHeader):
            source = line
        elif isinstance(line, StageLine):
            stages.append(restored_stage(line))
        elif isinstance(line, HookLine):
            hooks.append(line.answer.name)
    if header is None or source is None or end is None:
        raise DocumentError("the savepoint's metadata describes no checkpoint", key=folder.uri)
    return Savepoint(header, source, end, tuple(stages), tuple(hooks), tuple(files.values()))


def lacking(folder: ObjectStore, savepoint: Savepoint) -> list[str]:
    """Give the keys of files that are missing or of another size, as one listing tells; reads none of them."""
    sizes = {found.key: found.size_bytes for found in folder.list("")}
    return [file.key for file in savepoint.files if sizes.get(file.key) != file.size_bytes]


def damages(
    folder: ObjectStore, savepoint: Savepoint, on_progress: Callable[[FilesProgress], None] = lambda _: None
) -> Iterator[SavepointDamage]:
    """Yield the problems of the files of a savepoint, in the order in which it names them; reads all of them."""
    done = bytes_done = 0
    with ThreadPoolExecutor(THREADS) as pool:
        problems = pool.map(lambda file: _problem(folder, file), savepoint.files)
        for file, problem in zip(savepoint.files, problems, strict=True):
            done, bytes_done = done + 1, bytes_done + file.size_bytes
            on_progress(FilesProgress(len(savepoint.files), done, savepoint.end.size_bytes, bytes_done))
            if problem is not None:
                yield SavepointDamage(file.key, problem)


def _problem(folder: ObjectStore, file: SavepointFile) -> str | None:
    digest, size_bytes = hashlib.sha256(), 0
    try:
        for piece in pieces(folder.read_range, file.key, PIECE_BYTES, file.size_bytes):
            digest.update(piece)
            size_bytes += len(piece)
    except GoneError:
        return "it is gone"
    if size_bytes != file.size_bytes:
        found = folder.stat(file.key).size_bytes
        return f"its size differs: expected {file.size_bytes} bytes, found {found}"
    if digest.hexdigest() != file.sha256:
        return f"its content differs: expected sha256:{file.sha256}, found sha256:{digest.hexdigest()}"
    return None
