"""`head.json`: the one mutable object of a job, as a value.

It is changed only by compare-and-swap (`head_store`). Everything that may be decided once is decided by which version
of the head came next: which ids are pending, which completed, why one failed (semantics D3, T5, W2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from .codec import SPARSE
from .errors import NoCheckpointError
from .failures import COUNTED
from .model import (
    AckMetrics,
    Attempt,
    CheckpointId,
    Count,
    DocumentRef,
    Epoch,
    FolderName,
    Job,
    Key,
    ListenerName,
    OutputName,
    Owner,
    PendingDocument,
    RequestId,
    RestartMemory,
    RestorePointer,
    Stage,
    Target,
    Token,
)
from .read_windows import NOTHING_READ, ReadWindows, WindowText
from .reasons import Reason, RequestKind, Status

MAX_HISTORY = 100
"""Ended checkpoints that the head remembers (semantics O1)."""

MAX_UNFINISHED = 16
"""Epochs that ended without completing and for whose next attempt something is kept, where no more may be pending at
once: as many as Airflow lets runs of a DAG be active by default. Later ones push the oldest out (`left_behind`)."""

MAX_RESTORES = 20
"""Restores that the head remembers."""

MAX_WAITING = 1_000
"""Requests that may wait (semantics T2)."""

MAX_DECLINED = 20
"""Declined requests that the head remembers, for people (semantics T1)."""

MAX_NOTICES = 100
"""Notices that may wait to be delivered, those of pending checkpoints included; beyond it nothing is triggered."""

MAX_IMPORTS = 20
"""Savepoints that the job was started from and of which the head remembers so, beside those that are retained."""

MAX_SAVEPOINTS = 200
"""Savepoints that the head remembers (semantics P3)."""

WRITE_LOG = 64
"""Write ids that the head remembers; the decisions themselves settle what is older (semantics W2)."""


MAX_RESTARTED = 100
"""Stages that run again after a checkpoint of which the head remembers the names, for people."""

MAX_LATE = 10
"""Late acknowledgements that the head remembers of a failed checkpoint, for people."""

MAX_OTHERS = 10
"""Failures beside the root failure that the head remembers of a checkpoint (semantics O1)."""


@dataclass(frozen=True, slots=True)
class Slowest:
    """Whom a checkpoint waited for longest, of the stages that ran in it (semantics O1)."""

    stage: Stage
    end_to_end_ms: Count
    """From the trigger to its acknowledgement."""
    subtask: Count
    """The one of its subtasks that wrote most; a stage's subtasks acknowledge together (A6)."""


@dataclass(frozen=True, slots=True)
class PendingEntry:
    """A checkpoint that is being made."""

    id: CheckpointId
    epoch: Epoch
    attempt: Attempt
    token: Token
    triggered_at_ms: Count
    expires_at_ms: Count
    restored_from: CheckpointId | None = None
    base: CheckpointId | None = None
    """The newest completed checkpoint when this one was triggered. It may complete only on top of it: otherwise the
    epoch that came between would be lost from the state."""
    owner: Owner | None = None
    retained: Count = 1
    """How many completed checkpoints to keep when this one completes (semantics C3)."""
    stages: Count = 0
    """Stages that must acknowledge."""
    replayed: tuple[Epoch, ...] = ()
    """Earlier epochs whose input is read again, because their checkpoints turned out damaged."""
    listeners: tuple[ListenerName, ...] = ()
    """Who is to be told how it ended; each has a notice kept free in the head."""
    kind: RequestKind | None = None
    """Who asked for it; a later attempt has the kind of the first."""
    tolerable: Count = 0
    """Counted failures in a row that the job tolerates (semantics D5)."""
    regional: Count = field(default=0, metadata=SPARSE)
    """Checkpoints in a row that may complete without regions that failed; 0: this one never does (semantics F6)."""
    restarts: Count = field(default=0, metadata=SPARSE)
    """Failed tries of the epoch in a row that the restart strategy has answered by a restart (semantics F4)."""
    restart_at_ms: Count = field(default=0, metadata=SPARSE)
    """When the strategy wants the failed try to be followed by the next; 0: it does not say."""
    restarts_left: Count | None = None
    """How many further failures in a row it would answer by a restart, as of the trigger; None: any number."""
    draining: bool = field(default=False, metadata=SPARSE)
    """Whether its epoch is the last one of a job that stops; it may complete only as long as the job does so (P2)."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """The window of time that its epoch reads; None: it reads none, or version 0.1 wrote this."""
    places: Count = field(default=0, metadata=SPARSE)
    """How many epochs may be pending at once, if more than one may; otherwise 0."""
    document: PendingDocument | None = None
    """What it expects, if that is small; None: it stands in an object of its own (`attempt_document`)."""


@dataclass(frozen=True, slots=True)
class CompletedEntry:
    """A completed checkpoint that is retained, oldest first in the head."""

    id: CheckpointId
    epoch: Epoch
    attempt: Attempt
    token: Token
    triggered_at_ms: Count
    completed_at_ms: Count
    metadata: DocumentRef
    acks: Count
    """Stages that acknowledged: all of them."""
    size_bytes: Count
    """Of all files that the metadata names, those of earlier checkpoints included."""
    restored_from: CheckpointId | None = None
    replayed: tuple[Epoch, ...] = ()
    """Earlier epochs that were folded in again on top of `restored_from`, before this one's own."""
    tables: dict[OutputName, Key] = field(default_factory=dict)
    """Published tables: the folder of each, relative to the job's prefix. Readers without Cairn start here."""
    left_out: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that did not take part: what is theirs is that of `restored_from`, and they owe the epoch (B3, F6)."""
    regional_in_a_row: Count = field(default=0, metadata=SPARSE)
    """Checkpoints in a row, up to this one, that completed although a region had failed (semantics F6)."""
    read: ReadWindows = field(default=NOTHING_READ, metadata=SPARSE)
    """As in its metadata: the windows of time that its state has read (semantics T8)."""
    owing: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that took part and have still to read some of their input, which it holds as data in flight (B2)."""
    table_files: dict[OutputName, Count] = field(default_factory=dict, metadata=SPARSE)
    """How many files each published table has: a reader without Cairn counts them, in case a cleaner is under way."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """As in `PendingEntry`."""


@dataclass(frozen=True, slots=True)
class LateAck:
    """A stage that acknowledged in a checkpoint that had failed by then; what it wrote is gone (semantics A2, O1)."""

    stage: Stage
    metrics: AckMetrics


@dataclass(frozen=True, slots=True)
class EndedEntry:
    """A checkpoint of the past, for people, for later attempts of its epoch and for late acknowledgements (A3)."""

    id: CheckpointId
    epoch: Epoch
    attempt: Attempt
    token: Token
    status: Status
    triggered_at_ms: Count
    ended_at_ms: Count
    reason: Reason | None = None
    detail: str = ""
    acks: Count = 0
    """Stages that had acknowledged when it ended."""
    stages: Count = 0
    """Stages that had to."""
    size_bytes: Count = 0
    restored_from: CheckpointId | None = None
    base: CheckpointId | None = None
    """As in `PendingEntry`: a later attempt may carry executions over only while nothing newer has completed."""
    rejected: tuple[Token, ...] = ()
    """Executions that were told `DISCARDED` after this checkpoint ended: their files are gone, nothing carries them."""
    new_bytes: Count = 0
    """Of the files that its own executions wrote; the rest it refers to (incremental size)."""
    others: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Other stages that had failed in it when it ended, each with its reason; `MAX_OTHERS` at most."""
    kind: RequestKind | None = None
    """Who asked for it."""
    subtasks: Count = 0
    """Subtasks that had acknowledged, of a checkpoint that completed."""
    slowest: Slowest | None = None
    """None for one that did not complete, and where all was taken over."""
    job_failed: bool = False
    """Whether the job failed with it: of more counted failures in a row than are tolerable (semantics D5), or of a
    failed try that is followed by no other (F4)."""
    restarts: Count = field(default=0, metadata=SPARSE)
    """As in `PendingEntry`."""
    for_good: bool = field(default=False, metadata=SPARSE)
    """Whether a try had failed that nothing but a person follows by another (semantics F4)."""
    left_out: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """As in `CompletedEntry`."""
    restarted: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that had begun in it and run again in the attempt after it (semantics F1); `MAX_RESTARTED` at most."""
    paused: bool = field(default=False, metadata=SPARSE)
    """Whether it ended because its DAG was paused, so that its epoch goes on when it no longer is (semantics S1)."""
    restart_at_ms: Count = field(default=0, metadata=SPARSE)
    """As in `PendingEntry`."""
    late: tuple[LateAck, ...] = field(default=(), metadata=SPARSE)
    """Stages that began in it and acknowledged after it had failed, in that order; `MAX_LATE` at most."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """As in `PendingEntry`."""
    places: Count = field(default=0, metadata=SPARSE)
    """As in `PendingEntry`."""
    left_behind: bool = field(default=False, metadata=SPARSE)
    """Whether so many other epochs have ended since that nothing of it is kept: only a trigger opens the next."""

    def __post_init__(self) -> None:
        """Refuse an outcome that is none."""
        if self.status is Status.PENDING:
            raise ValueError("an ended checkpoint is not pending")

    @property
    def overtaken(self) -> bool:
        """Whether it ended because another epoch completed first, on which the next attempt is to stand (C2)."""
        return self.reason is Reason.CHECKPOINT_SUBSUMED

    @property
    def tolerated(self) -> bool:
        """Whether its epoch goes on by itself.

        After a counted failure that the job tolerates (D5), a pause of the DAG (S1), or where it was overtaken (C2).
        """
        if self.left_behind:
            return False
        return self.paused or self.overtaken or (self.reason in COUNTED and not self.job_failed)


@dataclass(frozen=True, slots=True)
class Notice:
    """How a checkpoint ended, for listeners that have not been told yet (semantics C4, D4)."""

    checkpoint: CheckpointId
    epoch: Epoch
    attempt: Attempt
    token: Token
    """Of the checkpoint; it leads to what the attempt expected."""
    status: Status
    latest: CheckpointId | None
    """The newest completed checkpoint when this one had ended; itself, if it completed."""
    listeners: tuple[ListenerName, ...]
    """Who is still to be told."""
    reason: Reason | None = None
    """Why it was aborted; None if it completed."""
    detail: str = ""
    """The same, for people."""
    metadata: DocumentRef | None = None
    """Of a completed checkpoint whose stages have staged something; kept until all have been told."""


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """One restore, for people (semantics R5)."""

    checkpoint: CheckpointId
    """The completed checkpoint that was restored."""
    at_ms: Count
    took_ms: Count
    """Verification included."""
    why: str
    into: CheckpointId | None = None
    """The checkpoint that was opened on top of it; None for a restore that only looked it up."""
    damages: tuple[str, ...] = ()
    """What was wrong with newer checkpoints, if it is not the newest one."""


@dataclass(frozen=True, slots=True)
class RewindRecord:
    """One rewind: what completed after `to`, up to `through`, no longer counts, and its epochs run again.

    Kept for as long as the job lives: it is what the lists of completed epochs are judged by. A later rewind to the
    same checkpoint or an older one covers it and takes its place.
    """

    to: Count
    """0: to none of the job's own: it was started from a savepoint that holds none, or went back to its start."""
    through: CheckpointId
    """The newest id handed out by then."""
    at_ms: Count
    imported: CheckpointId | None = None
    """The checkpoint that was made from a savepoint and that the job was started from; None: it was rewound."""
    drained: CheckpointId | None = field(default=None, metadata=SPARSE)
    """The checkpoint of a last epoch that had drained the job, which did not stop after all (semantics P2)."""

    def covers(self, checkpoint: int) -> bool:
        """Tell whether a checkpoint was made after the one rewound to, and before the rewind."""
        return self.to < checkpoint <= self.through

    @property
    def said(self) -> str:
        """What happened, for people; a clause."""
        if self.imported is not None:
            return f"the job was started from a savepoint, as checkpoint {self.imported},"
        if self.drained is not None:
            back = f"checkpoint {self.to}" if self.to else "its start"
            return f"the job, which did not stop after all, went back to {back}"
        return f"the job was rewound to checkpoint {self.to}"


@dataclass(frozen=True, slots=True)
class SavepointOrigin:
    """Which savepoint something is made from."""

    uri: str
    """Its folder, as it was named."""
    sha256: str
    """Of its metadata: what says that it is the same savepoint, wherever it was moved to."""
    job: Job
    """Whose state it holds."""
    checkpoint: CheckpointId
    """That job's checkpoint that it was made from."""
    epoch: Epoch
    """The last one that it holds, as that job calls it."""


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """A savepoint that is being copied into the job, to become its newest checkpoint (semantics R6).

    It means nothing for what the job restores; it keeps the cleaner from the copies. One at a time: who starts another
    one takes its place.
    """

    origin: SavepointOrigin
    home: CheckpointId
    """An id handed out to it: the copies lie in that checkpoint's folder."""
    token: Token
    started_at_ms: Count


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """A checkpoint that was made from a savepoint, so that it is known where the job comes from (semantics R1, R6)."""

    origin: SavepointOrigin
    checkpoint: CheckpointId
    at_ms: Count
    token: Token
    """Of the import; it leads to the copies."""
    allow_non_restored_state: bool = field(default=False, metadata=SPARSE)
    """Whether the restore from it may leave behind what no stage claims (semantics R3)."""
    claimed: bool = field(default=False, metadata=SPARSE)
    """Whether the job owns the savepoint's folder, and has still to delete it (semantics R6: CLAIM)."""


class Stopped(StrEnum):
    """What the job's coordinator refuses (semantics S1, T1)."""

    PAUSED = "paused"
    """Periodic requests, because the DAG is paused; what that has ended goes on when it no longer is."""
    SHUTDOWN = "shutdown"
    """Every request."""

    @classmethod
    def _missing_(cls, value: object) -> Stopped | None:
        """Read what version 0.1 could write: a job that a person had suspended waits for a person still."""
        return cls.SHUTDOWN if value == "suspended" else None


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A place in the line of requests (semantics T2); its epoch has no pending attempt."""

    epoch: Epoch
    kind: RequestKind
    requested_at_ms: Count
    """When it took the place, for people; the order is that of the line."""
    owner: Owner | None = None
    """Whose DAG run waits; the place is given up when that has ended."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """As in `PendingEntry`; None also where a source says what the epoch reads once it begins."""


@dataclass(frozen=True, slots=True)
class DeclinedRequest:
    """A request that no checkpoint came of, for people (semantics T1)."""

    epoch: Epoch
    kind: RequestKind
    reason: Reason
    detail: str
    at_ms: Count
    """When it was first declined so; where each time counts, the last time."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """As in `WaitingRequest`."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals over the job's life (semantics O1)."""

    triggered: Count = 0
    completed: Count = 0
    failed: Count = 0
    restored: Count = 0
    new_bytes: Count = 0
    """Of the files that the executions of completed checkpoints wrote."""


@dataclass(frozen=True, slots=True)
class SavepointEntry:
    """A savepoint that was asked for (semantics P1, P3)."""

    id: CheckpointId
    """Out of the same sequence as those of checkpoints (semantics T5); in the job nothing lies under it."""
    request: RequestId
    """The same one gives the same savepoint."""
    target: Target
    """URI of the storage that it is made in."""
    folder: FolderName
    """Its folder there."""
    requested_at_ms: Count
    expires_at_ms: Count
    epoch: Epoch
    """The epoch that it is to hold as the last one, as far as known; it waits for that one while `source` is None."""
    status: Status = Status.PENDING
    source: RestorePointer | None = None
    """The completed checkpoint that it is made from; kept from the cleaner until the savepoint has ended."""
    ended_at_ms: Count = field(default=0, metadata=SPARSE)
    files: Count = field(default=0, metadata=SPARSE)
    size_bytes: Count = field(default=0, metadata=SPARSE)
    """Of its files."""
    reason: Reason | None = None
    """Why it failed; None if it did not."""
    detail: str = field(default="", metadata=SPARSE)
    """The same, for people."""
    stops: bool = field(default=False, metadata=SPARSE)
    """Whether the job stops with it: no epoch begins while it is made, and it completes in the swap that stops the job
    (semantics P2)."""
    drains: bool = field(default=False, metadata=SPARSE)
    """Whether `epoch` is the job's last one, in which the stages emit what still waits for time to go on (P2)."""
    next_whole: bool = field(default=False, metadata=SPARSE)
    """Whether it waits for the next epoch that begins, whichever that is: stages were left out of the newest
    checkpoint, which holds `epoch`, and nothing is under way (semantics T4, F6, P1)."""
    owing: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that have still to read some of their input, which it holds as data in flight; only of a job that reads
    what is there, or of stages that were skipped (semantics B2, P1)."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """The window of time that `epoch` has read, once `source` is known; None as in `PendingEntry`."""

    @property
    def uri(self) -> str:
        """The savepoint's folder as a URI."""
        return f"{self.target}/{self.folder}"

    @property
    def ended(self) -> bool:
        """Whether it has completed or failed."""
        return self.status is not Status.PENDING

    @property
    def waits(self) -> bool:
        """Whether the checkpoint that it is to be made from has still to complete."""
        return self.status is Status.PENDING and self.source is None

    @property
    def waits_for_next(self) -> bool:
        """Whether the epoch that it waits for is not known yet."""
        return self.waits and self.next_whole


@dataclass(frozen=True, slots=True)
class JobOwner:
    """The DAG that makes the job's checkpoints, and its Airflow deployment (semantics W8)."""

    dag_id: str
    deployment: str = field(default="", metadata=SPARSE)
    """Its name; empty where it has none."""


@dataclass(frozen=True, slots=True)
class CompletedNote:
    """An epoch that completed and that the history no longer remembers (semantics T9)."""

    epoch: Epoch
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class Segment:
    """A list of epochs that completed long ago (`completed_epochs`)."""

    document: DocumentRef
    epochs: Count


@dataclass(frozen=True, slots=True)
class Head:
    """One version of a job's truth."""

    job: Job
    revision: Count = 0
    next_id: CheckpointId = 1
    pending: tuple[PendingEntry, ...] = ()
    completed: tuple[CompletedEntry, ...] = ()
    history: tuple[EndedEntry, ...] = ()
    restores: tuple[RestoreRecord, ...] = ()
    """The last restores, newest last."""
    notices: tuple[Notice, ...] = ()
    """Endings that somebody is still to be told of, by id."""
    counters: Counters = field(default_factory=Counters)
    waiting: tuple[WaitingRequest, ...] = ()
    """Requests that wait, the next to be admitted first (semantics T2)."""
    stopped: Stopped | None = None
    """None: the job takes every request."""
    owner: JobOwner | None = None
    """Recorded at the first trigger; None before, and in a job of version 0.1 (semantics W8)."""
    declined: tuple[DeclinedRequest, ...] = ()
    """The last declined requests, newest last; the newest of each epoch."""
    failures: Count = 0
    """Counted failures in a row since the newest success, or since the job failed of them (semantics D5)."""
    restart_memory: RestartMemory | None = None
    """Failed tries that the restart strategy remembers, of all epochs (semantics F4)."""
    rewinds: tuple[RewindRecord, ...] = field(default=(), metadata=SPARSE)
    """Rewinds that still say something, oldest first; none covers what another covers."""
    importing: ImportEntry | None = None
    """The savepoint that is being copied into the job."""
    imports: tuple[ImportRecord, ...] = field(default=(), metadata=SPARSE)
    """Savepoints that the job was started from, newest last: the last ones, and those whose checkpoint is retained."""
    savepoint_target: Target | None = None
    """Where savepoints are made that name no place, as of the last trigger (semantics P1)."""
    savepoints: tuple[SavepointEntry, ...] = field(default=(), metadata=SPARSE)
    """Savepoints by id; of those that have ended the newest, as long as they are not disposed of."""
    forgotten: Count = field(default=0, metadata=SPARSE)
    """How often a savepoint was forgotten whose folder may be being emptied; later folders are named by it, so that
    none is used twice."""
    noted: tuple[CompletedNote, ...] = field(default=(), metadata=SPARSE)
    """Epochs that completed and that the history has forgotten, before they go into a segment (semantics T9)."""
    segments: tuple[Segment, ...] = field(default=(), metadata=SPARSE)
    """Where those of long ago are, the oldest first; two at most."""
    notes_below: CheckpointId | None = None
    """Notes of version 0.1 count if they name a checkpoint below this one; None: that version wrote this head."""
    writes: tuple[Token, ...] = ()
    """Ids of the last writes, newest last; how a writer whose answer was lost learns its outcome (semantics W2)."""

    def pending_of_epoch(self, epoch: str) -> PendingEntry | None:
        """Give the pending attempt of an epoch; there is at most one."""
        return next((entry for entry in self.pending if entry.epoch == epoch), None)

    def pending_by_id(self, checkpoint: int) -> PendingEntry | None:
        """Give a pending checkpoint by id."""
        return next((entry for entry in self.pending if entry.id == checkpoint), None)

    def retained(self, checkpoint: int, *, so: str = "") -> CompletedEntry:
        """Give the entry of a checkpoint that the job still has.

        Args:
            checkpoint: its id.
            so: what follows for the caller where it is not retained, for the message.

        Raises:
            NoCheckpointError: it is not retained.
        """
        entry = self.completed_by_id(checkpoint)
        if entry is None:
            raise NoCheckpointError(
                f"the checkpoint is not retained{so}",
                job=self.job,
                checkpoint=checkpoint,
                retained=", ".join(str(each.id) for each in self.completed) or "none",
            )
        return entry

    def completed_by_id(self, checkpoint: int) -> CompletedEntry | None:
        """Give a retained completed checkpoint by id."""
        return next((entry for entry in self.completed if entry.id == checkpoint), None)

    def latest_completed(self) -> CompletedEntry | None:
        """Give the newest completed checkpoint."""
        return self.completed[-1] if self.completed else None

    def latest_id(self) -> int | None:
        """Give the id of the newest completed checkpoint."""
        latest = self.latest_completed()
        return latest.id if latest else None

    def ended_by_id(self, checkpoint: int) -> EndedEntry | None:
        """Give an ended checkpoint by id while the history remembers it."""
        return next((entry for entry in self.history if entry.id == checkpoint), None)

    def ended_of_epoch(self, epoch: str) -> Iterator[EndedEntry]:
        """Yield the epoch's ended attempts, newest first, as far as the history remembers them."""
        return (entry for entry in reversed(self.history) if entry.epoch == epoch)

    def window_of(self, epoch: str) -> WindowText | None:
        """Give the window of time that an epoch reads, as far as it is remembered; None where it reads none."""
        newest = next(self.ended_of_epoch(epoch), None)
        held = next((each for each in self.completed if each.epoch == epoch), None)
        saved = next((each for each in self.savepoints if each.epoch == epoch and each.source is not None), None)
        waits = next((each for each in self.waiting if each.epoch == epoch), None)
        return next((each.window for each in (self.pending_of_epoch(epoch), newest, held, saved, waits) if each), None)

    def import_of(self, checkpoint: int | None) -> ImportRecord | None:
        """Give the savepoint that a checkpoint was made from; None for one that an epoch made."""
        return next((each for each in self.imports if each.checkpoint == checkpoint), None)

    def left_out_of(self, checkpoint: int) -> tuple[str, ...]:
        """Give the stages that a completed checkpoint left out, as far as it is remembered (semantics B3, F6)."""
        entry = self.completed_by_id(checkpoint) or self.ended_by_id(checkpoint)
        return entry.left_out if entry else ()

    def notices_owed(self) -> int:
        """Count the notices that wait and those that the pending checkpoints will leave."""
        return len(self.notices) + sum(bool(entry.listeners) for entry in self.pending)

    def carryable(self, epoch: str) -> EndedEntry | None:
        """Give the ended attempt whose executions a new attempt of the epoch may carry over (semantics F2).

        That is the epoch's newest attempt, while none is pending, the epoch has not completed, and no checkpoint has
        completed since it was triggered: its executions were computed from the state that the new attempt restores too.
        One that ended because the whole job was restored (R5) lends nothing: that is a wish to start over (a pause of
        the DAG is none); nor does one
        that ended before a rewind, which goes back to what may have been the newest checkpoint before. What is not
        carryable never becomes so again, which is what the cleaner builds on.
        """
        newest = next(self.ended_of_epoch(epoch), None)
        if newest is None or newest.status is Status.COMPLETED or self.pending_of_epoch(epoch) is not None:
            return None
        if self.rewound_since(newest) is not None or newest.left_behind:
            return None
        if newest.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND and not newest.paused:
            return None
        return newest if newest.base == self.latest_id() else None

    def savepoint_by_request(self, request: str) -> SavepointEntry | None:
        """Give the savepoint that was asked for with a request id, as far as it is remembered."""
        return next((entry for entry in self.savepoints if entry.request == request), None)

    def stopping(self) -> SavepointEntry | None:
        """Give the savepoint with which the job is being stopped; None while it is not (semantics P2)."""
        return next((entry for entry in self.savepoints if entry.stops and not entry.ended), None)

    def drains(self, epoch: str) -> bool:
        """Tell whether an epoch is the last one of a job that is being stopped (semantics P2)."""
        entry = self.stopping()
        return entry is not None and entry.drains and self.stops_after(epoch)

    def stops_after(self, epoch: str) -> bool:
        """Tell whether a job that is being stopped waits for an epoch to complete (semantics P2)."""
        entry = self.stopping()
        return entry is not None and entry.waits and not entry.next_whole and entry.epoch == epoch

    def kept_from(self, epoch: str) -> SavepointEntry | None:
        """Give the savepoint with which the job is being stopped, if it keeps an epoch from beginning (semantics P2).

        The one that it waits for goes on, whatever becomes of its attempts. Where it waits for the next one, whichever
        that is, it keeps none from beginning.
        """
        entry = self.stopping()
        return None if entry is None or entry.waits_for_next or self.stops_after(epoch) else entry

    def owed_to_listeners(self) -> tuple[Notice, ...]:
        """Give the notices of completed checkpoints that wait: until they are told, a sink has not committed (C4)."""
        return tuple(each for each in self.notices if each.status is Status.COMPLETED)

    def savepoint_by_id(self, savepoint: int) -> SavepointEntry | None:
        """Give a savepoint by id, as far as it is remembered."""
        return next((entry for entry in self.savepoints if entry.id == savepoint), None)

    def remembers_all(self) -> bool:
        """Tell whether the history still holds every checkpoint there ever was: each id is pending, or has ended."""
        return len(self.history) + len(self.pending) == self.next_id - 1

    def resumable(self, epoch: str) -> EndedEntry | None:
        """Give the attempt that ended within the limit (D5), paused (S1) or overtaken (C2), and that one is to follow.

        What is not resumable never becomes so again: a later attempt has begun, the history has forgotten it, it was
        left behind, or the job was rewound.
        """
        newest = next(self.ended_of_epoch(epoch), None)
        if newest is None or not newest.tolerated or self.pending_of_epoch(epoch) is not None:
            return None
        return None if self.rewound_since(newest) is not None else newest

    def rewind_of(self, checkpoint: int) -> RewindRecord | None:
        """Give the rewind by which a checkpoint no longer counts, whether or not it had completed."""
        return next((rewind for rewind in self.rewinds if rewind.covers(checkpoint)), None)

    def rewound_since(self, ended: EndedEntry) -> RewindRecord | None:
        """Give the newest rewind, if an attempt had ended before it: then only a trigger opens the epoch's next."""
        newest = self.rewinds[-1] if self.rewinds else None
        return newest if newest is not None and ended.id <= newest.through else None

    def completions(self) -> dict[str, int]:
        """Give the epochs known to have completed, each with the checkpoint that it completed in.

        What was rewound has to run again, and is none of them until it has. What was made from a savepoint completed no
        epoch of this job.
        """
        noted = {each.epoch: each.checkpoint for each in self.noted if self.rewind_of(each.checkpoint) is None}
        replayed = {epoch: entry.id for entry in self.completed for epoch in entry.replayed}
        retained = {entry.epoch: entry.id for entry in self.completed if self.import_of(entry.id) is None}
        counting = (entry for entry in self.history if self.rewind_of(entry.id) is None)
        ended = {entry.epoch: entry.id for entry in counting if entry.status is Status.COMPLETED}
        return noted | replayed | retained | ended
