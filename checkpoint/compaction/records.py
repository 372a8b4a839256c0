"""The record of a compaction: made before its first file, replaced once when all are there, then adopted (K7).

A record says which files the new base replaces. A checkpoint's metadata never changes, so whether a record fits it is a
comparison, and needs no lock: an epoch that restores a checkpoint that names all of these files may name the new base
in their place. An epoch that does so has the same rows as one that does not.

Who finishes a record, and who gives it up because it was left unfinished, swaps it from the version that was read. So
what was given up is never finished, and never adopted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...storage.errors import DocumentError, GoneError, OutcomeUnknownError, UnavailableError
from ...storage.port import Blob, ConditionFailed
from ..documents import layout
from ..documents.acknowledgement import TABLE_BYTES, CompactionDocument, Output, StateHandle, SubtaskAck
from ..errors import InvalidStateError
from ..store.job_files import JobFiles, encode

log = logging.getLogger("airflow_cairn")


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    key: str
    document: CompactionDocument
    etag: str


def home_of(handles: Collection[StateHandle]) -> int:
    """Give the oldest checkpoint in whose folder a file of a state lies: there are the records of its compactions.

    A run that comes later lies in a newer folder, and a base that is adopted in the same one.
    """
    return min(layout.checkpoint_of(handle.path) or 0 for handle in handles)


def of_stage(files: JobFiles, stage: str, home: int) -> Iterator[Record]:
    """Yield the records of compactions of a stage's states, whose oldest file lies in the folder of `home`.

    One that is broken is left out, with a warning: no epoch adopts what it stands for, and the others are adopted.
    """
    for found in files.listing(layout.compactions(home, stage)):
        try:
            document, blob = _read(files, found.key)
        except GoneError:
            continue  # a cleaner took it, because no checkpoint names any more what it replaces
        except DocumentError as problem:
            log.warning("a compaction of %s is not adopted, because its record is broken: %s", stage, problem)
            continue
        yield Record(found.key, document, blob.etag)


def begin(files: JobFiles, document: CompactionDocument) -> Record:
    """Write the record of a compaction that begins; from now on the cleaner leaves its files.

    Raises:
        InvalidStateError: there is one by this token; or the state has too many files for a record to name.
    """
    key = layout.compaction(home_of(document.replaces), document.stage, document.token)
    data = encode(document)
    if len(data) > TABLE_BYTES // 2:  # the new base, which it names too, has no more files
        raise InvalidStateError(
            "the state has too many files for a compaction to name them. Let the stage write fewer: its next "
            "epoch.snapshot of the state does, with a smaller parallelism",
            stage=document.stage,
            state=document.output.name,
            files=len(document.replaces),
        )
    written = files.create_bytes(key, data)
    if isinstance(written, ConditionFailed):
        raise InvalidStateError("another compaction has this token", key=files.full(key))
    return Record(key, document, written.etag)


def finish(files: JobFiles, record: Record, output: Output, base: Sequence[SubtaskAck]) -> bool:
    """Say that the new base is there.

    Args:
        files: the job's files.
        record: of the compaction, by `begin`.
        output: the state with the new base's folder.
        base: the files of the new base.

    Returns:
        Whether it may be adopted now; False where the record was given up, or deleted, meanwhile.

    Raises:
        OutcomeUnknownError: that is not known, or not yet; delete nothing.
    """
    return _swap(files, record, replace(record.document, output=output, base=tuple(base)))


def give_up(files: JobFiles, record: Record) -> bool:
    """See that an unfinished compaction is never finished; False where it is finished, or gone."""
    return _swap(files, record, replace(record.document, given_up=True))


def _swap(files: JobFiles, record: Record, document: CompactionDocument) -> bool:
    try:
        answer = files.replace(record.key, document, expected_etag=record.etag)
    except OutcomeUnknownError as unknown:
        try:
            there = _read(files, record.key)[0]
        except (GoneError, UnavailableError) as error:
            raise unknown from error  # it may have landed, been adopted, and gone since
        if there == record.document:
            raise  # it may land yet
        return there == document
    return not isinstance(answer, ConditionFailed)


def _read(files: JobFiles, key: str) -> tuple[CompactionDocument, Blob]:
    return files.read(CompactionDocument, key, max_bytes=TABLE_BYTES)


def fitting(records: Collection[Record], states: Mapping[str, Collection[StateHandle]]) -> dict[str, Record]:
    """Give for each state the finished compaction that replaces most of its files; none where none fits.

    Args:
        records: of one stage.
        states: by `Output.id`, the files that a checkpoint names.
    """
    found: dict[str, Record] = {}
    for record in sorted(records, key=lambda each: (len(each.document.replaces), each.key)):
        output_id = record.document.output.id
        if record.document.base is not None and fits(record.document, states.get(output_id, ())):
            found[output_id] = record
    return found


def fits(document: CompactionDocument, handles: Collection[StateHandle]) -> bool:
    """Tell whether a checkpoint that names these files of a state names all that the compaction replaces.

    Files are compared whole: path, tag, checksum and run. What is not replaced has to be runs that are newer.
    """
    replaced = set(document.replaces)
    newest = max((handle.run for handle in replaced), default=0)
    there = set(handles)
    rest = there - replaced
    return not document.given_up and replaced <= there and all(handle.run > newest for handle in rest)


def adoptable(files: JobFiles, key: str, stage: str, restored: Collection[str]) -> frozenset[str]:
    """Give what an epoch may name of a compaction that fits: the paths of the new base and its folder.

    Args:
        files: the job's files.
        key: of the record.
        stage: whose acknowledgement names a file of it.
        restored: paths of the files that the restored checkpoint names.

    Raises:
        DocumentError: the record is broken.
    """
    try:
        document, _ = _read(files, key)
    except GoneError:
        return frozenset()
    there = all(handle.path in restored for handle in document.replaces)
    if document.base is None or document.given_up or document.stage != stage or not there:
        return frozenset()
    paths = {handle.path for ack in document.base for handle in ack.handles}
    return frozenset({*paths, f"{document.output.folder.rstrip('/')}/"})
