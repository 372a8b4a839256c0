"""The record of a compaction: created before its first file, replaced once when all files exist, then adopted (K7).

A record names the files that the new base replaces. A checkpoint's metadata never changes, so a comparison without a
lock tells whether a record fits it: an epoch that restores a checkpoint with all of these files may name the new base
in their place, and has the same rows either way.

A compactor finishes a record, or gives up one that was left unfinished, by a swap from the version that it read. So a
record that was given up is never finished, and never adopted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ...storage.errors import DocumentError, GoneError, OutcomeUnknownError, UnavailableError
from ...storage.port import Blob, ConditionFailed
from ...storage.records import dataclass
from ..documents import layout
from ..documents.acknowledgement import TABLE_BYTES, CompactionDocument, Output, StateHandle, SubtaskAck
from ..errors import InvalidStateError
from .job_files import JobFiles, encode

log = logging.getLogger("airflow_cairn")


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    key: str
    document: CompactionDocument
    etag: str


def home_of(handles: Collection[StateHandle]) -> int:
    """Give the oldest checkpoint whose folder has a file of a state; the records of its compactions are there.

    A later delta is in a newer folder, and an adopted base in the same one.
    """
    return min(layout.checkpoint_of(handle.path) or 0 for handle in handles)


def of_stage(files: JobFiles, stage: str, home: int) -> Iterator[Record]:
    """Yield the records of compactions of a stage's states whose oldest file is in the folder of `home`.

    A broken record is left out, with a warning: no epoch adopts its base, and the others are adopted.
    """
    for found in files.listing(layout.compactions(home, stage)):
        try:
            document, blob = _read(files, found.key)
        except GoneError:
            continue  # a cleaner deleted it, because no checkpoint names the replaced files any more
        except DocumentError as problem:
            log.warning("A compaction of %s is not adopted, because its record is broken: %s", stage, problem)
            continue
        yield Record(found.key, document, blob.etag)


def begin(files: JobFiles, document: CompactionDocument) -> Record:
    """Write the record of a compaction that begins; from now on the cleaner keeps its files.

    Raises:
        InvalidStateError: another compaction has this token, or the state has too many files for a record.
    """
    key = layout.compaction(home_of(document.replaces), document.stage, document.token)
    data = encode(document)
    if len(data) > TABLE_BYTES // 2:  # the finished record also names the new base, which has no more files
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
    """Finish the record of a compaction whose new base is written.

    Args:
        files: the job's files.
        record: of the compaction, by `begin`.
        output: the state with the new base's folder.
        base: the files of the new base.

    Returns:
        Whether the base may be adopted now; False if the record was given up or deleted in between.

    Raises:
        OutcomeUnknownError: the write may have landed, or may land yet; delete nothing.
    """
    return _swap(files, record, replace(record.document, output=output, base=tuple(base)))


def give_up(files: JobFiles, record: Record) -> bool:
    """Mark an unfinished compaction as given up, so that it is never finished; False if it is finished, or gone."""
    return _swap(files, record, replace(record.document, given_up=True))


def _swap(files: JobFiles, record: Record, document: CompactionDocument) -> bool:
    try:
        answer = files.replace(record.key, document, expected_etag=record.etag)
    except OutcomeUnknownError as unknown:
        try:
            there = _read(files, record.key)[0]
        except (GoneError, UnavailableError) as error:
            raise unknown from error  # the write may have landed, been adopted, and been deleted since
        if there == record.document:
            raise  # the write may land yet
        return there == document
    return not isinstance(answer, ConditionFailed)


def _read(files: JobFiles, key: str) -> tuple[CompactionDocument, Blob]:
    return files.read(CompactionDocument, key, max_bytes=TABLE_BYTES)


def fitting(records: Collection[Record], states: Mapping[str, Collection[StateHandle]]) -> dict[str, Record]:
    """Give for each state the fitting, finished compaction that replaces most of its files.

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
    """Tell whether a checkpoint with these files of a state may adopt a compaction.

    The checkpoint must name all replaced files, equal in path, tag, checksum and delta number; its other files must be
    newer deltas.
    """
    replaced = set(document.replaces)
    newest = max((handle.delta for handle in replaced), default=0)
    there = set(handles)
    rest = there - replaced
    return not document.given_up and replaced <= there and all(handle.delta > newest for handle in rest)


def adoptable(files: JobFiles, key: str, stage: str, restored: Collection[str]) -> frozenset[str]:
    """Give the paths of a fitting compaction that an epoch may name: the files of the new base, and its folder.

    Args:
        files: the job's files.
        key: of the record.
        stage: the one whose acknowledgement names a file of the compaction.
        restored: paths of the files that the restored checkpoint names.
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
