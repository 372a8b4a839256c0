"""Verifies that a checkpoint is whole, and finds checkpoints that a newer head has completed (semantics R1, W9, T9).

Whole means that all its files exist and are unaltered. After a restore from a backup, an older head wins over newer
documents, so epochs that those have completed run again. Metadata in the folder of an id that this head has not handed
out proves that there was a newer head.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import field

from ...storage.errors import DocumentError, GoneError
from ...storage.records import dataclass
from ..answers import Damage
from ..documents import layout, metadata
from ..documents.acknowledgement import StateHandle
from ..documents.attempt import BacklogEpoch, DocumentRef, RestorePointer, Slice
from ..documents.codec import MAX_MARKER_BYTES
from ..documents.entries import CompletedEntry
from ..documents.head import Head
from ..documents.metadata import CAIRNS_OWN, HandleLine, HookLine, InFlightLine, MetadataHeader, StageLine
from ..documents.read_windows import NOTHING_READ, ReadWindows
from ..rules.restored_state import RestoredStage
from . import metadata_file
from .job_files import PAGE, FileCheck, JobFiles

_CAIRNS_OWN = frozenset(f"value.{name}" for name in CAIRNS_OWN)


@dataclass(frozen=True, slots=True)
class Verification:
    """Findings of the verification of one completed checkpoint."""

    checkpoint: int
    files: int
    size_bytes: int
    damages: tuple[Damage, ...]
    stages: tuple[RestoredStage, ...] = ()
    """State of each stage, which has to be claimed and to fit (semantics R3, R4)."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks with state in the checkpoint."""
    slice: Slice | None = None
    """The input of the checkpoint's epoch, with its sources' positions; None where it cannot be read."""
    backlogs: dict[str, tuple[BacklogEpoch, ...]] = field(default_factory=dict)
    """Backlog by stage: epochs still to be read, oldest first (semantics B3, F6)."""
    unknown: int = 0
    """Files of a deep check whose content cannot be checked, because only the store's etag is known."""
    read: ReadWindows = NOTHING_READ
    """The windows of time that the state has read (semantics T8)."""

    @property
    def whole(self) -> bool:
        """Whether the checkpoint can be restored."""
        return not self.damages


def verify(
    files: JobFiles,
    entry: CompletedEntry,
    *,
    deep: bool = False,
    on_checked: Callable[[StateHandle], None] = lambda _: None,
) -> Verification:
    """Check that every file of a completed checkpoint exists, has its size, and is unaltered (semantics R1, W9).

    Args:
        files: the job's files.
        entry: the checkpoint's.
        deep: read every file, so that a byte that flipped on the medium is found too.
        on_checked: called with each file that has been checked.
    """
    pointer = RestorePointer(entry.id, entry.metadata)
    return verify_pointer(files, pointer, entry.epoch, deep=deep, on_checked=on_checked)


def verify_pointer(
    files: JobFiles,
    pointer: RestorePointer,
    epoch: str,
    *,
    deep: bool = False,
    on_checked: Callable[[StateHandle], None] = lambda _: None,
) -> Verification:
    """Check a completed checkpoint, whether or not it is still retained; see `verify`.

    Raises:
        UnavailableError: the store did not answer.
        ForbiddenError: the store refused to answer.
    """
    damages: list[Damage] = []
    stages: list[RestoredStage] = []
    hooks: list[str] = []
    backlogs: dict[str, tuple[BacklogEpoch, ...]] = {}
    handles: list[StateHandle] = []
    slice_: Slice | None = None
    read = NOTHING_READ
    count = size_bytes = 0
    check = FileCheck(files, deep=deep, on_checked=on_checked)

    def check_files() -> None:
        nonlocal count, size_bytes
        for listed in [handle for handle in handles if metadata_file.is_list(handle)]:
            try:
                named = metadata_file.read_table(files, listed).handles
            except (GoneError, DocumentError) as error:
                damages.append(Damage(pointer.checkpoint, _key(files, listed, error), _problem(error)))
                continue
            there = {handle.path for handle in handles}
            added = [handle for handle in named if handle.path not in there]
            handles.extend(added)
            count, size_bytes = count + len(added), size_bytes + sum(handle.size_bytes for handle in added)
        damages.extend(Damage(pointer.checkpoint, handle.path, problem) for handle, problem in check.damaged(handles))
        handles.clear()

    try:
        for line in metadata_file.read(files, pointer.metadata):
            # Few files of many stages are one listing; many are checked stage by stage, so that few are in memory.
            if isinstance(line, StageLine | InFlightLine) and (
                len(handles) >= PAGE or any(map(metadata_file.is_list, handles))
            ):
                check_files()
            if isinstance(line, HandleLine):
                handles.append(line.handle)
                count, size_bytes = count + 1, size_bytes + line.handle.size_bytes
            elif isinstance(line, StageLine):
                stages.append(restored_stage(line))
                if line.owes:
                    backlogs[line.stage] = line.owes
            elif isinstance(line, HookLine):
                hooks.append(line.answer.name)
            elif isinstance(line, MetadataHeader):
                if (line.checkpoint, line.epoch) != (pointer.checkpoint, epoch):
                    raise DocumentError("it describes another checkpoint", key=files.full(pointer.metadata.key))
                slice_, read = line.slice, line.read
                damages.extend(_damaged_positions(files, pointer.checkpoint, line.slice))
    except (GoneError, DocumentError) as error:
        # Lines that were read before the error are not trusted.
        return Verification(
            pointer.checkpoint, 0, 0, (Damage(pointer.checkpoint, pointer.metadata.key, _problem(error)),)
        )
    check_files()
    return Verification(
        pointer.checkpoint,
        count,
        size_bytes,
        tuple(damages),
        tuple(stages),
        tuple(hooks),
        slice_,
        backlogs,
        check.unknown,
        read,
    )


def restored_stage(line: StageLine) -> RestoredStage:
    """Give the state of a stage's line that has to be claimed and to fit (semantics R3, R4)."""
    held = (*(output.id for output in line.outputs), *(f"value.{name}" for name in line.values))
    # Cairn itself adds watermarks, and notes of failed checks: no author can claim or drop them.
    state = tuple(each for each in held if each not in _CAIRNS_OWN)
    state += tuple(f"epoch.{unread.epoch}" for unread in line.owes)
    key_groups = dict.fromkeys(output.key_groups for output in line.outputs if output.key_groups is not None)
    return RestoredStage(line.stage, line.parallelism, line.max_parallelism, state, tuple(key_groups))


def _damaged_positions(files: JobFiles, checkpoint: int, slice_: Slice) -> Iterator[Damage]:
    """Yield the damages of the lists that the sources' positions name; they are few."""
    for listed in metadata.referred(slice_.positions):
        try:
            etag = files.stat(listed.key).etag
        except GoneError:
            yield Damage(checkpoint, listed.key, "it is gone")
            continue
        # A copy may have another tag, so the content decides (semantics W9).
        if etag != listed.etag and not files.stands(DocumentRef(listed.key, listed.size_bytes, listed.sha256)):
            yield Damage(checkpoint, listed.key, f"its content differs: expected {listed.etag}, found {etag}")


def _key(files: JobFiles, listed: StateHandle, error: GoneError | DocumentError) -> str:
    """Give the key of the broken object: a table's list, or a manifest that it names."""
    found = error.fields.get("key")
    return files.bare(found) if isinstance(found, str) else listed.path


def _problem(error: GoneError | DocumentError) -> str:
    return "it is gone" if isinstance(error, GoneError) else error.message


log = logging.getLogger("airflow_cairn")


def completed_later(files: JobFiles, head: Head) -> dict[int, str | None]:
    """Give the checkpoints that a newer head has completed, or was about to complete, each with its epoch.

    Costs a listing after the folders of this head's ids, and a read for each metadata found.

    Returns:
        By id, oldest first. The epoch is None where the metadata cannot be read.
    """
    found: dict[int, str | None] = {}
    for each in files.listing("", start_after=layout.folder(head.next_id)):
        if each.key > layout.EPOCH_LISTS:
            break  # in the order of keys, all checkpoints' folders come before
        checkpoint = layout.metadata_of(each.key)
        if checkpoint is not None:
            found[checkpoint] = _epoch(files, each.key)
    return found


def describe_newer_completion(files: JobFiles, head: Head, epoch: str) -> None:
    """Warn that an epoch runs again although a newer head than this one has completed it."""
    for checkpoint, completed in completed_later(files, head).items():
        if completed == epoch:
            log_rerun(epoch, checkpoint)


def log_rerun(epoch: str, checkpoint: int) -> None:
    """Warn that an epoch runs again, because this head does not know the checkpoint that completed it."""
    log.warning(
        "The run %s completed in checkpoint %d, which this head.json never handed out: it is older than that "
        "checkpoint, as after a restore from a backup. That does not count, and the epoch runs again",
        layout.run_id_of(epoch),
        checkpoint,
    )


def _epoch(files: JobFiles, key: str) -> str | None:
    try:
        first = files.read_range(key, 0, MAX_MARKER_BYTES).partition(b"\n")[0]
        line = metadata.decode_line(first, key=files.full(key), first=True)
    except (GoneError, DocumentError):
        return None
    return line.epoch if isinstance(line, metadata.MetadataHeader) else None
