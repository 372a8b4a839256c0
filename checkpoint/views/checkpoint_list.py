"""Lists of jobs and checkpoints, from the store alone, as plain values (semantics O1, O2)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import asdict

from ...storage.older_pythons import StrEnum
from ...storage.port import ObjectStore
from ...storage.records import dataclass
from ..coordinator import Coordinator
from ..documents import layout
from ..documents.entries import (
    CompletedEntry,
    DeclinedRequest,
    EndedEntry,
    JobOwner,
    LateAck,
    PendingEntry,
    SavepointEntry,
    Slowest,
    Stopped,
    WaitingRequest,
)
from ..documents.head import Head
from ..documents.read_windows import WindowText
from ..documents.strict_json import Json
from ..errors import NoCheckpointError
from ..reasons import RequestKind, Status, cause_and_verdict
from ..rules import mirrors
from ..rules.mirrors import Lag
from ..store import acks
from ..store.head_store import heads_of

Entry = PendingEntry | CompletedEntry | EndedEntry

_MARKERS = ("acks", "declines", "handover")
"""Markers of a stage that has acknowledged, declined or begun: none of them changes the head."""

DURATIONS = 20
"""Number of newest completed checkpoints whose durations a job's row has."""


class Shown(StrEnum):
    """Displayed status of a checkpoint: Flink's statuses, and PAUSED for an attempt that a pause ended."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    PAUSED = "PAUSED"

    @classmethod
    def of(cls, status: Status, *, paused: bool = False) -> Shown:
        """Return the displayed status."""
        if paused:
            return cls.PAUSED
        return cls.IN_PROGRESS if status is Status.PENDING else cls(status.value)


class JobState(StrEnum):
    """Condition of a job, the most urgent first."""

    BROKEN = "broken"
    """The job's head cannot be read."""
    FAILED = "failed"
    """The job's newest attempt failed, and only a user or the next run can continue."""
    MOVED = "moved"
    """The job goes on in another storage, where its mirror was activated."""
    STOPPED = "stopped"
    STOPPING = "stopping"
    PAUSED = "paused"
    WAITING = "waiting"
    """Nothing is in progress: a request waits, or a failed attempt is followed by the next."""
    RUNNING = "in progress"
    IDLE = "idle"
    MIRROR = "mirror"
    """A mirror that nobody has activated."""
    NEW = "new"
    """The job has had no checkpoint."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job of a storage."""

    job: str
    problem: str | None = None
    """Why its head cannot be read; then all other fields have their defaults."""
    pending: tuple[int, ...] = ()
    latest_completed: int | None = None
    latest_run_id: str | None = None
    latest_input: WindowText | None = None
    """The window of time that this run reads; None: the run has no window, or the window is unknown."""
    latest_completed_at_ms: int | None = None
    triggered: int = 0
    completed: int = 0
    failed: int = 0
    restored: int = 0
    owner: JobOwner | None = None
    """The DAG that makes its checkpoints, and its deployment (semantics W8); None: none is recorded."""
    state: JobState = JobState.BROKEN
    failed_since: int = 0
    """Attempts that have failed since the newest completed checkpoint, as far as the history remembers them."""
    failed_checkpoint: int | None = None
    """The newest of these attempts."""
    failure: str | None = None
    """Why that attempt failed."""
    running_attempt: int | None = None
    """Attempt number of the newest pending checkpoint; None: no checkpoint is pending."""
    running_since_ms: int | None = None
    """Time of its trigger."""
    due_at_ms: int | None = None
    """Time since which the oldest requested input waits for a checkpoint; None: none waits."""
    savepoint_at_ms: int | None = None
    """Time when the newest savepoint that the job remembers completed."""
    durations_ms: tuple[int, ...] = ()
    """Durations of the last completed checkpoints, oldest first; `DURATIONS` at most."""
    mirrors: tuple[Lag, ...] = ()
    """Lag of each mirror of the job."""
    mirror_of: str | None = None
    """The storage whose job this one mirrors, or mirrored until it was activated."""
    moved_to: str | None = None
    """The storage in which the job goes on."""

    @property
    def usual_ms(self) -> int | None:
        """The median of the durations; None where nothing has completed."""
        return sorted(self.durations_ms)[len(self.durations_ms) // 2] if self.durations_ms else None

    def as_json(self) -> dict[str, Json]:
        """Give the view as plain JSON values; every field is there, None where nothing is known."""
        return {**asdict(self), "usual_ms": self.usual_ms}


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """One checkpoint of a job."""

    id: int
    run_id: str
    """The DAG run whose epoch it is."""
    kind: RequestKind | None
    """Kind of the request; None where the head no longer knows."""
    attempt: int
    status: Status
    reason: str | None
    detail: str
    acks: int
    """Number of stages that acknowledged before the checkpoint ended; so far, while it is pending."""
    stages: int
    """Number of stages that must acknowledge."""
    subtasks: int | None
    """Number of subtasks that acknowledged; None unless the checkpoint is completed and in the history."""
    size_bytes: int
    new_bytes: int | None
    """Bytes of the files that its own executions wrote (incremental size); None as `subtasks`."""
    slowest: Slowest | None
    """The slowest stage; None as `subtasks`."""
    triggered_at_ms: int
    ended_at_ms: int | None
    restored_from: int | None
    retained: bool
    """Whether the checkpoint can be restored."""
    savepoint: str | None = None
    """Folder of the savepoint that was copied as this checkpoint (semantics R6)."""
    savepoint_job: str | None = None
    savepoint_checkpoint: int | None = None
    """The checkpoint of which the savepoint was taken."""
    left_out: tuple[str, ...] = ()
    """Stages that it completed without (semantics B3, F6)."""
    others: tuple[str, ...] = ()
    """Other stages that had failed when it ended, besides the one in `detail`."""
    restarted: tuple[str, ...] = ()
    """Stages that had begun in it and run again in the attempt after it (semantics F1)."""
    rewound_to: int | None = None
    """Checkpoint to which the job was rewound, so that this one no longer counts."""
    restarts: int = 0
    """Consecutive restarts of the epoch when this attempt began (semantics F4)."""
    restarts_left: int | None = None
    """Restarts that a pending checkpoint's epoch has left; None: any number."""
    for_good: bool = False
    """Whether a stage failed permanently: only a user can start another try (semantics F4)."""
    left_behind: bool = False
    """Whether its files are deleted because too many later runs have ended."""
    savepoints: tuple[int, ...] = ()
    """Ids of the savepoints that were taken of it, as far as the job remembers them (semantics P1)."""
    late: tuple[LateAck, ...] = ()
    """Stages that began in a failed checkpoint and acknowledged after it had failed, with their metrics."""
    input: WindowText | None = None
    """The window of time that the run reads; None: the run has no window, or the window is unknown."""
    paused: bool = False
    """Whether a pause of the DAG has ended it (S1)."""
    goes_on: bool = False
    """Whether the run continues by itself with another attempt; not if the job was stopped during a pause."""

    @property
    def said(self) -> Shown:
        """The displayed status."""
        return Shown.of(self.status, paused=self.paused)

    @property
    def failed(self) -> bool:
        """Whether the checkpoint failed; one that a pause has ended did not."""
        return self.status is Status.FAILED and not self.paused

    @property
    def duration_ms(self) -> int | None:
        """From the trigger to the end; None while it is pending."""
        return None if self.ended_at_ms is None else self.ended_at_ms - self.triggered_at_ms

    def as_json(self) -> dict[str, Json]:
        """Give the view as plain JSON values; every field is there, None where nothing is known."""
        return {**asdict(self), "duration_ms": self.duration_ms}


def jobs(store: ObjectStore) -> Iterator[JobRow]:
    """Yield the jobs of a storage in order; a job with an unreadable head has a `problem`."""
    for name, head in heads_of(store):
        yield job_row(head) if isinstance(head, Head) else JobRow(name, problem=str(head))


@dataclass(frozen=True, slots=True)
class Listing:
    """A job's checkpoints, and the requests that wait or were declined, at one moment."""

    job: str
    checkpoints: tuple[CheckpointRow, ...]
    """Newest first: pending, retained, and the bounded history."""
    waiting: tuple[WaitingRequest, ...]
    """In the order of admission (semantics T2)."""
    stopped: Stopped | None
    """Why the job refuses requests; None: it accepts them (semantics S1)."""
    declined: tuple[DeclinedRequest, ...] = ()
    """The last requests that were declined, newest first (semantics T1)."""
    stopping: SavepointEntry | None = None
    """The savepoint with which the job is being stopped (semantics P2)."""

    def as_json(self, *, limit: int) -> dict[str, Json]:
        """Give the view as plain JSON values.

        Args:
            limit: how many checkpoints to give, and how many requests that wait.
        """
        return {
            "job": self.job,
            "stopped": self.stopped,
            "stopping": self.stopping.id if self.stopping else None,
            "checkpoints": [row.as_json() for row in self.checkpoints[:limit]],
            "checkpoints_left_out": max(0, len(self.checkpoints) - limit),
            "waiting": [
                {
                    "run_id": layout.run_id_of(each.epoch),
                    "input": window_json(each.window),
                    "kind": each.kind,
                    "requested_at_ms": each.requested_at_ms,
                }
                for each in self.waiting[:limit]
            ],
            "waiting_left_out": max(0, len(self.waiting) - limit),
            "declined": [
                {
                    "run_id": layout.run_id_of(each.epoch),
                    "input": window_json(each.window),
                    "kind": each.kind,
                    "declined_at_ms": each.at_ms,
                    "reason": each.reason,
                    "detail": each.detail,
                }
                for each in self.declined
            ],
        }


def window_json(window: WindowText | None) -> dict[str, Json] | None:
    """Return a window as plain JSON values."""
    return None if window is None else asdict(window)


def listing(coordinator: Coordinator) -> Listing:
    """Give every checkpoint that the job's head knows, the requests that wait, and whether the job is stopped."""

    def look(head: Head) -> Listing:
        known = _known(head)
        rows = (row_of(coordinator, head, known[checkpoint]) for checkpoint in sorted(known, reverse=True))
        return Listing(head.job, tuple(rows), head.waiting, head.stopped, head.declined[::-1], head.stopping())

    return coordinator.observe(look)


def checkpoints(coordinator: Coordinator) -> list[CheckpointRow]:
    """Give every checkpoint that the job's head knows, newest first: pending, retained, and the bounded history."""
    return list(listing(coordinator).checkpoints)


def pulse(coordinator: Coordinator, checkpoint: int | None = None) -> Hashable:
    """Return a value that changes with each change of a job's checkpoints, at less cost than a listing.

    The value holds the head's revision, and which stages of pending checkpoints began, acknowledged or declined.

    Args:
        coordinator: of the job.
        checkpoint: the only one whose markers are looked at; all by default.
    """

    def look(head: Head) -> Hashable:
        marked = []
        for entry in head.pending:
            document = coordinator.pending_document(entry) if checkpoint in (None, entry.id) else None
            if document is not None:
                marked += [acks.marked(coordinator.files, document.executions, kind) for kind in _MARKERS]
        return (head.revision, *marked)

    return coordinator.observe(look)


def entry_of(head: Head, checkpoint: int | None) -> Entry:
    """Find a checkpoint in the head; None for the newest.

    Raises:
        NoCheckpointError: the head does not know that id, or has no checkpoint yet.
    """
    known = _known(head)
    if checkpoint is None:
        if not known:
            raise NoCheckpointError("the job has no checkpoint yet", job=head.job)
        return known[max(known)]
    if checkpoint not in known:
        raise NoCheckpointError(
            "the job has no such checkpoint, or has forgotten it",
            job=head.job,
            checkpoint=checkpoint,
            known=", ".join(str(each) for each in sorted(known, reverse=True)[:20]) or "none",
        )
    return known[checkpoint]


def newest_of(head: Head, epoch: str, *, after: int) -> int | None:
    """Find the newest checkpoint of an epoch that is newer than another; None where the head knows none."""
    return max((entry.id for entry in _known(head).values() if entry.epoch == epoch and entry.id > after), default=None)


def _known(head: Head) -> dict[int, Entry]:
    entries: list[Entry] = [*head.completed, *head.history, *head.pending]
    return {entry.id: entry for entry in entries}


def said_of(entry: Entry) -> Shown:
    """Return the status of a checkpoint, as a person reads it."""
    if isinstance(entry, EndedEntry):
        return Shown.of(entry.status, paused=entry.by_pause)
    return Shown.IN_PROGRESS if isinstance(entry, PendingEntry) else Shown.COMPLETED


def row_of(coordinator: Coordinator, head: Head, entry: Entry) -> CheckpointRow:
    """Describe a checkpoint in a row; for a pending one this lists its markers."""
    if isinstance(entry, PendingEntry):
        status, acknowledged, stages, size_bytes, ended_at_ms = Status.PENDING, 0, entry.stages, 0, None
        document = coordinator.pending_document(entry)
        if document is not None:
            acknowledged = len(acks.marked(coordinator.files, document.executions, "acks"))
    elif isinstance(entry, CompletedEntry):
        status, acknowledged, stages = Status.COMPLETED, entry.acks, entry.acks + len(entry.left_out)
        size_bytes, ended_at_ms = entry.size_bytes, entry.completed_at_ms
    else:
        status, acknowledged, stages = entry.status, entry.acks, entry.stages
        size_bytes, ended_at_ms = entry.size_bytes, entry.ended_at_ms
    ended = entry if isinstance(entry, EndedEntry) else None
    rewind = head.rewind_of(entry.id) if status is Status.COMPLETED else None
    done = ended if status is Status.COMPLETED else None
    came_from = head.import_of(entry.id)
    origin = came_from.origin if came_from else None
    return CheckpointRow(
        id=entry.id,
        run_id=layout.run_id_of(entry.epoch),
        kind=None if isinstance(entry, CompletedEntry) else entry.kind,
        attempt=entry.attempt,
        status=status,
        reason=ended.reason if ended else None,
        detail=ended.detail if ended else "",
        others=ended.others if ended else (),
        restarted=ended.restarted if ended else (),
        acks=acknowledged,
        stages=stages,
        subtasks=done.subtasks if done else None,
        size_bytes=size_bytes,
        new_bytes=done.new_bytes if done else None,
        slowest=done.slowest if done else None,
        triggered_at_ms=entry.triggered_at_ms,
        ended_at_ms=ended_at_ms,
        restored_from=entry.restored_from,
        retained=head.completed_by_id(entry.id) is not None,
        savepoint=origin.uri if origin else None,
        savepoint_job=origin.job if origin else None,
        savepoint_checkpoint=origin.checkpoint if origin else None,
        left_out=head.left_out_of(entry.id),
        rewound_to=rewind.to if rewind else None,
        restarts=0 if isinstance(entry, CompletedEntry) else entry.restarts,
        restarts_left=entry.restarts_left if isinstance(entry, PendingEntry) else None,
        for_good=ended.for_good if ended else False,
        left_behind=ended.left_behind if ended else False,
        late=ended.late if ended else (),
        input=entry.window,
        paused=ended.by_pause if ended else False,
        goes_on=ended.tolerated if ended else False,
        savepoints=tuple(
            saved.id
            for saved in head.savepoints
            if saved.status is Status.COMPLETED and saved.source is not None and saved.source.checkpoint == entry.id
        ),
    )


def job_row(head: Head) -> JobRow:
    """Describe a job in a row, from its head alone."""
    latest = head.latest_completed()
    running = max(head.pending, key=lambda entry: entry.id, default=None)
    saved = [entry.ended_at_ms for entry in head.savepoints if entry.status is Status.COMPLETED]
    failed = _failed_since(head)
    done = [entry for entry in head.history if entry.status is Status.COMPLETED and head.rewind_of(entry.id) is None]
    return JobRow(
        job=head.job,
        pending=tuple(entry.id for entry in head.pending),
        latest_completed=latest.id if latest else None,
        latest_run_id=layout.run_id_of(latest.epoch) if latest else None,
        latest_input=latest.window if latest else None,
        latest_completed_at_ms=latest.completed_at_ms if latest else None,
        triggered=head.counters.triggered,
        completed=head.counters.completed,
        failed=head.counters.failed,
        restored=head.counters.restored,
        owner=head.owner,
        state=_state(head),
        failed_since=len(failed),
        failed_checkpoint=failed[-1].id if failed else None,
        failure=(cause_and_verdict(failed[-1].detail)[0] or failed[-1].reason) if failed else None,
        running_attempt=running.attempt if running else None,
        running_since_ms=running.triggered_at_ms if running else None,
        due_at_ms=_due_at_ms(head),
        savepoint_at_ms=max(saved, default=None),
        durations_ms=tuple(entry.ended_at_ms - entry.triggered_at_ms for entry in done[-DURATIONS:]),
        mirrors=mirrors.lags(head),
        mirror_of=head.mirror_of.uri if head.mirror_of else None,
        moved_to=head.moved.uri if head.moved else None,
    )


def _ended_since(head: Head) -> list[EndedEntry]:
    """Return the attempts that failed, or that a pause ended, since the newest completed checkpoint."""
    latest = head.latest_id() or 0
    return [
        entry
        for entry in head.history
        if entry.status is Status.FAILED and entry.id > latest and head.rewind_of(entry.id) is None
    ]


def _failed_since(head: Head) -> list[EndedEntry]:
    """Return the attempts that failed since the newest completed checkpoint."""
    return [entry for entry in _ended_since(head) if not entry.by_pause]


def _state(head: Head) -> JobState:
    if head.moved is not None:
        return JobState.MOVED
    if head.is_mirror:
        return JobState.MIRROR
    if head.stopped is not None:
        return JobState.PAUSED if head.stopped is Stopped.PAUSED else JobState.STOPPED
    if head.stopping() is not None:
        return JobState.STOPPING
    if head.pending:
        return JobState.RUNNING
    failed = _failed_since(head)
    if head.waiting or (failed and failed[-1].tolerated):
        return JobState.WAITING
    if failed:
        return JobState.FAILED
    return JobState.IDLE if head.completed or head.history else JobState.NEW


def _due_at_ms(head: Head) -> int | None:
    """Return the time since which the oldest requested input waits for a checkpoint.

    The time is the earlier of the window's end and the request.
    """
    begun: list[EndedEntry | PendingEntry] = [*_ended_since(head), *head.pending]
    asked = [(entry.window, entry.triggered_at_ms) for entry in begun]
    asked += [(entry.window, entry.requested_at_ms) for entry in head.waiting]
    ends = (round(window.window.end.timestamp() * 1000) for window, _ in asked if window is not None)
    return min((*ends, *(at_ms for _, at_ms in asked)), default=None)
