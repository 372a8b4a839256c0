"""Side lists of sources: lists of files that are too long for a document (semantics T8, C3).

There are two kinds. The list of an epoch's input has the epoch and the source in its name, and is created once. So the
write fixes the epoch's input, and no list is an orphan: after a trigger that died, a later one takes over its list.
The list of files read so far is in the folder of the checkpoint that is being opened, under its own token, like the
pending document. The cleaner leaves that folder alone until the head has handed out the id. Then it keeps the lists
that a position of a pending or retained checkpoint names.

A reference to either kind is a JSON object with the single key `cairn.shelved`, so that a process that has to keep or
verify side lists finds them without knowing the source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...storage.records import dataclass
from ..documents import codec, layout
from ..documents.attempt import DocumentRef
from ..documents.codec import Count, Job
from ..documents.metadata import LIST_KIND as KIND
from ..documents.metadata import SideList
from ..documents.strict_json import Json, from_json, plain_json, to_json
from ..errors import DocumentError
from .job_files import READ_BYTES, JobFiles, pieces
from .jsonl import Reference, Spool
from .jsonl import read as read_lines

INLINE_BYTES = 20 * 1024
"""Bytes of a list up to which it stays in the document, as a small state does in its acknowledgement (semantics A4)."""


@dataclass(frozen=True, slots=True)
class _Header:
    job: Job
    source: str


@dataclass(frozen=True, slots=True)
class _End:
    values: Count
    note: Json = None


class SideLists:
    """The side lists of a job, for one trigger of an epoch.

    Args:
        files: the job's files.
        epoch: the epoch's name.
        checkpoint: the id that is being opened.
        new_token: gives a unique token.
    """

    def __init__(self, files: JobFiles, epoch: str, checkpoint: int, new_token: Callable[[], str]) -> None:
        self._files = files
        self._epoch = epoch
        self._checkpoint = checkpoint
        self._new_token = new_token

    def fix(self, source: str, values: Iterable[Json], note: Callable[[], Json]) -> tuple[SideList, Json]:
        """Store the epoch's input as a list, unless an earlier trigger did; give the stored list and its note (T8).

        Args:
            source: the source's name.
            values: the input; consumed whole, as a stream.
            note: a small value to store with them, asked for when `values` has ended.

        Raises:
            OutcomeUnknownError: the list may or may not have been written; delete nothing.
        """
        key = layout.epoch_list(self._epoch, source)
        with Spool() as spool:
            count, noted = self._fill(spool, source, values, note)
            ref = spool.reference(key)
            if spool.create(self._files, key):
                return self._described(ref, count), noted
        return self._standing(key)

    def put(self, source: str, values: Iterable[Json]) -> SideList:
        """Store a part of the input read so far as a list; `values` is consumed whole, as a stream.

        Raises:
            DocumentError: another object has the key.
            OutcomeUnknownError: the list may or may not have been written; delete nothing.
        """
        key = layout.position_piece(self._checkpoint, source, self._new_token())
        with Spool() as spool:
            count, _ = self._fill(spool, source, values, lambda: None)
            if not spool.create(self._files, key):
                raise DocumentError("another object has the name made for this one", key=self._files.full(key))
            return self._described(spool.reference(key), count)

    def read(self, listed: SideList) -> Iterator[Json]:
        """Stream the values of an object; see `read`."""
        return read(self._files, listed)

    def _fill(self, spool: Spool, source: str, values: Iterable[Json], note: Callable[[], Json]) -> tuple[int, Json]:
        header = _Header(self._files.job, source)
        spool.put(codec.encode({"kind": KIND, "format": codec.FORMAT, **to_json(header)}))
        count = 0
        what = f"a value that the source {source} lists"
        for value in values:
            spool.put(codec.encode({"value": plain_json(what, value)}))
            count += 1
        noted = plain_json(f"the note to the list of the source {source}", note())
        spool.put(codec.encode({"kind": "end", **to_json(_End(count, noted))}))
        return count, noted

    def _described(self, ref: DocumentRef, values: int) -> SideList:
        etag = self._files.stat(ref.key).etag
        assert etag is not None, "a stat gives the tag"
        return SideList(ref.key, ref.size_bytes, ref.sha256, etag, values)

    def _standing(self, key: str) -> tuple[SideList, Json]:
        """Describe the list that another trigger of the epoch has stored."""
        digest, size = hashlib.sha256(), 0
        for piece in pieces(self._files.read_range, key, READ_BYTES):
            digest.update(piece)
            size += len(piece)
        ref = DocumentRef(key, size, digest.hexdigest())
        for entry in _entries(self._files, ref):
            if isinstance(entry, _End):
                return self._described(ref, entry.values), entry.note
        raise DocumentError("the list has no end", key=self._files.full(key))


def read(files: JobFiles, listed: SideList) -> Iterator[Json]:
    """Stream the values of a side list; they are certain only once the iteration has ended."""
    return (entry for entry in _entries(files, listed) if not isinstance(entry, _End))


def _entries(files: JobFiles, ref: Reference) -> Iterator[Any]:
    """Yield the values, and last an `_End`."""
    where = files.full(ref.key)
    values = 0
    end: _End | None = None
    for number, raw in enumerate(read_lines(files, ref, "the list")):
        line = codec.parse(raw, key=where)
        kind = line.get("kind") if isinstance(line, dict) else None
        if number == 0:
            _check_header(files, line, kind, where)
        elif isinstance(line, dict) and set(line) == {"value"} and end is None:
            values += 1
            yield line["value"]
        elif kind == "end" and end is None:
            end = from_json(_End, line, key=where)
        else:
            raise DocumentError("the list has a line that does not belong there", key=where, found=str(line)[:80])
    if end is None or end.values != values:
        raise DocumentError("the list is truncated", key=where, expected=end and end.values, found=values)
    yield end


def _check_header(files: JobFiles, line: Any, kind: object, where: str) -> None:
    if kind != KIND:
        raise DocumentError("the document is of another kind", key=where, expected=KIND, found=str(kind)[:80])
    codec.check_format(line, key=where)
    header = from_json(_Header, line, key=where)
    if header.job != files.job:
        raise DocumentError("the list belongs to another job", key=where, expected=files.job, found=header.job)
