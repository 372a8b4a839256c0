"""Copies of state beside the Spark server that wrote it, so that a restore need not read the store (semantics V3).

A copy's name follows from the checkpoint metadata of its files, so a stage never asks for another checkpoint's copy.
The name is not trusted: each file's size and SHA-256 are compared with the metadata before Spark reads it.

A folder belongs to one server and is lost with it. Several processes share it, and no process waits for another: a
`flock` on a copy or a draft marks it as in use. The system drops that lock when the process dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from ...checkpoint.documents.acknowledgement import StateHandle
from ...checkpoint.rules.restored_state import FILES
from ...checkpoint.store import job_files
from ...storage.checksums import SHA256, algorithm_of
from ...storage.clock import new_token
from ...storage.errors import StorageError
from ...storage.local.files import chunks, tag_of
from ...storage.names import parse_storage_uri
from ...storage.records import dataclass

log = logging.getLogger("airflow_cairn")

COPIES = 2
"""Copies of each state: the restored one and the written one."""
DELTA_COPIES = 128
"""Deltas of each state (semantics K1): at most 70 live ones, and leftovers of failed tries and of merges."""
_HELD_DELTAS = 256
"""Most copies of deltas that one process holds open; further ones are read from the store. Bases do not count: a stage
has few, and each saves far more than a delta."""
_AT_ONCE = 8
"""Files compared at once."""
_DRAFT, _DROPPED, _TOO_LARGE = "draft-", "dropped-", "too-large-"
_DATA = "data"
_DELTA = "run"
"""Prefix of a delta's slot; no slot of a state begins so, since those are hexadecimal numbers."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """The expected properties of one file of a copy."""

    name: str
    size_bytes: int
    sha256: str
    """The checksum with the algorithm's name (`storage/checksums.py`)."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy's contents, as the caller knows them from the metadata."""

    identity: str
    """The whole contents and their origin: equal only for equal copies."""
    files: tuple[CopiedFile, ...]

    @classmethod
    def of(cls, handles: Sequence[StateHandle]) -> Copy | None:
        """Describe the copy of an output; None if it has no files, or one whose SHA-256 is unknown."""
        facts, files = [], []
        for handle in sorted(handles, key=lambda handle: handle.path):
            sha256 = job_files.known(handle) or ""
            if algorithm_of(sha256) != SHA256:
                return None
            facts.append([handle.output, handle.path, handle.size_bytes, handle.checksum, sha256])
            files.append(CopiedFile(name_in_copy(handle.output, handle.path), handle.size_bytes, sha256))
        if not files or len({each.name for each in files}) < len(files):
            return None
        return cls(json.dumps(facts), tuple(files))

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files)


def name_in_copy(output_id: str, path: str) -> str:
    """Name a file in a copy, which has no folders; a raw file's name tells all paths apart."""
    if output_id.partition(".")[0] == FILES:
        return hashlib.sha256(path.encode()).hexdigest()
    return path.rpartition("/")[2]


def delta_of(output_id: str) -> str:
    """Return the name for copies of a state's deltas, which push out no copy of its base."""
    return f"{_DELTA}.{output_id.partition('.')[2]}"


def _is_delta(output_id: str) -> bool:
    return output_id.startswith(f"{_DELTA}.")


class LocalState:
    """One server's copies for one owner: storage, job and stage; safe to use from several threads."""

    def __init__(self, folder: Path, limit_bytes: int, owner: str) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._owner = owner
        self._lock = Lock()
        self._found: dict[str, Path] = {}

    @classmethod
    def beside(cls, folder: str | None, limit_bytes: int, owner: str) -> LocalState | None:
        """Use the folder of this client's server; None if it keeps no copies, or in no folder that can be trusted."""
        if not folder:
            return None
        try:
            parse_storage_uri(f"file://{folder}")  # Spark would read some names as patterns
            found = os.stat(folder, follow_symlinks=False)
        except (OSError, StorageError) as error:
            log.info("State is read from the store: the server has no copies here (%s)", error)
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            log.warning("State is read from the store: %s is not a folder of this user alone", folder)
            return None
        return cls(Path(folder), limit_bytes, owner)

    def find(self, output_id: str, handles: Sequence[StateHandle]) -> Path | None:
        """Return the folder with exactly an output's files, by their own names; None if there is none.

        The folder stays until this process ends.

        For a delta, the output's id is `delta_of` it, and the handles are only the delta's.
        """
        copy = Copy.of(handles)
        if copy is None:
            return None
        name = self._name(output_id, copy)
        with self._lock:
            if name not in self._found:
                if _is_delta(output_id) and sum(each.startswith(_DELTA) for each in self._found) >= _HELD_DELTAS:
                    log.info(
                        "Output %s is read from the store: at most %d copies of deltas are open at once",
                        output_id,
                        _HELD_DELTAS,
                    )
                elif self._hold(name, copy, output_id):
                    self._found[name] = self.folder / name
            return self._found.get(name)

    def touch(self, output_id: str, handles: Sequence[StateHandle]) -> None:
        """Mark a copy, if there is one, as used now without reading it."""
        copy = Copy.of(handles)
        if copy is None:
            return
        try:
            os.utime(self.folder / self._name(output_id, copy))
        except FileNotFoundError:
            pass  # the state has no copy here
        except OSError as error:
            log.info("The copy of %s may be deleted early: %s", output_id, error)

    def draft(self, output_id: str) -> Draft | None:
        """Start to write a copy; None if a copy of this state would not fit."""
        try:
            if (self.folder / f"{_TOO_LARGE}{self._slot(output_id)}").exists():
                return None
            if shutil.disk_usage(self.folder).free < self.limit_bytes:
                log.info(
                    "Output %s is written to the store alone: the disk of %s is almost full", output_id, self.folder
                )
                return None
            return Draft(self, output_id)
        except OSError as error:
            log.warning("Output %s is written to the store alone: %s", output_id, error)
            return None

    def note_too_large(self, output_id: str) -> None:
        """Have a state written directly to the store for the server's lifetime."""
        (self.folder / f"{_TOO_LARGE}{self._slot(output_id)}").touch()

    def keep(self, written: Path, output_id: str, handles: Sequence[StateHandle]) -> None:
        """Take a folder below this one as the copy of an output, by one rename, and delete excess copies."""
        copy = Copy.of(handles)
        if copy is None:
            return
        os.utime(written)
        written.rename(self.folder / self._name(output_id, copy))
        self.clean()

    def clean(self) -> None:
        """Delete leftovers of dead processes, and excess copies, least recently used first."""
        copies: list[tuple[int, str, int]] = []
        for entry in os.scandir(self.folder):
            if entry.name.startswith((_DRAFT, _DROPPED)):
                self._drop(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                size_bytes = sum(each.stat(follow_symlinks=False).st_size for each in os.scandir(entry.path))
                copies.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name, size_bytes))
        total, of_slot = 0, Counter[str]()
        for _, name, size_bytes in sorted(copies, reverse=True):
            slot = name.partition("-")[0]
            of_slot[slot] += 1
            too_many = of_slot[slot] > (DELTA_COPIES if slot.startswith(_DELTA) else COPIES)
            if not too_many:
                total += size_bytes
            if too_many or total > self.limit_bytes:
                self._drop(name)

    def _slot(self, output_id: str) -> str:
        kind = _DELTA if _is_delta(output_id) else ""
        return kind + hashlib.sha256(f"{self._owner}\n{output_id}".encode()).hexdigest()[:32]

    def _name(self, output_id: str, copy: Copy) -> str:
        return f"{self._slot(output_id)}-{hashlib.sha256(copy.identity.encode()).hexdigest()}"

    def _hold(self, name: str, copy: Copy, output_id: str) -> bool:
        """Lock a complete copy for the rest of this process."""
        folder = None
        try:
            folder = locked(self.folder / name, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if folder is None:
                return False
            wrong = _differs(folder, copy.files)
            if wrong is None:
                os.utime(folder)
                # A state may have many deltas: a line for each would hide the other lines.
                level = logging.DEBUG if _is_delta(output_id) else logging.INFO
                log.log(
                    level, "Output %s is read from its copy beside the server: %d bytes", output_id, copy.size_bytes
                )
                return True
        except OSError as error:
            wrong = str(error)
        if folder is not None:
            os.close(folder)
        log.warning("The local copy of %s is damaged, and the store is read: %s", output_id, wrong)
        self._drop(name)
        return False

    def _drop(self, name: str) -> None:
        """Delete a copy or a draft, unless a process uses it."""
        folder = None
        try:
            folder = locked(self.folder / name, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder is None:
                return
            gone = self.folder / f"{_DROPPED}{new_token()}"
            (self.folder / name).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
        except OSError as error:
            log.warning("Could not delete %s: %s", self.folder / name, error)
        finally:
            if folder is not None:
                os.close(folder)


class Draft:
    """A copy that is being written; as a context manager it deletes itself unless it was kept.

    Raises:
        OSError: the disk failed.
    """

    def __init__(self, state: LocalState, output_id: str) -> None:
        self._state = state
        self.output_id = output_id
        self._folder, self._fd = _new_draft(state.folder)
        self.data = self._folder / _DATA
        """The folder for Spark to write; it does not exist yet."""

    @property
    def url(self) -> str:
        """The folder's URL for Spark."""
        return f"file://{self.data}"

    def give_up(self, why: str) -> None:
        """Have this state written directly to the store from now on."""
        log.warning("Output %s is written to the store alone from now on: %s", self.output_id, why)
        try:
            self._state.note_too_large(self.output_id)
        except OSError as error:
            log.warning(
                "Other processes will try to keep copies of %s too: this could not be recorded: %s",
                self.output_id,
                error,
            )

    def keep(self, handles: Sequence[StateHandle]) -> None:
        """Keep the draft as the copy of these files; on failure, log the reason, and the store is read."""
        try:
            self._state.keep(self.data, self.output_id, handles)
        except OSError as error:
            log.warning("No local copy of %s was kept: %s", self.output_id, error)

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._fd)


def _new_draft(folder: Path) -> tuple[Path, int]:
    while True:
        made = folder / f"{_DRAFT}{new_token()}"
        made.mkdir(0o700)
        fd = locked(made, fcntl.LOCK_SH)
        if fd is not None:
            return made, fd
        # Another process took the draft for a dead one's before it was locked.


def locked(path: Path, how: int) -> int | None:
    """Open and lock a folder; None if it is missing, or another process uses it."""
    try:
        fd = os.open(path, _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(fd, how)
        if os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd)):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _differs(folder: int, files: Sequence[CopiedFile]) -> str | None:
    """Describe how an open copy differs from its files; None if it does not."""
    with ThreadPoolExecutor(_AT_ONCE, "cairn-compare") as pool:
        return next(filter(None, pool.map(lambda each: _file_differs(folder, each), files)), None)


def _file_differs(folder: int, file: CopiedFile) -> str | None:
    fd = os.open(file.name, _FILE, dir_fd=folder)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != file.size_bytes:
            return f"{file.name} has {found.st_size} bytes and not {file.size_bytes}"
        tag = tag_of(chunks(fd))
        return None if tag == file.sha256 else f"{file.name} has {tag} and not {file.sha256}"
    finally:
        os.close(fd)
