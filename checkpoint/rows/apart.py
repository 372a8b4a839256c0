"""Decodes first rows in a separate process, so that a page's server survives any file (semantics W13).

A file of two kilobytes can unpack to gigabytes: a dictionary holds one value of 64 MiB, which a few bytes repeat; a
page compresses a thousandfold; types lie in each other without end. Footers and page headers name sizes, but the writer
of the file chose them. So the kernel bounds memory and time of the child that decodes. The child knows no key and opens
no store: it asks for ranges of the files, and answers with rows that are already few, cut and masked.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from io import BufferedReader
from threading import BoundedSemaphore, Timer
from typing import IO, Any, TypeVar

from ...storage.records import dataclass
from ..documents import codec
from ..documents.acknowledgement import Output, StateHandle
from ..documents.codec import Count
from ..documents.head import Head
from ..documents.strict_json import from_json, to_json
from ..errors import DocumentError, InvalidConfigError
from ..store.job_files import JobFiles
from .reading import ReadBudget, RowsKind, StoredState, TooMuchToReadError, columns_of, find_state, pyarrow_parquet
from .shown import KEYS, READ_BYTES, ROWS, FirstRows, Rows, shown_columns, shown_rows

MEMORY_BYTES = 256 * 1024 * 1024
"""Memory for the files in a child. Fifty columns of an ordinary file, with pages of a megabyte, take half of it."""
CPU_S = 20
WALL_S = 60.0
"""Longest life of a child, slow answers of the store included."""
CHILDREN = 2
"""Children at once."""
PLACE_S = 5.0
"""Time that a request for rows waits for earlier requests."""
FILES = 10_000
"""A state of more files shows no rows; of a table of more, the first ones are read. Few bytes may name millions."""
_PIECE_BYTES = 1024 * 1024
_SAID_BYTES = 8 * 1024 * 1024
"""A line of a child: rows, cut, with each character escaped."""
_PASSED_ON = ("PATH", "HOME", "LD_LIBRARY_PATH")

_places = BoundedSemaphore(CHILDREN)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Task:
    """Request to a child."""

    prefix: str
    """Before the files' keys, for errors."""
    output: Output
    files: tuple[StateHandle, ...]
    size_bytes: Count
    keys: Count


@dataclass(frozen=True, slots=True)
class _Said:
    """A child's word: a range that it needs, or its last word."""

    file: Count | None = None
    start: Count = 0
    length: Count = 0
    rows: Rows = ()
    read_in_part: bool = False
    refused: str = ""
    damaged: str = ""
    too_large: bool = False
    facts: dict[str, str] = field(default_factory=dict)


def first_rows(
    files: JobFiles, head: Head, checkpoint: int, stage: str, name: str, kind: RowsKind = "state"
) -> FirstRows:
    """Read the first rows of a state or a table of a retained checkpoint.

    Args:
        files: the job's.
        head: the job's.
        checkpoint: its id.
        stage: the stage that wrote it.
        name: its name.
        kind: what it is.
    """
    found = find_state(files, head.retained(checkpoint), stage, name, kind, FILES)
    columns = shown_columns(found)
    rows: Rows = ()
    read_in_part = found.cut
    if not found.cut or kind == "table":  # a delta of a state may replace rows of any file
        task = _Task(files.prefix, found.output, tuple(found.in_order()), READ_BYTES, KEYS)
        rows, in_part = _decoded(files, task)
        read_in_part = in_part or (found.cut and len(rows) <= ROWS)
    more_columns = len(columns_of(found.output)) - len(columns)
    return FirstRows(
        checkpoint, stage, name, kind, tuple(columns), more_columns, rows[:ROWS], len(rows) > ROWS, read_in_part
    )


def _decoded(files: JobFiles, task: _Task) -> tuple[Rows, bool]:
    if not _places.acquire(timeout=PLACE_S):
        raise InvalidConfigError(
            f"the rows of {CHILDREN} other states are being read, and no more are at once. Reload this page",
            at_once=CHILDREN,
        )
    try:
        said = _last_word(files, task)
    except TooMuchToReadError:
        return (), True
    finally:
        _places.release()
    if said.too_large:
        raise InvalidConfigError(
            f"to decode the first rows takes more than {MEMORY_BYTES >> 20} MiB of memory or {CPU_S} s, or the file is "
            "damaged. `cairn state` has no such bound: type it where this memory is free",
            **said.facts,
        )
    if said.refused:
        raise InvalidConfigError(said.refused, **said.facts)
    if said.damaged:
        raise DocumentError(said.damaged, **said.facts)
    return said.rows, said.read_in_part


def _last_word(files: JobFiles, task: _Task) -> _Said:
    """Serve a child until its last word."""
    budget = ReadBudget(task.size_bytes, 0)
    with _child() as (process, errors):
        assert process.stdin is not None
        assert isinstance(process.stdout, BufferedReader)
        try:
            _tell(process.stdin, codec.encode(to_json(task)))
            while line := process.stdout.readline(_SAID_BYTES):
                said = _parsed(_Said, line)
                if said.file is None:
                    return said
                budget.spend(said.length)
                _tell(process.stdin, files.read_range(task.files[said.file].path, said.start, said.length))
        except BrokenPipeError:
            pass  # it has died, or its time is over
        ended = process.wait()
        if ended > 0:
            errors.seek(0)
            raise RuntimeError(f"the process that decodes rows has ended: {errors.read().decode(errors='replace')}")
    return _Said(too_large=True, facts={"signal": str(-ended)})


@contextmanager
def _child() -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """Start a child, with what it prints; it ends with the block, and after `WALL_S` at the latest."""
    environ = {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith("PYTHON")}
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            # One arena, and the C library's allocator: little memory is reserved, and running out of it is an error.
            env={**environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        timer = Timer(WALL_S, process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield process, errors
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(BrokenPipeError):
                    pipe.close()


def _tell(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "big"))
    pipe.write(data)
    pipe.flush()


def _parsed(cls: type[T], line: bytes) -> T:
    where = "what decodes rows"
    return from_json(cls, codec.parse(line, key=where), key=where)


# The child.


class _Asked:
    """Files that the parent reads."""

    def __init__(self, task: _Task) -> None:
        self._prefix = task.prefix
        self._at = {handle.path: number for number, handle in enumerate(task.files)}

    def full(self, key: str) -> str:
        """Give the key as the store knows it."""
        return self._prefix + key

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Read bytes of a file, piece by piece."""
        found = b""
        while len(found) < length:
            _say(_Said(self._at[key], start + len(found), min(length - len(found), _PIECE_BYTES)))
            piece = _heard()
            if not piece:
                break
            found += piece
        return found


def _say(said: _Said) -> None:
    sys.stdout.buffer.write(codec.encode(to_json(said)))
    sys.stdout.buffer.flush()


def _heard() -> bytes:
    length = sys.stdin.buffer.read(8)
    if len(length) < 8:
        raise SystemExit  # the parent is gone
    return sys.stdin.buffer.read(int.from_bytes(length, "big"))


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _set_limits() -> None:
    """Bound this process's CPU time, core dumps and output from now on; on Linux its memory, too."""
    _limit(resource.RLIMIT_CPU, CPU_S)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, _PIECE_BYTES)  # of what it prints
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as found:
            taken = int(found.read().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, taken + MEMORY_BYTES)


def _answer() -> _Said:
    try:
        parquet: Any = pyarrow_parquet("this page")
        _set_limits()
        task = _parsed(_Task, _heard())
        found = StoredState(task.output, list(enumerate(task.files)))
        rows, read_in_part = shown_rows(parquet, _Asked(task), found, ReadBudget(task.size_bytes, task.keys))
    except (MemoryError, RecursionError):
        return _Said(too_large=True)
    except InvalidConfigError as error:
        return _Said(refused=error.message, facts={name: str(value) for name, value in error.fields.items()})
    except DocumentError as error:
        return _Said(damaged=error.message, facts={name: str(value) for name, value in error.fields.items()})
    return _Said(rows=rows, read_in_part=read_in_part)


if __name__ == "__main__":
    _say(_answer())
