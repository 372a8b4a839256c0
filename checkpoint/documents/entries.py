"""The entries of the head: checkpoints that are pending, completed or ended, savepoints, requests, counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from ...storage.str_enum import StrEnum
from ..reasons import COUNTED, Reason, RequestKind, Status
from .acknowledgement import AckMetrics
from .attempt import DocumentRef, Owner, PendingDocument, RestorePointer
from .fields import (
    AtLeast,
    Attempt,
    CheckpointId,
    Count,
    Epoch,
    FolderName,
    Job,
    Key,
    ListenerName,
    OutputName,
    RequestId,
    Stage,
    Target,
    Token,
)
from .read_windows import NOTHING_READ, ReadWindows, WindowText
from .strict_json import SPARSE


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
    """Listeners to notify of how it ended; the head keeps a place free for a notice to each."""
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
    """What it expects, if that is small; None: it is in an object of its own (`attempt_document`)."""


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
    """Stages that did not take part: their state is that of `restored_from`, the epoch is in their backlog (B3, F6)."""
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
    """A checkpoint of the past, for users to read, for later attempts of its epoch, for late acknowledgements (A3)."""

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
    """Executions answered `DISCARDED` after this checkpoint ended: their files are gone, and no attempt reuses them."""
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
    """Whether a try had failed finally: only a user starts another (semantics F4)."""
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
    """Whether so many other epochs have ended since that its work was deleted: only a trigger opens the next."""

    def __post_init__(self) -> None:
        """Refuse an outcome that is none."""
        if self.status is Status.PENDING:
            raise ValueError("an ended checkpoint is not pending")

    @property
    def overtaken(self) -> bool:
        """Whether it ended because another epoch completed first, which the next attempt starts from (C2)."""
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
    """How a checkpoint ended, for listeners that were not notified yet (semantics C4, D4)."""

    checkpoint: CheckpointId
    epoch: Epoch
    attempt: Attempt
    token: Token
    """Of the checkpoint; it leads to what the attempt expected."""
    status: Status
    latest: CheckpointId | None
    """The newest completed checkpoint when this one had ended; itself, if it completed."""
    listeners: tuple[ListenerName, ...]
    """Listeners still to notify."""
    reason: Reason | None = None
    """Why it was aborted; None if it completed."""
    detail: str = ""
    """The same, for users to read."""
    metadata: DocumentRef | None = None
    """Of a completed checkpoint whose stages have staged something; kept until all are notified."""


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """One restore, for users to read (semantics R5)."""

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
        """What happened, for users to read; a clause."""
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


class InterventionKind(StrEnum):
    """What a person may have a job do, beside its runs."""

    REWIND = "rewind"
    """Go back to an older checkpoint (semantics R5)."""
    RESUME = "resume"
    """Go on, where it was stopped (semantics S1)."""
    GIVE_UP = "give-up"
    """End an attempt that is pending (semantics D3)."""
    SAVEPOINT = "savepoint"
    """Take a savepoint (semantics P1)."""
    STOP = "stop"
    """Stop with a savepoint (semantics P2)."""
    DISPOSE = "dispose"
    """Dispose of a savepoint (semantics P3)."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """What a person had the job do, for users to read (semantics O1)."""

    kind: InterventionKind
    actor: str
    """Who it was, as where they signed in knows them."""
    at_ms: Count
    checkpoint: CheckpointId | None = None
    """The checkpoint or savepoint that was named, or that was opened."""


class Stopped(StrEnum):
    """What the job's coordinator refuses (semantics S1, T1)."""

    PAUSED = "paused"
    """Periodic requests, because the DAG is paused; what that has ended goes on when it no longer is."""
    SHUTDOWN = "shutdown"
    """Every request."""

    @classmethod
    def _missing_(cls, value: object) -> Stopped | None:
        """Read what version 0.1 could write: a job that a user had suspended still waits for a user."""
        return cls.SHUTDOWN if value == "suspended" else None


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A place in the queue of requests (semantics T2); its epoch has no pending attempt."""

    epoch: Epoch
    kind: RequestKind
    requested_at_ms: Count
    """When it took the place, for users to read; the order is that of the queue."""
    owner: Owner | None = None
    """The owner of the DAG run that waits; the place is free when that has ended."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """As in `PendingEntry`; None also where a source says what the epoch reads once it begins."""


@dataclass(frozen=True, slots=True)
class TriggeringTask:
    """The task that triggers an epoch's checkpoint, where several could (semantics T10)."""

    epoch: Epoch
    task_id: str
    map_index: Annotated[int, AtLeast(-1)] = -1
    """Which instance of a mapped task; -1 for a task that is not mapped."""
    failed: bool = field(default=False, metadata=SPARSE)
    """Its trigger has failed, and those that waited for it are to end as it does."""
    claimant: str = field(default="", metadata=SPARSE)
    """Airflow's id of the task instance, another one for each try: what a zombie gives back is not its next try's."""


@dataclass(frozen=True, slots=True)
class DeclinedRequest:
    """A request that was declined, for users to read (semantics T1)."""

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
    """The same, for users to read."""
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
    actor: str = field(default="", metadata=SPARSE)
    """Who asked for it from a page. No process of theirs waits for it, so the task that ends the epoch goes on with it.
    Empty where a task or a command asked, which goes on with it itself."""

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


MAX_FAILURES = 100
"""Failures whose times the head keeps, and so the most that a failure rate may name."""
