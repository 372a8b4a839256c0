"""Lists of completed epochs that the history has forgotten, so that no epoch is ever folded in twice (semantics T9)."""

from __future__ import annotations

import hashlib
import heapq
import logging
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from math import isqrt

from ...storage.errors import DocumentError, GoneError
from ..documents import layout
from ..documents.attempt import DocumentRef, EpochCompletedDocument
from ..documents.head import CompletedNote, Head, Segment
from ..errors import DamagedError
from ..rules import history as epochs
from ..rules.history import forgotten
from . import jsonl, verification
from .job_files import JobFiles
from .jsonl import Spool


def keep(old: Head, new: Head) -> Head:
    """Add completed epochs that `new` would forget to its list of completed epochs; pure.

    Called before a decision asks `new` whether an epoch has completed, and before `new` is written.

    Args:
        old: a version of the head as it was read.
        new: the version after it.
    """
    return remembering(new, forgotten(old, new))


log = logging.getLogger("airflow_cairn")

MAX_NOTED = 100
"""Epochs in the head's own list; one more moves the oldest of them into a segment."""

RECENT = 10_000
"""Epochs in the recent segment; with more it is joined with the old one."""

_LINE = re.compile(rb'\A\["([0-9a-f]{32})","([0-9]{12})","([0-9a-f]{8})"\]\Z')

_LINE_BYTES = 63
"""Bytes of a line, line break included."""

_HASHES = 1 << 128

_Entry = tuple[str, int]
"""The hash of an epoch's name, and the checkpoint that completed it."""


def remembering(head: Head, forgotten: dict[str, int]) -> Head:
    """Add epochs to a head's list of completed epochs; pure.

    Args:
        head: the version to be swapped in.
        forgotten: epochs that its history forgets, each with its checkpoint.
    """
    if not forgotten:
        return head
    kept = (each for each in head.noted if each.epoch not in forgotten)
    return replace(head, noted=(*kept, *(CompletedNote(*each) for each in forgotten.items())))


def move_to_segment(files: JobFiles, old: Head, new: Head, new_token: Callable[[], str]) -> Head:
    """Write a full list as a segment, and give `new` with the segment in place of the list.

    The newest tenth of the list stays, so that cleaners still find newly completed epochs in the head.

    The first version that this release writes also fixes which notes of version 0.1 count: those of ids handed out by
    then.

    Args:
        files: the job's files.
        old: the version before; the segment is written into its next id's folder.
        new: the version to be swapped in.
        new_token: makes the token of this write.

    Raises:
        OutcomeUnknownError: the segment may or may not have been written.
    """
    if new.notes_below is None:
        new = replace(new, notes_below=old.next_id)
    if len(new.noted) <= MAX_NOTED:
        return new
    until = len(new.noted) - MAX_NOTED // 10
    noted, stay = new.noted[:until], new.noted[until:]
    kept, joined = _to_join(new.segments, len(noted))
    try:
        written = _write(files, old, noted, joined, new_token)
    except DamagedError as error:
        # Running epochs have to complete all the same, so the list gets its own segment.
        log.warning("The list of completed epochs is not joined with the older ones. %s", error)
        kept, written = new.segments, _write(files, old, noted, (), new_token)
    return replace(new, noted=stay, segments=(*kept, written))


def where_is(files: JobFiles, head: Head, epoch: str) -> epochs.EpochPlace:
    """Find an epoch's place, however long ago it completed; see `history.where_is`."""
    return epochs.where_is(head, epoch, lambda: find(files, head, epoch))


def find(files: JobFiles, head: Head, epoch: str) -> int | None:
    """Give the checkpoint in which an epoch completed that the head's history has forgotten; None if it has not.

    A read or two; one more in a job that version 0.1 has run.

    Raises:
        DamagedError: a segment is missing or altered, so this cannot be known.
        DocumentError: a note of version 0.1 is broken.
    """
    listed = [each.checkpoint for each in head.noted if each.epoch == epoch]
    if listed:
        return max(listed)
    name = _hash(epoch)
    lost: DamagedError | None = None
    for segment in reversed(head.segments):
        try:
            found = _look_up(files, head, segment, name)
        except DamagedError as error:
            lost = error
            continue
        # An epoch that a rewind undid may have completed again since, in a list that is lost.
        if found is not None and (lost is None or head.rewind_of(found) is None):
            return found
    if lost is not None:
        raise lost
    bound = head.next_id if head.notes_below is None else head.notes_below
    if bound <= 1:
        return None
    noted = _note(files, epoch)
    if noted is not None and noted >= bound:
        verification.log_rerun(epoch, noted)
        return None
    return noted


def _note(files: JobFiles, epoch: str) -> int | None:
    """Read the note that version 0.1 wrote as an object for each completed epoch (semantics C5)."""
    try:
        return files.read(EpochCompletedDocument, layout.epoch_completed(epoch))[0].checkpoint
    except GoneError:
        return None


def damaged(files: JobFiles, head: Head, *, deep: bool) -> dict[str, str]:
    """Give the problem of each list that is missing, of another size or, if deep, altered, by its key (W9)."""
    found: dict[str, str] = {}
    for segment in head.segments:
        ref = segment.document
        try:
            if deep:
                for _ in _entries(files, head, segment):
                    pass
            elif files.stat(ref.key).size_bytes != ref.size_bytes:
                found[ref.key] = "it is of another size"
        except GoneError:
            found[ref.key] = "it is gone"
        except DamagedError as error:
            found[ref.key] = error.message
    return found


def _write(
    files: JobFiles,
    old: Head,
    noted: tuple[CompletedNote, ...],
    joined: tuple[Segment, ...],
    new_token: Callable[[], str],
) -> Segment:
    """Write a segment of the head's list, joined with older segments."""
    entries = [_sorted(noted), *(_entries(files, old, each) for each in joined)]
    key = layout.completed_epochs(old.next_id, new_token())
    with Spool() as spool:
        epochs = 0
        for name, checkpoint in _merged(entries):
            spool.put(_line(name, checkpoint))
            epochs += 1
        if not spool.create(files, key):
            raise DocumentError("another object has the name made for this one", key=files.full(key))
        return Segment(spool.reference(key), epochs)


def _to_join(segments: tuple[Segment, ...], count: int) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Choose the segments that stay, and those to join with the list; at most two are left."""
    if not segments:
        return (), ()
    if segments[-1].epochs + count <= RECENT:
        return segments[:-1], segments[-1:]
    return (segments, ()) if len(segments) == 1 else ((), segments)


def _hash(epoch: str) -> str:
    return hashlib.sha256(epoch.encode()).hexdigest()[:32]


def _sorted(noted: Iterable[CompletedNote]) -> Iterator[_Entry]:
    return iter(sorted((_hash(each.epoch), each.checkpoint) for each in noted))


def _merged(entries: Iterable[Iterable[_Entry]]) -> Iterator[_Entry]:
    # After a rewind an epoch completes once more, in a later checkpoint; that one counts.
    for name, same in groupby(heapq.merge(*entries), key=lambda each: each[0]):
        yield name, max(checkpoint for _, checkpoint in same)


def _line(name: str, checkpoint: int) -> bytes:
    said = f"{name}{checkpoint:012d}".encode()
    return b'["%b","%b","%08x"]\n' % (said[:32], said[32:], zlib.crc32(said))


def _entry(raw: bytes, *, key: str) -> _Entry:
    match = _LINE.match(raw)
    if match is None or int(match[3], 16) != zlib.crc32(match[1] + match[2]):
        raise DocumentError("a line of the completed epochs is broken", key=key)
    return match[1].decode(), int(match[2])


def _entries(files: JobFiles, head: Head, segment: Segment) -> Iterator[_Entry]:
    key = files.full(segment.document.key)
    try:
        for raw in jsonl.read(files, segment.document, "the list of completed epochs"):
            yield _entry(raw, key=key)
    except (GoneError, DocumentError) as error:
        raise _lost(files, head, segment.document, error) from error


def _look_up(files: JobFiles, head: Head, segment: Segment, name: str) -> int | None:
    """Look a name up by interpolation: hashes are spread evenly, so its place is nearly known."""
    ref, count = segment.document, segment.epochs
    if ref.size_bytes != count * _LINE_BYTES:
        raise _lost(files, head, ref, DocumentError("its size does not fit its lines", key=files.full(ref.key)))
    place = int(name, 16) * count // _HASHES
    around = 2 * isqrt(count) + 32  # four times what hashes deviate by, so a second read is rare
    while True:
        first, last = max(0, place - around), min(count, place + around)
        found = _range(files, head, ref, first, last)
        begins = first == 0 or found[0][0] <= name
        ends = last == count or found[-1][0] >= name
        if begins and ends:
            return dict(found).get(name)
        around *= 8


def _range(files: JobFiles, head: Head, ref: DocumentRef, first: int, last: int) -> list[_Entry]:
    key = files.full(ref.key)
    try:
        data = files.read_range(ref.key, first * _LINE_BYTES, (last - first) * _LINE_BYTES)
        if len(data) != (last - first) * _LINE_BYTES:
            raise DocumentError("the list of completed epochs is truncated", key=key)
        found = [_entry(raw, key=key) for raw in data.splitlines()]
        if found != sorted(found):
            raise DocumentError("the list of completed epochs is out of order", key=key)
        return found
    except (GoneError, DocumentError) as error:
        raise _lost(files, head, ref, error) from error


def _lost(files: JobFiles, head: Head, ref: DocumentRef, error: Exception) -> DamagedError:
    dag_id = files.job if head.owner is None else head.owner.dag_id
    again = shlex.join(("airflow", "dags", "trigger", dag_id, "--conf", '{"cairn": {"read_again": true}}'))
    return DamagedError(
        f"the list of completed epochs is missing or altered, so it is not known whether a run of long ago has "
        f"completed: {error}. Put the object back from a backup or a bucket version. Until then `{again}` makes a run "
        "that goes on nevertheless: take it in place of a run that has certainly not completed. If the object is lost, "
        f"take a savepoint of {files.job} and start a job of another name from it by `cairn resume NEW "
        f"--from FOLDER {files.storage_option}`. That job knows of no runs of long ago, so do not clear them",
        code="completed_epochs_lost",
        job=files.job,
        key=files.full(ref.key),
    )
