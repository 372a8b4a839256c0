"""The documents of a job other than the head: what is expected, acknowledged, declined and handed over.

All are made once and never changed. Keys in them are relative to the job's prefix (semantics W5).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...storage.iso8601 import moment_of
from ...storage.names import shorten
from ...storage.str_enum import StrEnum
from ..errors import InvalidStateError
from .fields import AtLeast, Attempt, CheckpointId, Count, Epoch, HookName, Job, Key, ListenerName, Stage, Token
from .read_windows import NOTHING_READ, ReadWindows
from .strict_json import SPARSE, Json


@dataclass(frozen=True, slots=True)
class Slice:
    """The fixed input of an epoch (semantics T8): a half-open window of time, and whatever else the author fixed."""

    start: str | None = None
    """ISO 8601 with offset; the first moment that belongs to the slice. None: no window."""
    end: str | None = None
    """ISO 8601 with offset; the first moment after the slice. None: no window."""
    detail: dict[str, Json] = field(default_factory=dict)
    """What the DAG author put in at the first trigger (file list, offsets); JSON."""
    sources: dict[str, Json] | None = None
    """What each source reads in this epoch, by its name; fixed at the first trigger."""
    positions: dict[str, Json] | None = None
    """What each source has read up to and including this epoch, by its name."""
    base: int | None = None
    """The completed checkpoint that `positions` belong to, 0 for none at all; None: the job has no sources."""
    source_window: bool = field(default=False, metadata=SPARSE)
    """Whether a source has chosen the window; else it is the run's, and a job with sources may have read otherwise."""
    again: bool = field(default=False, metadata=SPARSE)
    """Whether the window is read although the job has read some of it, as the run's conf has asked."""

    def dates(self, zone: str) -> tuple[str, str]:
        """Give the window as dates of a time zone, `2026-01-01`: the first day in it, and the first day after it.

        Args:
            zone: its IANA name, such as `Europe/Berlin`; that of the schedule.

        Raises:
            InvalidStateError: there is no such zone or no window, or a bound is not where a day of the zone begins.
        """
        return _date_of("start", self.start, zone), _date_of("end", self.end, zone)


def _date_of(name: str, text: str | None, zone: str) -> str:
    try:
        at = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise InvalidStateError(
            "this is no time zone that Python knows here: write one such as 'Europe/Berlin'; where a machine has no "
            "time zones, install the package tzdata there",
            zone=shorten(zone),
        ) from error
    if text is None:
        raise InvalidStateError(f"the slice has no {name}, so it has no dates")
    moment = moment_of(text)
    day = moment.astimezone(at).date()
    # A day may begin at 01:00, where the clock is put on at midnight; what lies before it is another day all the same.
    if (moment - timedelta(microseconds=1)).astimezone(at).date() == day:
        raise InvalidStateError(
            f"the slice does not consist of whole days in {zone}: its {name} is no beginning of a day there. Give the "
            "time zone of the schedule, or compare moments with slice.start and slice.end",
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
    """`epochs/completed/<epoch>.json`: version 0.1's note that an epoch completed; read, and no longer written."""

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
    """Stages whose outputs of this epoch it reads, directly."""
    parallelism: Annotated[int, AtLeast(1)] | None = None
    """Subtasks that must acknowledge; None: as many as the stage says."""
    max_parallelism: Annotated[int, AtLeast(1)] | None = None
    """The highest that it will ever be restored at (semantics R4); None: derived, or what its state was made with."""
    pipelined: tuple[Stage, ...] = field(default=(), metadata=SPARSE)
    """Those of `upstream` from which it reads by a pipelined exchange, so that neither runs again without the other
    (semantics F1). All others are blocking."""
    member_of: Stage | None = None
    """What the stages of one mapped task are called together: a reader of that name reads them all, in order."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One running of one stage: the unit that a token fences (semantics W4)."""

    token: Token
    home: CheckpointId
    """The checkpoint in whose folder it writes and acknowledges; an older one if it was carried over (F2)."""
    attempt: Attempt
    """The epoch's attempt that started it."""


def execution_token(attempt: str, stage: str) -> str:
    """Give the token of an execution that an attempt starts.

    It follows from the attempt's own token, so that the head alone tells whether an execution is the pending attempt's.
    Attempts' tokens are random and never used again, and so are these.
    """
    return hashlib.sha256(f"{attempt}/{stage}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """Another document, and how to know that it is still the same."""

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
    """An epoch whose checkpoint was damaged: its input is read again, before the epoch's own."""

    epoch: Epoch
    slice: Slice


@dataclass(frozen=True, slots=True)
class BacklogEpoch:
    """What a stage has still to read of an epoch: its checkpoint completed without the stage (semantics B3, F6).

    Or before the stage had read all its upstreams (B2): then it has read its slice, and only `inputs` are left to read.

    What the executions in `inputs` wrote for their readers is in-flight data: the metadata of the restored checkpoint
    holds it, an `InFlightLine` for each execution.
    """

    epoch: Epoch
    slice: Slice | None = None
    """None: the stage took part, and has read it."""
    inputs: dict[Stage, Execution] = field(default_factory=dict, metadata=SPARSE)
    """By upstream, the execution whose output of this epoch is still to be read. An upstream that was left out too is
    missing here: what it writes later covers this epoch."""


MAX_BACKLOG_BYTES = 256 * 1024
"""The backlogs of all stages together, at most, as JSON; documents of 1 MiB hold it."""


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """When an attempt may complete without some stages (semantics B3, F6)."""

    alignment_timeout_ms: Count | None = None
    """Milliseconds after the trigger from which on stages that lag may be left out; None: never."""
    max_backlog: Count = 0
    """Epochs in the backlog of a stage that lags, at most."""
    max_failure_ratio: float | None = None
    """Failed regions to all regions, at most; None: none may fail."""
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
    """Whether a failed try is followed by another attempt, and when (semantics F4)."""

    kind: RestartKind
    attempts: Count | None = None
    """Restarts, or failures in an interval, before the job fails; None: no limit, or none at all for `none`."""
    delay_ms: Count = field(default=0, metadata=SPARSE)
    """From a failure to the restart; the first one, where it grows."""
    max_delay_ms: Count = field(default=0, metadata=SPARSE)
    """Where it grows: the longest."""
    multiplier: float = field(default=0.0, metadata=SPARSE)
    """Where it grows: how much longer each delay is than the one before."""
    jitter: float = field(default=0.0, metadata=SPARSE)
    """How much of the delay is left to chance, 0 to 1."""
    interval_ms: Count = field(default=0, metadata=SPARSE)
    """Of a failure rate: the interval. Where the delay grows: the quiet time after which it starts anew."""


@dataclass(frozen=True, slots=True)
class RestartMemory:
    """What the head remembers of failed tries over all epochs, for the strategies that look beyond one (F4)."""

    times_ms: tuple[Count, ...] = ()
    """When tries failed, oldest first, milliseconds since 1970 UTC; as many as the strategy looks at."""
    delay_ms: Count = field(default=0, metadata=SPARSE)
    """The last delay; from it follow the end of the incident and the beginning of a quiet time."""
    in_a_row: Count = field(default=0, metadata=SPARSE)
    """Failures since the last quiet time."""
    server: Token = field(default="", metadata=SPARSE)
    """Nonce of the Spark server whose end was the last one that counted as a failure; empty: none (semantics V4)."""


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
    """Whether a stage reads what its upstreams have acknowledged by then, and the rest later (semantics B2)."""
    restart: RestartRule | None = None
    """None: every failed try may be followed by another, as Airflow's retries allow (semantics F4)."""
    full_failover: bool = field(default=False, metadata=SPARSE)
    """Whether every stage that has begun runs again after a failure (semantics F1)."""


@dataclass(frozen=True, slots=True)
class HooksRef:
    """The master hooks of an attempt, and where their answers are once all have answered (semantics T7)."""

    names: tuple[HookName, ...]
    """In the order in which they are asked."""
    home: CheckpointId
    """The checkpoint in whose folder the answers are; an older one if they were carried over."""
    token: Token


@dataclass(frozen=True, slots=True)
class PendingDocument:
    """`chk-<id>/pending-<token>.json`: what one attempt of an epoch expects."""

    job: Job
    checkpoint: CheckpointId
    token: Token
    epoch: Epoch
    attempt: Attempt
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
    """Listeners to notify of how it ended (semantics C4, D4)."""
    max_parallelism: dict[Stage, Attempt] = field(default_factory=dict, metadata=SPARSE)
    """Of each stage that names a parallelism, the highest that it may be restored at (semantics R4)."""
    hooks: HooksRef | None = None
    """Who has to answer before a stage begins; None: no hook (semantics T7, C1)."""
    backlogs: dict[Stage, tuple[BacklogEpoch, ...]] = field(default_factory=dict, metadata=SPARSE)
    """By stage, its backlog in the restored checkpoint: epochs still to be read, oldest first (B2, B3, F6)."""
    restarted: dict[Stage, str] = field(default_factory=dict, metadata=SPARSE)
    """Stages that had begun in an earlier attempt, and whose execution in this one was not known when it was opened:
    each with the task that held it last, the claimant of its handover (semantics F1, F2). Empty for a stage that had
    failed by itself: Airflow retries its task by itself."""

    read: ReadWindows = field(default=NOTHING_READ, metadata=SPARSE)
    """What the job will have read when this one completes: what the restored state has, and the epoch's window (T8)."""
    draining: bool = field(default=False, metadata=SPARSE)
    """Whether no epoch comes after it, so that the stages emit what still waits for time to go on (semantics P2)."""

    @property
    def hook_names(self) -> tuple[str, ...]:
        """The master hooks that have to answer."""
        return self.hooks.names if self.hooks else ()

    def stage(self, uid: str) -> StageSpec | None:
        """Give a stage by uid, None if the checkpoint does not expect it."""
        return next((stage for stage in self.stages if stage.uid == uid), None)


@dataclass(frozen=True, slots=True)
class Handover:
    """`chk-<id>/handover/<stage>/<token>.json`: what the operator tells the application, and the claim to submit it.

    Made once. Of what it says only the claimant changes: where a later try takes over a driver that lives on, and where
    a later try finds that the stage has acknowledged (semantics F5).
    """

    job: Job
    checkpoint: CheckpointId
    """The checkpoint pending when the execution was started; its home."""
    epoch: Epoch
    attempt: Attempt
    stage: Stage
    token: Token
    claimant: str
    """Who may submit, has taken over what was submitted, or ran the task last after the stage had acknowledged: the
    Airflow task instance's id, one per try."""
    slice: Slice
    restore: RestorePointer | None = None
    replay: tuple[ReplayedEpoch, ...] = ()
    upstream: dict[Stage, Execution] = field(default_factory=dict)
    parallelism: Annotated[int, AtLeast(1)] | None = None
    backlog: tuple[BacklogEpoch, ...] = field(default=(), metadata=SPARSE)
    """Epochs that the stage has still to read, oldest first, before `replay` and the epoch's own (B2, B3, F6)."""
    at_least_once: bool = field(default=False, metadata=SPARSE)
    """Whether it reads what its upstreams have acknowledged by then (semantics B2)."""
    hooks: HooksRef | None = None
    """Where the answers of the master hooks are; None: the job has none."""
    members: dict[Stage, tuple[Stage, ...]] = field(default_factory=dict, metadata=SPARSE)
    """Upstreams that have a name together, in the order in which they are read by it."""
    durable: bool = field(default=False, metadata=SPARSE)
    """Whether its driver may outlive who submitted it, and can be found again: a later try asks for it first (F5)."""
    draining: bool = field(default=False, metadata=SPARSE)
    """Whether no epoch comes after this one (semantics P2)."""
    adopted: bool = field(default=False, metadata=SPARSE)
    """Whether the claimant has taken over the driver of an earlier try; it submits nothing."""
    max_parallelism: Annotated[int, AtLeast(1)] | None = field(default=None, metadata=SPARSE)
    """The highest parallelism that the stage may be restored at; None: it names no parallelism (semantics R4)."""
    try_number: Annotated[int, AtLeast(0)] = field(default=0, metadata=SPARSE)
    """Which try of its task the claimant is; Airflow counts on over retries and clears. 0: it is not known (F5)."""

    @property
    def execution(self) -> Execution:
        """What it tells of."""
        return Execution(self.token, self.checkpoint, self.attempt)


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """What a master hook has to keep; one that answered None has none of these."""

    name: HookName
    value: Json = None
    """JSON, as it was given; None where bytes were."""
    data: str | None = None
    """Bytes in base64; None where JSON was given."""


@dataclass(frozen=True, slots=True)
class HookAnswersDocument:
    """`chk-<home>/hooks-<token>.json`: made once, when all master hooks have answered (semantics T7)."""

    job: Job
    checkpoint: CheckpointId
    """The checkpoint in whose folder it is."""
    token: Token
    hooks: tuple[HookName, ...]
    """Who was asked."""
    answers: tuple[HookAnswer, ...] = ()
