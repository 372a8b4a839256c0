"""The entries of the head: checkpoints that are pending, completed or ended, savepoints, requests, counts."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, field
from types import MappingProxyType
from typing import Annotated

from ...storage.older_pythons import StrEnum
from ...storage.records import dataclass
from ..reasons import BY_PAUSE, COUNTED, Reason, RequestKind, Status
from .acknowledgement import AckMetrics
from .attempt import AttemptRef, DocumentRef, Owner, PendingDocument, RestorePointer
from .codec import (
    AtLeast,
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
    """The slowest of the stages that ran in a checkpoint (semantics O1)."""

    stage: Stage
    end_to_end_ms: Count
    """Time from the trigger to the stage's acknowledgement."""
    subtask: Count
    """The stage's subtask that wrote most; a stage's subtasks acknowledge together (A6)."""


@dataclass(frozen=True, slots=True)
class AttemptEntry(AttemptRef):
    """One attempt in the head, whether it is pending, completed or failed."""

    STORED_AS = MappingProxyType({"checkpoint": "id"})

    triggered_at_ms: Count
    _: KW_ONLY
    restored_from: CheckpointId | None = None
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """The epoch's window of time; None: the epoch reads none, or version 0.1 wrote this."""

    @property
    def id(self) -> int:
        """The checkpoint's id."""
        return self.checkpoint


@dataclass(frozen=True, slots=True)
class OpenedEntry(AttemptEntry):
    """Facts of an attempt that the head needs while it is pending, and in the history; not of a retained checkpoint."""

    _: KW_ONLY
    base: CheckpointId | None = None
    """The newest completed checkpoint when this one was triggered. This one may complete only on top of it: otherwise
    an epoch that completed in between would be lost from the state. A later attempt may carry executions over only
    while no newer checkpoint has completed."""
    stages: Count = 0
    """Stages that must acknowledge."""
    kind: RequestKind | None = None
    """Kind of the epoch's first request."""
    restarts: Count = field(default=0, metadata=SPARSE)
    """Restarts of the epoch in a row by the restart strategy (semantics F4)."""
    restart_at_ms: Count = field(default=0, metadata=SPARSE)
    """Time at which the restart strategy wants the next try to begin; 0: at once."""
    places: Count = field(default=0, metadata=SPARSE)
    """Number of epochs that may be pending at once, if more than one may; otherwise 0."""


@dataclass(frozen=True, slots=True)
class PendingEntry(OpenedEntry):
    """A pending checkpoint."""

    expires_at_ms: Count
    owner: Owner | None = None
    retained: Count = 1
    """Number of completed checkpoints to keep when this one completes (semantics C3)."""
    replayed: tuple[Epoch, ...] = ()
    """Earlier epochs whose input is read again, because their checkpoints turned out damaged."""
    listeners: tuple[ListenerName, ...] = ()
    """Listeners to notify of its end; the head keeps room for the notice."""
    tolerable: Count = 0
    """Counted failures in a row that the job tolerates (semantics D5)."""
    regional: Count = field(default=0, metadata=SPARSE)
    """Checkpoints in a row that may complete without regions that failed; 0: this one never does (semantics F6)."""
    restarts_left: Count | None = None
    """Further failures in a row that would still lead to a restart, as of the trigger; None: any number."""
    draining: bool = field(default=False, metadata=SPARSE)
    """Whether its epoch is the last one of a job that stops; it may complete only while the job is stopping (P2)."""
    document: PendingDocument | None = None
    """The attempt's document, if that is small; None: it is a separate object (`attempt_documents`)."""


@dataclass(frozen=True, slots=True)
class CompletedEntry(AttemptEntry):
    """A completed checkpoint that is retained, oldest first in the head."""

    completed_at_ms: Count
    metadata: DocumentRef
    acks: Count
    """Stages that acknowledged: all of them."""
    size_bytes: Count
    """Bytes of all files that the metadata names, those of earlier checkpoints included."""
    replayed: tuple[Epoch, ...] = ()
    """Earlier epochs that were folded in again on top of `restored_from`, before this one's own."""
    tables: dict[OutputName, Key] = field(default_factory=dict)
    """Folder of each published table, relative to the job's prefix. Readers without Cairn start here."""
    left_out: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that did not take part: their state is that of `restored_from`, the epoch is in their backlog (B3, F6)."""
    regional_in_a_row: Count = field(default=0, metadata=SPARSE)
    """Checkpoints in a row, up to this one, that completed although a region had failed (semantics F6)."""
    read: ReadWindows = field(default=NOTHING_READ, metadata=SPARSE)
    """Windows of time that the state has read, as in the metadata (semantics T8)."""
    owing: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that took part and have still to read some of their input, which is data in flight here (B2)."""
    table_files: dict[OutputName, Count] = field(default_factory=dict, metadata=SPARSE)
    """Number of files of each published table: a reader without Cairn counts them, in case a cleaner is at work."""

    @property
    def folded(self) -> tuple[str, ...]:
        """Epochs whose input was folded in on top of `restored_from`, in that order."""
        return (*self.replayed, self.epoch)


@dataclass(frozen=True, slots=True)
class LateAck:
    """A stage that acknowledged after its checkpoint had failed; its files are gone (semantics A2, O1)."""

    stage: Stage
    metrics: AckMetrics


@dataclass(frozen=True, slots=True)
class EndedEntry(OpenedEntry):
    """An ended checkpoint, kept for users, for later attempts of its epoch and for late acknowledgements (A3)."""

    FIRST = b'{"acks":'
    FACTS = re.compile(
        rb'"epoch":"(?P<epoch>[^"\\]+)",(?:"for_good":true,)?"id":(?P<checkpoint>[0-9]+),'
        rb'.*"status":"(?P<status>COMPLETED|FAILED)"',
        re.DOTALL,
    )

    status: Status
    ended_at_ms: Count
    reason: Reason | None = None
    detail: str = ""
    acks: Count = 0
    """Number of stages that had acknowledged when it ended."""
    size_bytes: Count = 0
    rejected: tuple[Token, ...] = ()
    """Executions answered `DISCARDED` after this checkpoint ended: their files are gone, and no attempt reuses them."""
    new_bytes: Count = 0
    """Bytes of the files that its own executions wrote; all others it only refers to (incremental size)."""
    others: tuple[str, ...] = field(default=(), metadata=SPARSE)
    """Other stages that had failed when it ended, each with its reason; at most `MAX_OTHERS`."""
    subtasks: Count = 0
    """Subtasks that acknowledged, of a completed checkpoint."""
    slowest: Slowest | None = None
    """None for a failed checkpoint, and where all executions were taken over."""
    job_failed: bool = False
    """Whether the job failed with it: of too many counted failures in a row (semantics D5), or no try follows (F4)."""
    for_good: bool = field(default=False, metadata=SPARSE)
    """Whether a try had finally failed: only a user starts another (semantics F4)."""
    left_out: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """As in `CompletedEntry`."""
    restarted: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that had begun and run again in the attempt after it (semantics F1); at most `MAX_RESTARTED`."""
    paused: bool = field(default=False, metadata=SPARSE)
    """Whether a pause of the DAG ended it, so that its epoch goes on after the pause (semantics S1)."""
    late: tuple[LateAck, ...] = field(default=(), metadata=SPARSE)
    """Stages that began in it and acknowledged after it had failed, in that order; at most `MAX_LATE`."""
    left_behind: bool = field(default=False, metadata=SPARSE)
    """Whether its files were deleted because many other epochs have ended since: only a trigger opens the next."""

    def __post_init__(self) -> None:
        """Refuse the status of a pending checkpoint."""
        if self.status is Status.PENDING:
            raise ValueError("an ended checkpoint is not pending")

    @property
    def by_pause(self) -> bool:
        """Whether a pause of the DAG ended it: also where the job was stopped since, so that nothing goes on."""
        return self.paused or (self.reason is Reason.CHECKPOINT_COORDINATOR_SUSPEND and self.detail == BY_PAUSE)

    @property
    def overtaken(self) -> bool:
        """Whether the attempt ended because another epoch completed first (semantics C2)."""
        return self.reason is Reason.CHECKPOINT_SUBSUMED

    @property
    def tolerated(self) -> bool:
        """Whether its epoch goes on by itself: after a tolerated failure (D5), a pause (S1), or overtaken (C2)."""
        if self.left_behind:
            return False
        return self.paused or self.overtaken or (self.reason in COUNTED and not self.job_failed)


@dataclass(frozen=True, slots=True)
class Notice(AttemptRef):
    """The end of a checkpoint, for listeners that were not notified yet (semantics C4, D4)."""

    status: Status
    latest: CheckpointId | None
    """The newest completed checkpoint when this one had ended; this one, if it completed."""
    listeners: tuple[ListenerName, ...]
    """Listeners still to notify."""
    reason: Reason | None = None
    """Why it was aborted; None if it completed."""
    detail: str = ""
    """The reason in words, for users."""
    metadata: DocumentRef | None = None
    """Metadata of a completed checkpoint with staged committables; kept until all listeners are notified."""
    paused: bool = field(default=False, metadata=SPARSE)
    """Whether the attempt ended because its DAG was paused (semantics S1)."""


@dataclass(frozen=True, slots=True)
class RestoreRecord:
    """One restore, for users to read (semantics R5)."""

    checkpoint: CheckpointId
    """The completed checkpoint that was restored."""
    at_ms: Count
    took_ms: Count
    """Duration in milliseconds, verification included."""
    why: str
    into: CheckpointId | None = None
    """The checkpoint that was opened on top of it; None for a restore that only looked it up."""
    damages: tuple[str, ...] = ()
    """Damages of newer checkpoints, if it is not the newest one."""


@dataclass(frozen=True, slots=True)
class RewindRecord:
    """One rewind: checkpoints after `to`, up to `through`, no longer count, and their epochs run again.

    Records are kept as long as the job lives, because the lists of completed epochs are judged by them. A later rewind
    to the same checkpoint or an older one covers a record and replaces it.
    """

    to: Count
    """0: none of the job's own checkpoints; it began with a savepoint that holds none, or goes back to its start."""
    through: CheckpointId
    """The newest id handed out when the job was rewound."""
    at_ms: Count
    imported: CheckpointId | None = None
    """The checkpoint made from the savepoint that the job was started from; None: the job was rewound."""
    drained: CheckpointId | None = field(default=None, metadata=SPARSE)
    """The checkpoint of a last epoch that had drained the job, if the job did not stop after all (semantics P2)."""

    def covers(self, checkpoint: int) -> bool:
        """Tell whether a checkpoint was made after the one rewound to, and before the rewind."""
        return self.to < checkpoint <= self.through

    @property
    def said(self) -> str:
        """The event as a clause for users."""
        if self.imported is not None:
            return f"the job was started from a savepoint, as checkpoint {self.imported},"
        if self.drained is not None:
            back = f"checkpoint {self.to}" if self.to else "its start"
            return f"the job, which did not stop after all, went back to {back}"
        return f"the job was rewound to checkpoint {self.to}"


@dataclass(frozen=True, slots=True)
class SavepointOrigin:
    """The savepoint that a checkpoint is made from."""

    uri: str
    """The savepoint's folder, as the user named it."""
    sha256: str
    """SHA-256 of the savepoint's metadata, which identifies it even after it was moved."""
    job: Job
    """The job whose state the savepoint holds."""
    checkpoint: CheckpointId
    """Checkpoint of that job that the savepoint was made from."""
    epoch: Epoch
    """Last epoch of that job in the savepoint."""


@dataclass(frozen=True, slots=True)
class ImportEntry:
    """A savepoint that is being copied into the job, to become its newest checkpoint (semantics R6).

    The entry does not affect restores; it keeps the cleaner from deleting the copies. There is one at a time: another
    import replaces it.
    """

    origin: SavepointOrigin
    home: CheckpointId
    """The id handed out for the import: the copies are in that checkpoint's folder."""
    token: Token
    started_at_ms: Count


@dataclass(frozen=True, slots=True)
class ImportRecord:
    """A checkpoint that was made from a savepoint, with its origin (semantics R1, R6)."""

    origin: SavepointOrigin
    checkpoint: CheckpointId
    at_ms: Count
    token: Token
    """Token of the import, by which the copies are found."""
    allow_non_restored_state: bool = field(default=False, metadata=SPARSE)
    """Whether a restore from this checkpoint may leave unclaimed state behind (semantics R3)."""
    claimed: bool = field(default=False, metadata=SPARSE)
    """Whether the job owns the savepoint's folder, and has still to delete it (semantics R6: CLAIM)."""


class InterventionKind(StrEnum):
    """Interventions of a person in a job, beside its runs."""

    REWIND = "rewind"
    """Go back to an older checkpoint (semantics R5)."""
    RESUME = "resume"
    """Let a stopped job go on (semantics S1)."""
    GIVE_UP = "give-up"
    """Abort a pending attempt (semantics D3)."""
    SAVEPOINT = "savepoint"
    """Take a savepoint (semantics P1)."""
    STOP = "stop"
    """Stop with a savepoint (semantics P2)."""
    DISPOSE = "dispose"
    """Dispose of a savepoint (semantics P3)."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """One intervention of a person, for users to read (semantics O1)."""

    kind: InterventionKind
    actor: str
    """The person's name where they signed in."""
    at_ms: Count
    checkpoint: CheckpointId | None = None
    """The checkpoint or savepoint that was named, or that was opened."""


class Stopped(StrEnum):
    """Why a job is stopped (semantics S1, T1)."""

    PAUSED = "paused"
    """The DAG is paused: periodic requests are refused, and aborted epochs go on after the pause."""
    SHUTDOWN = "shutdown"
    """The job was shut down: all requests are refused."""

    @classmethod
    def _missing_(cls, value: object) -> Stopped | None:
        """Read a value of version 0.1: a job that a user had suspended still waits for a user."""
        return cls.SHUTDOWN if value == "suspended" else None


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A place in the queue of requests (semantics T2); its epoch has no pending attempt."""

    epoch: Epoch
    kind: RequestKind
    requested_at_ms: Count
    """Time of arrival, for users; the order is that of the queue."""
    owner: Owner | None = None
    """The waiting DAG run; its place is free once the run has ended."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """As in `PendingEntry`; None also where a source chooses the epoch's input when the epoch begins."""


@dataclass(frozen=True, slots=True)
class TriggeringTask:
    """The task that has the right to trigger an epoch's checkpoint, if several could (semantics T10)."""

    epoch: Epoch
    task_id: str
    map_index: Annotated[int, AtLeast(-1)] = -1
    """Index of the instance of a mapped task; -1 for a task that is not mapped."""
    failed: bool = field(default=False, metadata=SPARSE)
    """Whether its trigger has failed, so that the tasks that wait for it fail, too."""
    claimant: str = field(default="", metadata=SPARSE)
    """Airflow's id of the task instance, one per try: a zombie cannot give back the right of its next try."""


@dataclass(frozen=True, slots=True)
class DeclinedRequest:
    """A request that was declined, for users to read (semantics T1)."""

    epoch: Epoch
    kind: RequestKind
    reason: Reason
    detail: str
    at_ms: Count
    """Time of the first decline for this reason; if each failure counts, of the last."""
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
    """Bytes of the files that the executions of completed checkpoints wrote."""


@dataclass(frozen=True, slots=True)
class SavepointEntry:
    """A requested savepoint (semantics P1, P3)."""

    id: CheckpointId
    """Out of the same sequence as checkpoint ids (semantics T5); the job has no files under it."""
    request: RequestId
    """Id of the request; the same id gives the same savepoint."""
    target: Target
    """URI of the savepoint's storage."""
    folder: FolderName
    """The savepoint's folder in the target."""
    requested_at_ms: Count
    expires_at_ms: Count
    epoch: Epoch
    """The last epoch that the savepoint will hold, as far as known; it waits for that epoch while `source` is None."""
    status: Status = Status.PENDING
    source: RestorePointer | None = None
    """The completed checkpoint that the savepoint is made from; the cleaner keeps it until the savepoint has ended."""
    ended_at_ms: Count = field(default=0, metadata=SPARSE)
    files: Count = field(default=0, metadata=SPARSE)
    size_bytes: Count = field(default=0, metadata=SPARSE)
    """Bytes of the savepoint's files."""
    reason: Reason | None = None
    """Why the savepoint failed; None if it did not."""
    detail: str = field(default="", metadata=SPARSE)
    """The reason in words, for users."""
    stops: bool = field(default=False, metadata=SPARSE)
    """Whether the job stops with the savepoint: no epoch begins while it is made, and it completes in the swap that
    stops the job (semantics P2)."""
    drains: bool = field(default=False, metadata=SPARSE)
    """Whether `epoch` is the job's last one, in which the stages emit all rows that wait for later input (P2)."""
    next_whole: bool = field(default=False, metadata=SPARSE)
    """Whether the savepoint waits for any next epoch: the newest checkpoint, which holds `epoch`, has left out stages,
    and no epoch is under way (semantics T4, F6, P1)."""
    owing: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages that have still to read some of their input, which the savepoint holds as data in flight; only for an
    at-least-once job, or skipped stages (semantics B2, P1)."""
    window: WindowText | None = field(default=None, metadata=SPARSE)
    """The window of time that `epoch` has read, once `source` is known; None as in `PendingEntry`."""
    actor: str = field(default="", metadata=SPARSE)
    """The person who requested the savepoint from a page, so that the task that ends the epoch makes it. Empty if a
    task or a command requested it, which makes it itself."""

    @property
    def uri(self) -> str:
        """The savepoint's folder as a URI."""
        return f"{self.target}/{self.folder}"

    @property
    def ended(self) -> bool:
        """Whether the savepoint has completed or failed."""
        return self.status is not Status.PENDING

    @property
    def waits(self) -> bool:
        """Whether the checkpoint that the savepoint is made from has still to complete."""
        return self.status is Status.PENDING and self.source is None

    @property
    def waits_for_next(self) -> bool:
        """Whether the savepoint waits for an epoch that is not known yet."""
        return self.waits and self.next_whole


@dataclass(frozen=True, slots=True)
class JobOwner:
    """The DAG that makes the job's checkpoints, and its Airflow deployment (semantics W8)."""

    dag_id: str
    deployment: str = field(default="", metadata=SPARSE)
    """Name of the deployment; empty where it has none."""


MAX_FAILURES = 100
"""Failures whose times the head keeps, and so the largest number in a failure rate."""
