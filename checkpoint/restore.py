"""Restore-latest: the newest completed checkpoint that is whole (semantics R1, R2, R3).

Damage (a file gone, or altered) makes the search fall back to the checkpoint before, and the report says which file and
why. A store that cannot be asked is an error and never damage. Nothing here writes or deletes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..storage.errors import DocumentError, GoneError
from . import layout, metadata, shelf
from .assignment import RestoredStage
from .errors import NoCheckpointError
from .file_check import FileCheck
from .head import CompletedEntry, Head, RestoreRecord
from .head_text import one_line
from .job_files import JobFiles
from .metadata import HandleLine, HookLine, InFlightLine, MetadataHeader, StageLine
from .model import DocumentRef, EpochDocument, OwedEpoch, ReplayedEpoch, RestorePointer, Slice, StateHandle
from .read_windows import NOTHING_READ, ReadWindows


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing wrong with a completed checkpoint."""

    checkpoint: int
    key: str
    """Relative to the job's prefix."""
    problem: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"checkpoint {self.checkpoint}: {self.key}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Verification:
    """What verifying one completed checkpoint found."""

    checkpoint: int
    files: int
    size_bytes: int
    damages: tuple[Damage, ...]
    stages: tuple[RestoredStage, ...] = ()
    """What it holds of each stage, which has to be claimed and to fit (semantics R3, R4)."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks that it holds state of."""
    slice: Slice | None = None
    """The input of its epoch, with its sources' positions; None where it cannot be read."""
    backlogs: dict[str, tuple[OwedEpoch, ...]] = field(default_factory=dict)
    """By stage, the epochs that it owes, oldest first (semantics B3, F6)."""
    unknown: int = 0
    """Of a deep check, the files whose content cannot be told from another: nothing but the store's etag is known."""
    read: ReadWindows = NOTHING_READ
    """The windows of time that its state has read (semantics T8)."""

    @property
    def whole(self) -> bool:
        """Whether it can be restored."""
        return not self.damages


@dataclass(frozen=True, slots=True)
class RestoreChoice:
    """What an attempt starts from; with no pointer it starts empty (semantics R2)."""

    pointer: RestorePointer | None
    replay: tuple[ReplayedEpoch, ...] = ()
    """Epochs whose checkpoints were bypassed, oldest first: their input has to be read again."""
    damages: tuple[Damage, ...] = ()
    stages: tuple[RestoredStage, ...] = ()
    """What the checkpoint holds of each stage; it must be claimed, and fit (semantics R3, R4)."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks that it holds state of; likewise (semantics T7)."""
    slice: Slice | None = None
    """The input of the checkpoint's epoch, with its sources' positions (semantics T8)."""
    backlogs: dict[str, tuple[OwedEpoch, ...]] = field(default_factory=dict)
    """By stage, the epochs that it owes in the checkpoint, oldest first (semantics B3, F6)."""
    read: ReadWindows = NOTHING_READ
    """The windows of time that the checkpoint's state has read (semantics T8)."""

    def record(self, why: str, begin_ms: int, end_ms: int, *, into: int | None = None) -> RestoreRecord | None:
        """Describe the restore for the head, None if it starts empty (semantics R5).

        Args:
            why: for people.
            begin_ms: when the search began, milliseconds since 1970 UTC.
            end_ms: when it ended.
            into: the checkpoint that was opened on top of it.
        """
        if self.pointer is None:
            return None
        return RestoreRecord(
            checkpoint=self.pointer.checkpoint,
            at_ms=begin_ms,
            took_ms=max(0, end_ms - begin_ms),
            why=why,
            into=into,
            damages=tuple(one_line(str(damage)) for damage in self.damages[:10]),
        )


def choose(files: JobFiles, head: Head) -> RestoreChoice:
    """Find the newest completed checkpoint that is whole.

    Raises:
        NoCheckpointError: there are completed checkpoints and every one of them is damaged, or the input of a damaged
            one is gone. Starting empty would lose what they held, so that is left to a person.
        UnavailableError: the store could not be asked.
        ForbiddenError: the store refused to answer.
    """
    damages: list[Damage] = []
    bypassed: list[CompletedEntry] = []
    for entry in reversed(head.completed):
        found = verify(files, entry)
        if found.whole:
            # A bypassed checkpoint may itself have replayed others: what it held is lost with it.
            lost = [epoch for each in reversed(bypassed) for epoch in (*each.replayed, each.epoch)]
            replay = tuple(_replayed(files, epoch) for epoch in lost)
            pointer = RestorePointer(entry.id, entry.metadata)
            return RestoreChoice(
                pointer, replay, tuple(damages), found.stages, found.hooks, found.slice, found.backlogs, found.read
            )
        damages.extend(found.damages)
        record = head.import_of(entry.id)
        if record is not None:
            raise NoCheckpointError(
                f"the job was started from a savepoint, as checkpoint {entry.id}, and that is damaged: "
                f"{found.damages[0]}. What came before it is no way back. Put the file back, or start from a "
                "savepoint again: `cairn resume JOB --from PATH --again`",
                job=files.job,
                checkpoint=entry.id,
                savepoint=record.origin.uri,
                damages=len(damages),
            )
        bypassed.append(entry)
    if bypassed:
        raise NoCheckpointError(
            f"no retained checkpoint can be restored: {damages[0]}; put the file back, or run the job under another "
            "name to start empty",
            job=files.job,
            retained=len(bypassed),
            damages=len(damages),
        )
    return RestoreChoice(None)


def verify(files: JobFiles, entry: CompletedEntry, *, deep: bool = False) -> Verification:
    """Check every file of one completed checkpoint: there, of the right size, and unaltered (semantics R1, W9).

    Args:
        files: the job's files.
        entry: the checkpoint's.
        deep: read every file, so that a byte that flipped on the medium is found too.

    Raises:
        UnavailableError: the store could not be asked.
        ForbiddenError: the store refused to answer.
    """
    return verify_pointer(files, RestorePointer(entry.id, entry.metadata), entry.epoch, deep=deep)


def verify_pointer(files: JobFiles, pointer: RestorePointer, epoch: str, *, deep: bool = False) -> Verification:
    """Check a completed checkpoint, whether or not it is still retained; see `verify`.

    Args:
        files: the job's files.
        pointer: the checkpoint.
        epoch: its own.
        deep: read every file.

    Raises:
        UnavailableError: the store could not be asked.
        ForbiddenError: the store refused to answer.
    """
    damages: list[Damage] = []
    stages: list[RestoredStage] = []
    hooks: list[str] = []
    backlogs: dict[str, tuple[OwedEpoch, ...]] = {}
    handles: list[StateHandle] = []
    slice_: Slice | None = None
    read = NOTHING_READ
    count = size_bytes = 0
    check = FileCheck(files, deep=deep)

    def check_stage() -> None:
        damages.extend(Damage(pointer.checkpoint, handle.path, problem) for handle, problem in check.damaged(handles))
        handles.clear()

    try:
        # Stage by stage: no more than one stage's files are in memory, and each folder is listed once all the same.
        for line in metadata.read(files, pointer.metadata):
            if isinstance(line, HandleLine):
                handles.append(line.handle)
                count, size_bytes = count + 1, size_bytes + line.handle.size_bytes
            elif isinstance(line, StageLine):
                check_stage()
                stages.append(restored_stage(line))
                if line.owes:
                    backlogs[line.stage] = line.owes
            elif isinstance(line, InFlightLine):
                check_stage()
            elif isinstance(line, HookLine):
                hooks.append(line.answer.name)
            elif isinstance(line, MetadataHeader):
                if (line.checkpoint, line.epoch) != (pointer.checkpoint, epoch):
                    raise DocumentError("it describes another checkpoint", key=files.full(pointer.metadata.key))
                slice_, read = line.slice, line.read
                damages.extend(_damaged_positions(files, pointer.checkpoint, line.slice))
    except (GoneError, DocumentError) as error:
        # What its lines said before is worth nothing, then.
        return Verification(
            pointer.checkpoint, 0, 0, (Damage(pointer.checkpoint, pointer.metadata.key, _problem(error)),)
        )
    check_stage()
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
    """Give what a stage's line holds, by what has to be claimed and to fit (semantics R3, R4)."""
    state = (*(output.id for output in line.outputs), *(f"value.{name}" for name in line.values))
    state += tuple(f"epoch.{owed.epoch}" for owed in line.owes)
    key_groups = dict.fromkeys(output.key_groups for output in line.outputs if output.key_groups is not None)
    return RestoredStage(line.stage, line.parallelism, line.max_parallelism, state, tuple(key_groups))


def _damaged_positions(files: JobFiles, checkpoint: int, slice_: Slice) -> Iterator[Damage]:
    """Yield what is wrong with the lists that the sources' positions name; they are few."""
    for shelved in shelf.referred(slice_.positions):
        try:
            etag = files.stat(shelved.key).etag
        except GoneError:
            yield Damage(checkpoint, shelved.key, "it is gone")
            continue
        # A copy may have another tag, so the content decides (semantics W9).
        if etag != shelved.etag and not files.stands(DocumentRef(shelved.key, shelved.size_bytes, shelved.sha256)):
            yield Damage(checkpoint, shelved.key, f"its content differs: expected {shelved.etag}, found {etag}")


def _replayed(files: JobFiles, epoch: str) -> ReplayedEpoch:
    key = layout.epoch_slice(epoch)
    try:
        document, _ = files.read(EpochDocument, key)
    except GoneError as error:
        raise NoCheckpointError(
            "the newest checkpoint is damaged, and the input of the epoch that it held is not known any more; put the "
            "checkpoint's file or the epoch's document back",
            job=files.job,
            epoch=layout.run_id_of(epoch),
            key=files.full(key),
        ) from error
    # The checkpoint before holds the positions.
    return ReplayedEpoch(epoch, replace(document.slice, positions=None))


def _problem(error: GoneError | DocumentError) -> str:
    return "it is gone" if isinstance(error, GoneError) else error.message
