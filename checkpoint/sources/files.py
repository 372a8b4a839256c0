"""`FileSource`: new files below a folder, each read once (semantics T8).

The listing of the folder is merged, as a stream, with the names that were read before; long lists become side lists. So
memory grows neither with the folder nor with the number of files read.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain, groupby
from operator import itemgetter
from types import NoneType
from typing import Any, ClassVar

from ...storage.errors import GoneError, InvalidKeyError
from ...storage.names import check_name, order, parse_storage_uri, same_place, shorten
from ...storage.port import ObjectStat, ObjectStore
from ...storage.records import dataclass
from ..documents import codec
from ..documents.metadata import SideList, from_reference
from ..documents.strict_json import Json
from ..errors import CallbackError, DocumentError, InvalidConfigError
from ..source import Reading, Refusal, RunFacts, Shelf
from ..store.source_lists import INLINE_BYTES
from ..validation import check_choice, check_whole, refuses_unknown
from . import file_names

_MARK = re.compile(r"-?[0-9]{1,4000} .*", re.DOTALL)
"""Form of a mark (`mark_of`)."""
MAX_NAMED = 100
"""Changed files that a part names; all of them are counted."""


@refuses_unknown
@dataclass(frozen=True, slots=True)
class FileSource:
    """Reads the files that no completed checkpoint has read, oldest name first.

    A file is known by its name, size and tag; local files have no tag, so there a change that keeps the size is not
    seen. Names with a segment that begins with `_` or `.` are not read, as in Spark.

    Raises:
        InvalidConfigError: an option is out of its bounds, or the pattern could match no file.
        InvalidKeyError: the name is outside the grammar (semantics W1).
        UnsupportedStorageError: Cairn does not support the URI's scheme.
    """

    uri: str
    """Folder of the files, as a storage URI: `file:///folder`, `s3://bucket/prefix`, `gs://…` or `abfss://…`."""
    pattern: str = "**"
    """Pattern of file names below the URI: `*`, `?` and `[a-z]` stay in one folder, `**` crosses folders, and
    `{csv,json}` is either."""
    max_files: int | None = None
    """Largest number of files that an epoch reads; at least 1."""
    max_bytes: int | None = None
    """Largest number of bytes that an epoch reads; at least 1. A larger file is read alone."""
    on_change: str = "report"
    """Treatment of a file that changed after it was read: `report` logs it each time, `read` reads it again, `refuse`
    refuses the epoch."""
    aws_conn_id: str | None = None
    """Airflow connection of type `aws`; None for boto3's own chain."""
    name: str = "files"
    positioned: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_name("source", self.name)
        if not isinstance(self.uri, str):
            raise InvalidConfigError("uri must be a text, such as s3://bucket/prefix", uri=shorten(self.uri))
        parse_storage_uri(self.uri)
        if not isinstance(self.pattern, str) or not self.pattern:
            raise InvalidConfigError("pattern must be a text of at least one character", pattern=shorten(self.pattern))
        file_names.compiled(self.pattern)
        for option in ("max_files", "max_bytes"):
            value = getattr(self, option)
            if value is not None:
                check_whole(option, value)
        check_choice("on_change", self.on_change, ("report", "read", "refuse"))

    def read(self, run: RunFacts, position: Json) -> Reading | Refusal:
        """List the folder and choose the new files.

        Raises:
            DocumentError: `position` was not written by a FileSource, or a side list that it names is broken.
            CallbackError: there is no such folder or bucket, or a name in it is not valid.
        """
        seen = SeenFiles.of(position, self.uri)
        if not same_place(seen.uri, self.uri):
            return Refusal(
                f"the source {self.name!r} has read from {seen.uri} and is now at {self.uri}: give it a new name to "
                "start anew there"
            )
        choosing = _Choosing(self, run.open_store(self.uri, self.aws_conn_id), seen, _digest(position))
        try:
            return choosing.reading(run.shelf)
        except _RefusedError as error:
            return Refusal(str(error))

    def advance(self, position: Json, part: Json, shelf: Shelf, /) -> Json | Refusal:
        """Add the files of `part` to those read; refuse a file that was read since.

        Raises:
            DocumentError: `part` or `position` was not written by a FileSource, or a list that they name is broken.
        """
        listed = _list_of(part)
        seen = SeenFiles.of(position, self.uri)
        for uri in (part["uri"], seen.uri):
            if not same_place(str(uri), self.uri):
                return Refusal(
                    f"the source {self.name!r} was at {uri} when that was fixed, and is now at {self.uri}: put the "
                    "uri back, or give the source a new name to start anew and mark this run as done"
                )
        if part.get("after") != _digest(position):
            refusal = _read_since(Lookup(seen.marks(shelf)), files_in(part, shelf.read))
            if refusal is not None:
                return refusal
        if listed is None:
            return seen.plus_few(self.name, files_in(part, shelf.read, _MARKED), shelf).to_position()
        return seen.plus_list(self.name, listed, shelf).to_position()


class _RefusedError(Exception):
    """A file may not be read as it is; the text is for the author."""


@dataclass(slots=True)
class _Choosing:
    """One reading of a folder."""

    source: FileSource
    store: ObjectStore
    seen: SeenFiles
    after: str
    """Digest of the position from which the reading starts."""
    chosen: int = 0
    left: int = 0
    left_out: int = 0
    """Files that the pattern does not take."""
    first_left_out: str = ""
    is_empty: bool = True
    """Whether nothing at all lies there."""
    changes: int = 0
    changed: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def reading(self, shelf: Shelf) -> Reading:
        """Choose the input: a few files inside the part, more as a side list."""
        files = self._files(shelf)
        few: list[Json] = []
        size = 0
        for file in files:
            few.append(file)
            size += len(codec.encode(file))
            if size > INLINE_BYTES:
                listed, note = shelf.fix(self.source.name, chain(few, files), self._note)
                note = note if isinstance(note, dict) else {}
                return self._reading({"list": listed.to_reference(), "count": listed.values, **note})
        return self._reading({"files": few, **self._note()})

    def _reading(self, part: dict[str, Json]) -> Reading:
        count = part.get("count", len(part.get("files", ())))
        return Reading(part, (*self.log, f"{count} files to read from {self.source.uri}"))

    def _note(self) -> dict[str, Json]:
        note: dict[str, Json] = {"uri": self.source.uri, "changed": self.changed, "after": self.after}
        return note if self.chosen or not self.left_out else note | {"left_out": self.left_out}

    def _files(self, shelf: Shelf) -> Iterator[dict[str, Json]]:
        """Yield the new files within the bounds; then write the log lines."""
        lookup = Lookup(self.seen.marks(shelf))
        total = 0
        for found in self._matching():
            mark = lookup.mark(found.key)
            if mark is not None and not self._reads_again(mark, found):
                continue
            if self.left or not self._fits(found, total):
                self.left += 1
                continue
            file = self._file(found, mark)
            if self._is_there(found):
                total += found.size_bytes
                self.chosen += 1
                yield file
        self._close(total)

    def _matching(self) -> Iterator[ObjectStat]:
        """List the files below the URI that match the pattern, in the order of their names."""
        matches = file_names.compiled(self.source.pattern).fullmatch
        for found in self._listing():
            self.is_empty = False
            if found.key.endswith("/") or file_names.is_hidden(found.key):
                continue
            if matches(found.key):
                yield found
            else:
                self.left_out += 1
                self.first_left_out = self.first_left_out or found.key

    def _listing(self) -> Iterator[ObjectStat]:
        try:
            self.store.check_root()
            yield from self.store.list("")
        except (GoneError, InvalidKeyError) as error:
            help_ = ". Correct its uri, make the folder, or mount its disk" if isinstance(error, GoneError) else ""
            raise CallbackError(
                f"the source {self.source.name!r} cannot list {self.source.uri}: {error.message}{help_}",
                code="source",
                source=self.source.name,
                **error.fields,
            ) from error

    def _is_there(self, found: ObjectStat) -> bool:
        """Tell whether a listed local file still exists; a store with etags is not asked, as it lists whole pages."""
        if found.etag is not None:
            return True
        try:
            self.store.read_range(found.key, 0, 0)
        except GoneError:
            return False
        return True

    def _reads_again(self, mark: str, found: ObjectStat) -> bool:
        if not _differs(mark, found):
            return False
        self.changes += 1
        if len(self.changed) < MAX_NAMED:
            self.changed.append(found.key)
        return self.source.on_change == "read"

    def _fits(self, found: ObjectStat, total: int) -> bool:
        most_files, most_bytes = self.source.max_files, self.source.max_bytes
        if most_files is not None and self.chosen >= most_files:
            return False
        return most_bytes is None or not self.chosen or total + found.size_bytes <= most_bytes

    def _file(self, found: ObjectStat, mark: str | None) -> dict[str, Json]:
        try:
            url = self.store.spark_url(found.key)
        except InvalidKeyError as error:
            raise self._refused(found.key, error.message) from error
        if problem := file_names.unreadable(url):
            raise self._refused(found.key, problem)
        file = {"key": found.key, "size_bytes": found.size_bytes, "etag": found.etag or "", "url": url}
        if found.modified_ms is not None:
            file["modified_ms"] = found.modified_ms
        return file if mark is None else {**file, "replaces": mark}

    def _refused(self, key: str, why: str) -> _RefusedError:
        return _RefusedError(
            f"the file {shorten(key)} of the source {self.source.name!r} at {self.source.uri} cannot be read: {why}. "
            "Rename or remove it, or give the source a pattern that leaves it out"
        )

    def _close(self, total: int) -> None:
        source = self.source
        if source.max_bytes is not None and total > source.max_bytes:
            self.log.append(f"one file of {total} bytes is larger than max_bytes={source.max_bytes} and is read alone")
        if self.changes and source.on_change == "refuse":
            raise _RefusedError(
                f"{self.changes} files changed after they were read, the first is {self.changed[0]}: put it back, or "
                "set on_change='report' or 'read'"
            )
        if self.changes:
            what = "read again" if source.on_change == "read" else "not read again"
            self.log.append(
                f"{self.changes} files changed after they were read and are {what}; the first is {self.changed[0]}"
            )
        if self.left:
            self.log.append(f"{self.left} more files are left to the next epoch")
        if self.is_empty:
            self.log.append(
                f"nothing lies in {source.uri}: if it should, see that its uri is right, and that its disk is mounted"
            )
        if self.left_out and not self.chosen:
            self.log.append(
                f"the pattern {source.pattern!r} leaves out {self.left_out} files; the first is "
                f"{shorten(self.first_left_out)}"
            )


_READ, _MARKED = ("key", "url"), ("key", "size_bytes", "etag")
"""Required fields of a file to read, and of a file that counts as read."""


def files_in(
    part: Json, read_list: Callable[[SideList], Iterator[Json]], needed: Sequence[str] = _READ
) -> Iterator[dict[str, Json]]:
    """Yield the files of a part.

    Args:
        part: a FileSource's part of an epoch's input.
        read_list: reads a side list.
        needed: required fields of each file.
    """
    listed = _list_of(part)
    if listed is None:
        return _checked(part["files"], "the slice of the epoch", needed)
    return _checked(read_list(listed), listed.key, needed)


_TYPES = {"key": str, "size_bytes": int, "etag": str, "url": str, "modified_ms": int, "replaces": str}
"""Fields of a file in a list; an author's own source may leave some out."""


def _checked(files: Iterable[Json], where: str, needed: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Check that each value is a file with its required fields, because others may write the store, too."""
    for file in files:
        known = isinstance(file, dict) and all(file.get(each) is not None for each in needed)
        if not known or any(type(file.get(each)) not in (kind, NoneType) for each, kind in _TYPES.items()):
            raise DocumentError("a list of files holds an entry that is not a file", key=where, found=shorten(file))
        yield file


def _list_of(part: Json) -> SideList | None:
    if isinstance(part, dict) and "uri" in part and isinstance(part.get("files"), list):
        return None
    if isinstance(part, dict) and "uri" in part and isinstance(part.get("list"), dict):
        return from_reference(part["list"])
    raise DocumentError("this is not a part of a FileSource: give the source a new name", found=str(part)[:80])


def _read_since(lookup: Lookup, files: Iterator[dict[str, Json]]) -> Refusal | None:
    """Refuse files that were read since they were chosen; None: there are none."""
    read = left = 0
    first_read = first_left = ""
    for file in files:
        if lookup.mark(file["key"]) != file.get("replaces"):
            read, first_read = read + 1, first_read or file["key"]
        else:
            left, first_left = left + 1, first_left or file["key"]
    if not read:
        return None
    since = "checkpoints that completed since this epoch was fixed have read"
    if not left:
        return Refusal(f"{since} all {read} files that it was to read; the first is {first_read}", all_read=True)
    return Refusal(
        f"{since} {read} of the {read + left} files that it was to read; the first is {first_read}. Of the others the "
        f"first is {first_left}; the next run reads them. Mark this run as done instead of clearing it"
    )


def _digest(position: Json) -> str:
    """Tell one position from another."""
    return hashlib.sha256(codec.encode({"position": position})).hexdigest()[:32]


def _differs(mark: str, found: ObjectStat) -> bool:
    size, _, etag = mark.partition(" ")
    return size != str(found.size_bytes) or (bool(etag) and found.etag is not None and found.etag != etag)


# The position of a `FileSource`: every file read, as a chain that grows by what an epoch adds (semantics T8).
#
# The newest names are in the position itself, up to `INLINE_BYTES`; then they become a side list, called a piece. A
# long list of an epoch becomes a piece unchanged. Two neighbours are merged if the older is at most twice as long as
# the newer, so there are few pieces, and a name is rewritten at most a logarithmic number of times. All pieces are
# sorted by name and read as streams: memory does not grow with the number of files read.


Marks = Iterable[tuple[str, str]]
"""Names with their marks, sorted by name; each name once."""


@dataclass(frozen=True, slots=True)
class SeenFiles:
    """Files that a `FileSource` has read."""

    uri: str
    recent: dict[str, str]
    """Marks of the newest files, by name."""
    pieces: tuple[SideList, ...] = ()
    """Lists of all other files, oldest first; if a name occurs twice, the newest counts."""

    @classmethod
    def of(cls, position: Json, uri: str) -> SeenFiles:
        """Parse a position; None means a source at `uri` that has read nothing.

        Raises:
            DocumentError: the value is not a position of a FileSource.
        """
        if position is None:
            return cls(uri, {})
        known = position if isinstance(position, dict) else {}
        seen, pieces = known.get("seen"), known.get("pieces", [])
        if not isinstance(seen, dict) or not isinstance(pieces, list) or not all(map(_is_mark, seen.values())):
            raise DocumentError("this is not a position of a FileSource: give it a new name", found=str(position)[:80])
        return cls(str(known.get("uri")), dict(seen), tuple(map(from_reference, pieces)))

    def to_position(self) -> Json:
        """Give the source's position."""
        position: dict[str, Json] = {"uri": self.uri, "seen": self.recent}
        return position | ({"pieces": [piece.to_reference() for piece in self.pieces]} if self.pieces else {})

    def marks(self, shelf: Shelf) -> Iterator[tuple[str, str]]:
        """Stream every file read, with its mark, sorted by name."""
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
        if recent:  # for files that the list reads again, its mark is the newer one
            for key, _ in _marks_of(shelf, listed):
                recent.pop(key, None)
        return replace(self, recent=recent, pieces=_compacted(name, (*self.pieces, listed), shelf))


class Lookup:
    """Looks up names, in sorted order, in marks sorted by name."""

    def __init__(self, marks: Marks) -> None:
        self._marks = iter(marks)
        self._next = next(self._marks, None)

    def mark(self, key: str) -> str | None:
        """Give the mark of `key`, which must sort after all earlier keys; None: there is no such name."""
        wanted = order(key)
        while self._next is not None and order(self._next[0]) < wanted:
            self._next = next(self._marks, None)
        return self._next[1] if self._next is not None and self._next[0] == key else None


def mark_of(file: Any) -> str:
    """Give the mark of a file's content: its size in bytes and its tag, which is empty for a local file."""
    return f"{file['size_bytes']} {file['etag']}"


def _is_mark(mark: Json) -> bool:
    return isinstance(mark, str) and _MARK.fullmatch(mark) is not None


def sorted_marks(marks: Marks) -> list[tuple[str, str]]:
    """Sort by name, as a store lists."""
    return sorted(marks, key=lambda each: order(each[0]))


def _compacted(name: str, pieces: tuple[SideList, ...], shelf: Shelf) -> tuple[SideList, ...]:
    while len(pieces) > 1 and pieces[-2].values <= 2 * pieces[-1].values:
        merged = _newest([_marks_of(shelf, pieces[-1]), _marks_of(shelf, pieces[-2])])
        pieces = (*pieces[:-2], shelf.put(name, (_entry(*each) for each in merged)))
    return pieces


def _newest(sources: list[Marks]) -> Iterator[tuple[str, str]]:
    """Merge sorted marks; for equal names the first source, which is the newest, wins."""
    ranked = (_ranked(rank, marks) for rank, marks in enumerate(sources))
    for _, group in groupby(heapq.merge(*ranked), key=itemgetter(0)):
        _, _, key, mark = next(group)
        yield key, mark


def _ranked(rank: int, marks: Marks) -> Iterator[tuple[bytes, int, str, str]]:
    return ((order(key), rank, key, mark) for key, mark in marks)


def _marks_of(shelf: Shelf, piece: SideList) -> Iterator[tuple[str, str]]:
    files = _checked(shelf.read(piece), piece.key, _MARKED)
    return ((file["key"], mark_of(file)) for file in files)


def _entry(key: str, mark: str) -> Json:
    size, _, etag = mark.partition(" ")
    return {"key": key, "size_bytes": int(size), "etag": etag}
