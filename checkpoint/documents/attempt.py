"""Documents of an attempt: its input, its expected stages, its handovers, and its hooks' answers.

They are created once and, but for a handover's claimant, never change. Keys in them are relative to the job's prefix
(semantics W5).
"""

from __future__ import annotations

import hashlib
from dataclasses import field
from datetime import datetime, timedelta, timezone
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...storage.names import shorten
from ...storage.older_pythons import StrEnum, moment_of
from ...storage.records import dataclass
from ..errors import InvalidStateError
from . import codec
from .codec import AtLeast, Attempt, CheckpointId, Count, Epoch, HookName, Job, Key, ListenerName, Stage, Token
from .layout import run_id_of
from .programs import Program
from .read_windows import NOTHING_READ, ReadWindow, ReadWindows, WindowText, text_of, window_of
from .strict_json import SPARSE, Json
from .unread import Unread, may_hold, one_of

MAX_SLICE_BYTES = 768 * 1024
"""Largest size of an epoch's input, positions and stages together, as JSON; leaves room for the rest of a document."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The fixed input of an epoch (semantics T8): a half-open window of time, and the author's own facts."""

    start: str | None = None
    """ISO 8601 with offset; the first moment that belongs to the slice. None: no window."""
    end: str | None = None
    """ISO 8601 with offset; the first moment after the slice. None: no window."""
    detail: dict[str, Json] = field(default_factory=dict)
    """JSON that the DAG's author gave at the first trigger (a file list, offsets)."""
    sources: dict[str, Json] | None = None
    """Input of each source in this epoch, by the source's name; fixed at the first trigger."""
    positions: dict[str, Json] | None = None
    """Position of each source after this epoch, by the source's name."""
    base: int | None = None
    """The completed checkpoint that `positions` belong to; 0: none had completed; None: the job has no sources."""
    source_window: bool = field(default=False, metadata=SPARSE)
    """Whether a source has chosen the window; otherwise it is the run's, and sources may have read other input."""
    again: bool = field(default=False, metadata=SPARSE)
    """Whether the run's conf asks to read the window although the job has read some of it."""

    def dates(self, zone: str) -> tuple[str, str]:
        """Give the window as dates of a time zone, `2026-01-01`: the first day in it, and the first day after it.

        Args:
            zone: IANA name of the schedule's time zone, such as `Europe/Berlin`.

        Raises:
            InvalidStateError: there is no such zone or no window, or a bound is not the beginning of a day there.
        """
        return _date_of("start", self.start, zone), _date_of("end", self.end, zone)


def moment_in_slice(name: str, text: str) -> datetime:
    """Parse a bound of a slice, which an author's source may have set.

    Raises:
        InvalidStateError: the text is not a moment of time.
    """
    try:
        return moment_of(text)
    except ValueError as error:
        raise InvalidStateError(
            f"the {name} of the slice is not a moment: a source has to give its window in ISO 8601, with offset",
            **{name: shorten(text)},
        ) from error


def _date_of(name: str, text: str | None, zone: str) -> str:
    try:
        # UTC is known even without a database of time zones.
        at = timezone.utc if zone == "UTC" else ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise InvalidStateError(
            "this is not a time zone that Python knows here: write one such as 'Europe/Berlin'; where a machine has no "
            "time zones, install the package tzdata there",
            zone=shorten(zone),
        ) from error
    if text is None:
        raise InvalidStateError(f"the slice has no {name}, so it has no dates")
    moment = moment_in_slice(name, text)
    day = moment.astimezone(at).date()
    # A day may begin at 01:00, if the clock is put forward at midnight; the moment before belongs to another day.
    if (moment - timedelta(microseconds=1)).astimezone(at).date() == day:
        raise InvalidStateError(
            f"the slice does not consist of whole days in {zone}: its {name} is not a beginning of a day there. Give "
            "the time zone of the schedule, or compare moments with slice.start and slice.end",
            **{name: text},
        )
    return day.isoformat()


@dataclass(frozen=True, slots=True)
class EpochDocument:
    """`epochs/<epoch>.json`: written at the epoch's first trigger, read by every attempt (semantics T8)."""

    job: Job
    epoch: Epoch
    slice: Slice


@dataclass(frozen=True, slots=True)
class EpochCompletedDocument:
    """`epochs/completed/<epoch>.json`: version 0.1's note that an epoch completed; read, but no longer written."""

    job: Job
    epoch: Epoch
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class Owner:
    """The DAG run that the epoch belongs to."""

    dag_id: str
    run_id: str
    deployment: str = field(default="", metadata=SPARSE)
    """The Airflow deployment that runs it; empty where that has no name (semantics W8)."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One stage of the job as the DAG declares it."""

    uid: Stage
    upstream: tuple[Stage, ...] = ()
    """Stages whose outputs of this epoch the stage reads directly."""
    parallelism: Annotated[int, AtLeast(1)] | None = None
    """Number of subtasks that must acknowledge; None: as many as the stage reports."""
    max_parallelism: Annotated[int, AtLeast(1)] | None = None
    """The highest parallelism at which the stage can be restored (semantics R4); None: derived, or that of its
    state."""
    pipelined: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Stages of `upstream` that are read by a pipelined exchange, so that neither side runs again without the other
    (semantics F1). All others are blocking."""
    member_of: Stage | None = None
    """Common name of the stages of one mapped task: a reader of that name reads them all, in order."""


@dataclass(frozen=True, slots=True)
class AttemptRef(Unread):
    """Identity of one attempt. Records of an attempt inherit these fields, so their JSON has them beside its own."""

    checkpoint: CheckpointId
    """In a stage's record: the home of its execution, the checkpoint that was pending when the execution started."""
    epoch: Epoch
    attempt: Attempt
    token: Token
    """Token in the names of the attempt's documents; in a stage's record, the token of its execution."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a stage: the unit that a token fences (semantics W4)."""

    token: Token
    home: CheckpointId
    """The checkpoint in whose folder the execution writes and acknowledges; an older one if it was carried over
    (F2)."""
    attempt: Attempt
    """The epoch's attempt that started it."""


def execution_token(attempt: str, stage: str) -> str:
    """Derive the token of an execution from the token of the attempt that starts it.

    So the head alone tells whether the pending attempt has started an execution. Attempts' tokens are random and never
    used again, and so are these.
    """
    return hashlib.sha256(f"{attempt}/{stage}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """Key, size and hash of another document."""

    key: Key
    size_bytes: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class RestorePointer:
    """The completed checkpoint that an attempt starts from."""

    checkpoint: CheckpointId
    metadata: DocumentRef


@dataclass(frozen=True, slots=True)
class ReplayedEpoch:
    """An epoch whose checkpoint was damaged: an attempt reads its input again, before its own."""

    epoch: Epoch
    slice: Slice


@dataclass(frozen=True, slots=True)
class BacklogEpoch:
    """Input of an epoch that a stage has still to read, because the checkpoint completed without the stage (B3, F6).

    In at-least-once mode the checkpoint may also complete before the stage has read all its upstreams (B2): then the
    stage has read the slice, and only `inputs` are left.

    The exchanges of the executions in `inputs` are data in flight: the metadata of the restored checkpoint holds them,
    with an `InFlightLine` for each execution.
    """

    epoch: Epoch
    slice: Slice | None = None
    """None: the stage took part, and has read the slice."""
    inputs: dict[Stage, Execution] = field(default_factory=dict, metadata=SPARSE)
    """Executions whose output of this epoch is still to be read, by upstream. An upstream that was left out too is
    missing: its later output covers this epoch."""


MAX_BACKLOG_BYTES = 256 * 1024
"""Largest size of the backlogs of all stages together, as JSON; a document has room for 1 MiB."""


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Rule by which an attempt may complete without some stages (semantics B3, F6)."""

    alignment_timeout_ms: Count | None = None
    """Milliseconds after the trigger from which on lagging stages may be left out; None: never."""
    max_backlog: Count = 0
    """Largest number of epochs in the backlog of a lagging stage."""
    max_failure_ratio: float | None = None
    """Largest ratio of failed regions to all regions; None: no region may fail."""
    max_consecutive_failures: Count = 0
    """Checkpoints in a row that may complete although a region failed."""


class RestartKind(StrEnum):
    """Flink's restart strategies (semantics F4)."""

    NONE = "none"
    FIXED_DELAY = "fixed-delay"
    EXPONENTIAL_DELAY = "exponential-delay"
    FAILURE_RATE = "failure-rate"


@dataclass(frozen=True, slots=True)
class RestartRule:
    """A job's restart strategy with its options (semantics F4)."""

    kind: RestartKind
    attempts: Count | None = None
    """Restarts, or failures in an interval, before the job fails; None: no limit, or no restarts for `none`."""
    delay_ms: Count = field(default=0, metadata=SPARSE)
    """Delay from a failure to the restart; the first delay, if it grows."""
    max_delay_ms: Count = field(default=0, metadata=SPARSE)
    """Longest delay, if it grows."""
    multiplier: float = field(default=0.0, metadata=SPARSE)
    """Factor by which the delay grows."""
    jitter: float = field(default=0.0, metadata=SPARSE)
    """Random part of the delay, 0 to 1."""
    interval_ms: Count = field(default=0, metadata=SPARSE)
    """Interval of a failure rate; for a growing delay, the quiet time after which it is reset."""


@dataclass(frozen=True, slots=True)
class RestartMemory:
    """The head's memory of failed tries over all epochs, for strategies that look beyond one epoch (semantics F4)."""

    times_ms: tuple[Count, ...] = ()
    """Times of failures, oldest first, milliseconds since 1970 UTC; as many as the strategy needs."""
    delay_ms: Count = field(default=0, metadata=SPARSE)
    """The last delay. At its end the incident ends and the quiet time begins."""
    in_a_row: Count = field(default=0, metadata=SPARSE)
    """Failures since the last quiet time."""
    server: Token = field(default="", metadata=SPARSE)
    """Nonce of the Spark server whose end was the last one that counted as a failure; empty: none (semantics V4)."""
    refused_ms: Count = field(default=0, metadata=SPARSE)
    """Time of the first try that failed because the store refused or did not answer, milliseconds since 1970 UTC; 0:
    none. A checkpoint that has completed since then ends the outage (semantics F4)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The options of the job that an attempt was opened with; the next attempt takes them over."""

    timeout_ms: Annotated[int, AtLeast(1)]
    retained: Annotated[int, AtLeast(1)]
    max_concurrent: Annotated[int, AtLeast(1)] = 1
    tolerable: Annotated[int, AtLeast(0)] = 0
    """Counted failures in a row that the job tolerates (semantics D5)."""
    leave_out: LeaveOut | None = None
    """None: every stage must acknowledge."""
    at_least_once: bool = field(default=False, metadata=SPARSE)
    """Whether a stage reads only upstream output that is acknowledged when it begins, and the rest later (B2)."""
    restart: RestartRule | None = None
    """None: another try may follow each failed one, as Airflow's retries allow (semantics F4)."""
    full_failover: bool = field(default=False, metadata=SPARSE)
    """Whether every stage that has begun runs again after a failure (semantics F1)."""


@dataclass(frozen=True, slots=True)
class HooksRef:
    """The master hooks of an attempt, and the place of their answers (semantics T7)."""

    names: tuple[HookName, ...]
    """Names of the hooks, in the order in which they are asked."""
    home: CheckpointId
    """The checkpoint in whose folder the answers are; an older one if they were carried over."""
    token: Token


@dataclass(frozen=True, slots=True)
class PendingDocument(AttemptRef):
    """`chk-<id>/pending-<token>.json`: one attempt of an epoch, with the stages that it expects."""

    UNREAD = ("executions", "stages")

    job: Job
    slice: Slice
    stages: tuple[StageSpec, ...]
    executions: dict[Stage, Execution]
    limits: Limits
    restore: RestorePointer | None = None
    replay: tuple[ReplayedEpoch, ...] = ()
    owner: Owner | None = None
    cause: str = ""
    """Why this attempt was opened, for users to read: the failure of the one before."""
    listeners: tuple[ListenerName, ...] = ()
    """Listeners to notify of the attempt's end (semantics C4, D4)."""
    max_parallelism: dict[Stage, Attempt] = field(default_factory=dict, metadata=SPARSE)
    """The highest parallelism for a restore, of each stage that names a parallelism (semantics R4)."""
    hooks: HooksRef | None = None
    """Master hooks that have to answer before a stage begins; None: no hooks (semantics T7, C1)."""
    backlogs: dict[Stage, tuple[BacklogEpoch, ...]] = field(default_factory=dict, metadata=SPARSE)
    """Backlog in the restored checkpoint by stage: epochs still to be read, oldest first (B2, B3, F6)."""
    restarted: dict[Stage, str] = field(default_factory=dict, metadata=SPARSE)
    """Stages that had begun in an earlier attempt and have to run again in this one, each with the task that held it
    last, the claimant of its handover (semantics F1, F2). The text is empty for a stage that had failed by itself:
    Airflow retries its task."""

    read: ReadWindows = field(default=NOTHING_READ, metadata=SPARSE)
    """Windows that the job will have read when this attempt completes: those of the restored state, and the epoch's own
    (T8)."""
    draining: bool = field(default=False, metadata=SPARSE)
    """Whether this is the job's last epoch, so that the stages emit all rows that wait for later input (P2)."""

    @property
    def hook_names(self) -> tuple[str, ...]:
        """The master hooks that have to answer."""
        return self.hooks.names if self.hooks else ()

    def stage(self, uid: str) -> StageSpec | None:
        """Give a stage by uid, None if the checkpoint does not expect it; an unread document is not read as a whole."""
        found = one_of(self, "stages", b'"uid":%b' % codec.text_of(uid), StageSpec)
        return found or next((stage for stage in self.stages if stage.uid == uid), None)

    @property
    def members(self) -> tuple[StageSpec, ...]:
        """The stages of mapped tasks; the stages of a document without any are not read."""
        if not may_hold(self, "stages", b'"member_of":'):
            return ()
        return tuple(stage for stage in self.stages if stage.member_of is not None)

    def execution(self, uid: str) -> Execution | None:
        """Give the execution of a stage, None if the checkpoint does not expect it; see `stage`."""
        return one_of(self, "executions", b"%b:{" % codec.text_of(uid), Execution) or self.executions.get(uid)


@dataclass(frozen=True, slots=True)
class StageRef(AttemptRef):
    """One execution of a stage, by its home, its token, and the attempt that started it."""

    job: Job
    stage: Stage

    @property
    def execution(self) -> Execution:
        """The stage's execution."""
        return Execution(self.token, self.checkpoint, self.attempt)


@dataclass(frozen=True, slots=True)
class Handover(StageRef):
    """`chk-<id>/handover/<stage>/<token>.json`: the operator's message to the application, and the claim to submit it.

    Created once. Only the claimant changes: when a later try takes over a driver that lives on, and when a later try
    finds that the stage has acknowledged (semantics F5).
    """

    claimant: str
    """Id of the Airflow task instance, one per try, that may submit, has taken over the driver, or was the last to run
    the task after the stage had acknowledged."""
    slice: Slice
    restore: RestorePointer | None = None
    replay: tuple[ReplayedEpoch, ...] = ()
    upstream: dict[Stage, Execution] = field(default_factory=dict)
    parallelism: Annotated[int, AtLeast(1)] | None = None
    backlog: tuple[BacklogEpoch, ...] = field(default=(), metadata=SPARSE)
    """Epochs that the stage has still to read, oldest first, before `replay` and the epoch's own (B2, B3, F6)."""
    at_least_once: bool = field(default=False, metadata=SPARSE)
    """Whether the stage reads only upstream output that is acknowledged when it begins (semantics B2)."""
    hooks: HooksRef | None = None
    """Place of the master hooks' answers; None: the job has no hooks."""
    members: dict[Stage, tuple[Stage, ...]] = field(default_factory=dict, metadata=SPARSE)
    """Upstreams by their common name, in the order in which they are read."""
    durable: bool = field(default=False, metadata=SPARSE)
    """Whether the driver may outlive its task, and can be found again: a later try looks for it first (F5)."""
    draining: bool = field(default=False, metadata=SPARSE)
    """Whether no epoch comes after this one (semantics P2)."""
    adopted: bool = field(default=False, metadata=SPARSE)
    """Whether the claimant has taken over the driver of an earlier try, and so submits nothing."""
    max_parallelism: Annotated[int, AtLeast(1)] | None = field(default=None, metadata=SPARSE)
    """The highest parallelism at which the stage can be restored; None: it names no parallelism (semantics R4)."""
    try_number: Annotated[int, AtLeast(0)] = field(default=0, metadata=SPARSE)
    """The claimant's try number, which Airflow counts on over retries and clears; 0: unknown (F5)."""
    program: Program | None = field(default=None, metadata=SPARSE)
    """Outputs of a program without an `Epoch` block, as the DAG declared them at the claim; None: the driver itself
    acknowledges (decision 0058)."""


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """Answer of a master hook; a hook that answered None has none."""

    name: HookName
    value: Json = None
    """The answer as JSON; None where the answer is bytes."""
    data: str | None = None
    """The answer's bytes in base64; None where the answer is JSON."""


@dataclass(frozen=True, slots=True)
class HookAnswersDocument:
    """`chk-<home>/hooks-<token>.json`: created once, when all master hooks have answered (semantics T7)."""

    job: Job
    checkpoint: CheckpointId
    """The checkpoint in whose folder the document is."""
    token: Token
    hooks: tuple[HookName, ...]
    """Hooks that were asked."""
    answers: tuple[HookAnswer, ...] = ()


# Texts for users. In Airflow 3 the id of a scheduled run names the end of its data interval. So wherever a run's id is
# shown, the window is shown beside it, and a user who needs the run's start date reads the right one (semantics T8).


def run_text(run_id: str, window: ReadWindow | WindowText | None) -> str:
    """Name a run, with the window that its epoch reads if that is known."""
    if window is None:
        return run_id
    return f"{run_id} (input {(window.window if isinstance(window, WindowText) else window).short})"


def run_of_slice(epoch: str, slice_: Slice) -> str:
    """Name the run of an epoch whose slice is known."""
    return run_text(run_id_of(epoch), window_read_by(slice_))


def window_read_by(slice_: Slice) -> ReadWindow | None:
    """Give an epoch's window; None where a source chooses other input, or the epoch reads no window."""
    if slice_.source_window:
        return window_of(slice_.start, slice_.end)
    # A savepoint keeps the positions of the sources, but not the input of its last epoch.
    if slice_.sources or slice_.positions or slice_.start is None:
        return None
    return window_of(slice_.start, slice_.end)


def window_text(slice_: Slice) -> WindowText | None:
    """Give an epoch's window as a document has it; None as for `window_read_by`."""
    window = window_read_by(slice_)
    return None if window is None else text_of(window)
