"""The coordinator's answers as plain values, one class each, and the trigger's request."""

from __future__ import annotations

from dataclasses import field

from ..storage.names import check_name
from ..storage.records import dataclass
from .config import CheckpointConfig, check_stages
from .documents.attempt import Handover, Owner, PendingDocument, Slice, StageSpec, window_text
from .documents.entries import EndedEntry
from .documents.read_windows import WindowText
from .errors import InvalidConfigError
from .reasons import Reason, RequestKind
from .source import RunFacts, Source
from .validation import check_distinct


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """A request to start an epoch's next attempt."""

    epoch: str
    """The epoch's name (`layout.epoch_name` of the run id)."""
    slice: Slice
    """The epoch's input, used if this is its first trigger (semantics T8)."""
    stages: tuple[StageSpec, ...]
    config: CheckpointConfig = field(default_factory=CheckpointConfig)
    owner: Owner | None = None
    """The asking DAG run. Without one a request keeps no place in the queue, because its end could not be seen."""
    kind: RequestKind = RequestKind.MANUAL
    listeners: tuple[str, ...] = ()
    """Names of the listeners to notify of the attempt's end (C4, D4); the epoch's later attempts have the same."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks that have to answer, in order; later attempts have the same (semantics T7)."""
    sources: tuple[Source, ...] = ()
    """Sources that choose the epoch's input at its first trigger (semantics T8)."""
    run: RunFacts | None = None
    """Facts for the sources; required if there are any."""

    @property
    def window(self) -> WindowText | None:
        """The epoch's window, for people; None where a source chooses the input."""
        return None if self.sources else window_text(self.slice)

    def __post_init__(self) -> None:
        """Check the epoch's name, the topology and the listeners' names."""
        check_name("epoch", self.epoch)
        check_stages(self.stages, self.config)
        if self.sources and self.run is None:
            raise InvalidConfigError("a request with sources needs `run`, the facts of the DAG run", epoch=self.epoch)
        check_distinct("listener", self.listeners)
        check_distinct("hook", self.hooks)


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage of a completed checkpoint (semantics R1)."""

    checkpoint: int
    key: str
    """Relative to the job's prefix."""
    problem: str

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint}: {self.key}: {self.problem}"


@dataclass(frozen=True, slots=True)
class FilesProgress:
    """Progress of long work on many files."""

    files: int
    """Number of all files; 0 while unknown."""
    files_done: int
    size_bytes: int
    bytes_done: int


@dataclass(frozen=True, slots=True)
class Triggered:
    """A checkpoint is pending for the epoch."""

    pending: PendingDocument
    created: bool
    """False: it was pending before (semantics T9)."""
    damages: tuple[Damage, ...] = ()
    """Why newer completed checkpoints were not restored."""
    log: tuple[str, ...] = ()
    """Log lines of the sources, if this trigger fixed the epoch's input."""


@dataclass(frozen=True, slots=True)
class Declined:
    """The request waits or is refused; no checkpoint was triggered."""

    reason: Reason
    detail: str
    position: int | None = None
    """1-based place in the queue of a request that has to ask again (semantics T2); None: the request is refused."""
    retry_at_ms: int | None = None
    """Earliest time at which asking again may help (semantics T3), milliseconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class EpochCompleted:
    """The epoch has completed; running it again would fold its input in twice."""

    epoch: str
    checkpoint: int


@dataclass(frozen=True, slots=True)
class InputRefused:
    """A source has no input for the epoch; no checkpoint was triggered."""

    source: str
    detail: str
    all_read: bool = False
    """Whether other epochs have read all input of the epoch, from each of its sources."""


@dataclass(frozen=True, slots=True)
class AlreadyRead:
    """The state holds all of the epoch's input already; reading it again would count it twice."""

    epoch: str
    window: str
    """The epoch's window, for people; with a source, its description of the input that was read."""
    checkpoint: int
    """The oldest retained checkpoint that holds the window, as all newer ones do; with a source the newest."""
    back_to: int | None
    """The newest retained checkpoint without any of the window; None: there is none, or the job has read nothing since.
    """
    source: str = ""
    """The source that answered; empty: the run's data interval was read."""
    again: str = ""
    """Advice with the command that reads the interval again; empty with a source."""


TriggerAnswer = Triggered | Declined | EpochCompleted | AlreadyRead | InputRefused


@dataclass(frozen=True, slots=True)
class Restarted:
    """A stage that has to run again although its own task has not failed (semantics F1, F2)."""

    stage: str
    claimant: str
    """The Airflow task instance that held the replaced execution: its id, one per try. If the task has another id by
    now, it has been cleared already. Empty where no task is known, and for a stage that has failed by itself: its task
    runs again without a clear, unless it has succeeded in between."""


@dataclass(frozen=True, slots=True)
class Submit:
    """The caller, and no other task, has to submit the stage's application."""

    handover: Handover
    handover_key: str
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again beside this one, and have not begun (semantics F1)."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """The driver of an earlier try lives on: the caller waits for it instead of submitting (semantics F5)."""

    handover: Handover
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again beside this one, and have not begun (semantics F1)."""


@dataclass(frozen=True, slots=True)
class StageAcknowledged:
    """The stage has acknowledged already; there is nothing to submit.

    The handover names the asking try from now on, so a later failover of the region clears that try (semantics F5).
    """

    checkpoint: int
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again, and have not begun (semantics F1)."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """An upstream stage has declined, so this stage is not submitted before the upstream has run again (B4).

    The epoch's next attempt gives both stages new executions, which a later try of this stage finds.
    """

    checkpoint: int
    attempt: int
    upstream: str
    """The stage that declined."""
    detail: str
    """Reason of its decline, in one line."""


@dataclass(frozen=True, slots=True)
class UpstreamsNotReady:
    """Upstream stages run again first; nothing was claimed, and the caller has to ask again (semantics F1, B1)."""

    checkpoint: int
    attempt: int
    upstreams: tuple[str, ...]
    """Upstream stages that have not acknowledged."""
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again and have not begun."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The epoch's next attempt waits for a free place (T2); nothing was claimed, and the caller has to ask again."""

    checkpoint: int
    """The epoch's last attempt."""
    detail: str
    """Reason for the wait."""


@dataclass(frozen=True, slots=True)
class TriggerFirst:
    """Only the task that triggers can open the epoch's next attempt, which has another base checkpoint (T7, T8)."""

    checkpoint: int
    """The epoch's last attempt."""


@dataclass(frozen=True, slots=True)
class FailedOver:
    """The attempt was aborted and the next one opened, by this call or an earlier one for the same failure (F5)."""

    pending: PendingDocument
    created: bool
    damages: tuple[Damage, ...] = ()
    restarted: tuple[Restarted, ...] = ()
    """Stages whose tasks have to run again beside the one that failed, and have not begun: read from the store, so that
    a second process can finish where the first died."""


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The report changes nothing; `why` gives the reason for the log."""

    why: str


@dataclass(frozen=True, slots=True)
class AbandonedRegion:
    """The last try of a stage has failed, and the checkpoint goes on without its region (semantics F6)."""

    checkpoint: int
    stages: tuple[str, ...]
    """Stages that it will leave out: those given up so far, and their downstream stages."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The epoch's checkpoint is pending and not all stages have acknowledged."""

    checkpoint: int
    attempt: int
    acknowledged: tuple[str, ...]
    missing: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    """Master hooks that have not answered: the task that triggers has not finished, and no stage begins."""
    restarted: tuple[Restarted, ...] = ()
    """Stages whose tasks have to run again after a failover, and have not begun."""
    quiet_until_ms: int = field(default=0, compare=False)
    """Time until which only a new version of the head ends the wait, because the last stage's task completes the
    checkpoint; the acknowledgements have to be looked at only in case that task has died. Milliseconds since 1970 UTC;
    0: look at them each time."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Every stage has acknowledged or may be left out; the checkpoint can be completed."""

    checkpoint: int
    left_out: tuple[str, ...] = ()
    """Stages that it would leave out now, in order (semantics B3, F6)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The epoch's newest attempt ended without completing and no other is pending."""

    checkpoint: int
    attempt: int
    reason: Reason
    detail: str
    tolerated: bool = False
    """Whether the job tolerates it, so that the epoch may be resumed (semantics D5)."""
    job_failed: bool = False
    """Whether the job failed with it (semantics D5, F4)."""
    for_good: bool = False
    """Whether a try has finally failed, so that only a person can start another one (semantics F4)."""
    paused: bool = False
    """Whether the DAG is paused; `tolerated` is True too: the epoch goes on after the pause (semantics S1)."""
    trigger_first: bool = False
    """Whether only the task that triggers can open the next attempt, which has another base checkpoint (T7, T8)."""
    left_behind: bool = False
    """Whether only a trigger opens the next attempt, because many other epochs have ended since."""


def failed(newest: EndedEntry) -> Failed:
    """Make the answer for an epoch whose newest attempt ended without completing, from its history entry."""
    reason = newest.reason or Reason.JOB_FAILURE
    return Failed(
        newest.id,
        newest.attempt,
        reason,
        newest.detail,
        newest.tolerated,
        newest.job_failed,
        newest.for_good,
        newest.paused,
        left_behind=newest.left_behind,
    )


FailAnswer = FailedOver | NothingToDo | EpochCompleted | AbandonedRegion | Failed

BeginAnswer = (
    Submit
    | Reconnect
    | StageAcknowledged
    | EpochCompleted
    | Cancelled
    | UpstreamsNotReady
    | Failed
    | Queued
    | TriggerFirst
)

Progress = Waiting | Ready | Failed | EpochCompleted
