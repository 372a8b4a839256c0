"""The position of a `FileSource`: every file read, as a chain that grows by what an epoch adds (semantics T8).

The newest names are in the position itself, up to `INLINE_BYTES`; then they become a side list, a piece. A long list
of an epoch is taken over as a piece as it is. Two neighbours become one where the older is at most twice as long as the
newer, so that there are few pieces and no name is written again more often than the logarithm of how many there are.
All is sorted by name and read as a stream: memory does not grow with what was read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from ...storage.names import order
from ..documents import codec
from ..documents.list_reference import SideList, from_reference
from ..documents.strict_json import Json
from ..errors import DocumentError
from ..source import Shelf
from ..store.source_lists import INLINE_BYTES

Marks = Iterable[tuple[str, str]]
"""Names with their marks, sorted by name; each name once."""


@dataclass(frozen=True, slots=True)
class SeenFiles:
    """What a `FileSource` has read."""

    uri: str
    recent: dict[str, str]
    """The newest, by name: the mark of each."""
    pieces: tuple[SideList, ...] = ()
    """The others, oldest piece first; where a name is there twice, the newest counts."""

    @classmethod
    def of(cls, position: Json, uri: str) -> SeenFiles:
        """Read a position; None is that of a source at `uri` that has read nothing.

        Raises:
            DocumentError: it is no position of a FileSource.
        """
        if position is None:
            return cls(uri, {})
        if not isinstance(position, dict) or not isinstance(position.get("seen"), dict):
            raise DocumentError("this is no position of a FileSource: give it a new name", found=str(position)[:80])
        pieces = tuple(from_reference(piece) for piece in position.get("pieces", ()))
        return cls(str(position.get("uri")), dict(position["seen"]), pieces)

    def to_position(self) -> Json:
        """Write it as a position."""
        position: dict[str, Json] = {"uri": self.uri, "seen": self.recent}
        return position | ({"pieces": [piece.to_reference() for piece in self.pieces]} if self.pieces else {})

    def marks(self, shelf: Shelf) -> Iterator[tuple[str, str]]:
        """Stream every file read, with its mark, sorted by name.

        Raises:
            GoneError: a piece is gone.
            DocumentError: a piece is broken.
        """
        return _newest([sorted_marks(self.recent.items()), *(_marks_of(shelf, each) for each in reversed(self.pieces))])

    def plus_few(self, name: str, files: Iterable[Any], shelf: Shelf) -> SeenFiles:
        """Add the files of a short list."""
        recent = self.recent | {file["key"]: mark_of(file) for file in files}
        if len(codec.encode(recent)) <= INLINE_BYTES:
            return replace(self, recent=recent)
        piece = shelf.put(name, (_entry(*each) for each in sorted_marks(recent.items())))
        return replace(self, recent={}, pieces=_compacted(name, (*self.pieces, piece), shelf))

    def plus_list(self, name: str, listed: SideList, shelf: Shelf) -> SeenFiles:
        """Add the files of a side list, which becomes a piece itself."""
        recent = dict(self.recent)
        if recent:  # what the list reads again is newer there
            for file in shelf.read(listed):
                recent.pop(file["key"], None)
        return replace(self, recent=recent, pieces=_compacted(name, (*self.pieces, listed), shelf))


class Lookup:
    """Finds, in marks sorted by name, those of names that are asked for in order."""

    def __init__(self, marks: Marks) -> None:
        self._marks = iter(marks)
        self._next = next(self._marks, None)

    def mark(self, key: str) -> str | None:
        """Give the mark of `key`, which sorts behind those asked for before; None: it is not among the names."""
        wanted = order(key)
        while self._next is not None and order(self._next[0]) < wanted:
            self._next = next(self._marks, None)
        return self._next[1] if self._next is not None and self._next[0] == key else None


def mark_of(file: Any) -> str:
    """Give what tells this content of a file from another: its size in bytes and its tag, empty for a local file."""
    return f"{file['size_bytes']} {file['etag']}"


def sorted_marks(marks: Marks) -> list[tuple[str, str]]:
    """Sort by name, as a store lists."""
    return sorted(marks, key=lambda each: order(each[0]))


def _compacted(name: str, pieces: tuple[SideList, ...], shelf: Shelf) -> tuple[SideList, ...]:
    while len(pieces) > 1 and pieces[-2].values <= 2 * pieces[-1].values:
        merged = _newest([_marks_of(shelf, pieces[-1]), _marks_of(shelf, pieces[-2])])
        pieces = (*pieces[:-2], shelf.put(name, (_entry(*each) for each in merged)))
    return pieces


def _newest(sources: list[Marks]) -> Iterator[tuple[str, str]]:
    """Merge, the newest first among the sources."""
    ranked = (_ranked(rank, marks) for rank, marks in enumerate(sources))
    for _, group in groupby(heapq.merge(*ranked), key=itemgetter(0)):
        _, _, key, mark = next(group)
        yield key, mark


def _ranked(rank: int, marks: Marks) -> Iterator[tuple[bytes, int, str, str]]:
    return ((order(key), rank, key, mark) for key, mark in marks)


def _marks_of(shelf: Shelf, piece: SideList) -> Iterator[tuple[str, str]]:
    return ((file["key"], mark_of(file)) for file in shelf.read(piece))


def _entry(key: str, mark: str) -> Json:
    size, _, etag = mark.partition(" ")
    return {"key": key, "size_bytes": int(size), "etag": etag}
