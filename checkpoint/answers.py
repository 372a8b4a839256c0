"""What the coordinator answers: plain values, one class for each answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from .documents.attempt import Handover, PendingDocument
from .documents.entries import EndedEntry
from .reasons import Reason


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong with a completed checkpoint (semantics R1)."""

    checkpoint: int
    key: str
    """Relative to the job's prefix."""
    problem: str

    def __str__(self) -> str:
        """Say it in one line."""
        return f"checkpoint {self.checkpoint}: {self.key}: {self.problem}"


@dataclass(frozen=True, slots=True)
class FilesProgress:
    """How far long work on many files is."""

    files: int
    """How many there are; 0 where that shows only at the end."""
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
    """What the sources have to say, if this trigger fixed the epoch's input."""


@dataclass(frozen=True, slots=True)
class Declined:
    """No checkpoint came of the request."""

    reason: Reason
    detail: str
    position: int | None = None
    """The request's 1-based place in the queue, where it is to ask again (semantics T2); None: it is refused."""
    retry_at_ms: int | None = None
    """When asking again may help at the earliest (semantics T3), milliseconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class EpochCompleted:
    """The epoch is done; running it again would fold its input in twice."""

    epoch: str
    checkpoint: int


@dataclass(frozen=True, slots=True)
class InputRefused:
    """A source has nothing that the epoch may read; no checkpoint was made."""

    source: str
    detail: str
    all_read: bool = False
    """Whether other epochs have read all that each of its sources was to give to this one."""


@dataclass(frozen=True, slots=True)
class AlreadyRead:
    """The state holds all that the epoch was to read; reading it again would count it twice."""

    epoch: str
    window: str
    """The epoch's window, for people; of what a source gives, which part of it was read."""
    checkpoint: int
    """The oldest retained checkpoint that holds the window, as all newer ones do; with a source the newest."""
    back_to: int | None
    """The newest retained checkpoint that holds none of it; None: there is none, or the job has read nothing since."""
    source: str = ""
    """The source that says so; empty: the run's data interval was read."""


TriggerAnswer = Triggered | Declined | EpochCompleted | AlreadyRead | InputRefused


@dataclass(frozen=True, slots=True)
class Restarted:
    """A stage that has to run again although its own task has not failed (semantics F1, F2)."""

    stage: str
    claimant: str
    """The task that held the execution which was replaced: the Airflow task instance's id, one per try. If the task has
    another id by now, it has been cleared already. Empty where no task is known, and for a stage that has failed by
    itself: its task runs again without a clear, unless it has ended well meanwhile."""


@dataclass(frozen=True, slots=True)
class Submit:
    """The caller, and no other task, is to submit the stage's application."""

    handover: Handover
    handover_key: str
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again beside this one, and have not begun (semantics F1)."""


@dataclass(frozen=True, slots=True)
class Reconnect:
    """An earlier try has submitted the application and its driver lives on: the caller waits for that one (F5)."""

    handover: Handover
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again beside this one, and have not begun (semantics F1)."""


@dataclass(frozen=True, slots=True)
class StageAcknowledged:
    """The stage has acknowledged already; there is nothing to submit.

    Its handover names the asking try from now on, so a later failover of its region clears that one (semantics F5).
    """

    checkpoint: int
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again, and have not begun (semantics F1)."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A stage that this one reads from has declined, so there is nothing to submit before that one has run again (B4).

    The next attempt of the epoch gives both new executions; a later try of this stage finds them.
    """

    checkpoint: int
    attempt: int
    upstream: str
    """The stage that declined."""
    detail: str
    """Why it did, in one line."""


@dataclass(frozen=True, slots=True)
class UpstreamsNotReady:
    """Stages that this one reads from run again first; nothing was claimed, and this one is to ask again (F1, B1)."""

    checkpoint: int
    attempt: int
    upstreams: tuple[str, ...]
    """Stages that it reads from and that have not acknowledged."""
    restarted: tuple[Restarted, ...] = ()
    """Stages of the job whose tasks have to run again and have not begun."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The epoch's next attempt waits for a free place (T2); nothing was claimed, and the caller is to ask again."""

    checkpoint: int
    """The epoch's last attempt."""
    detail: str
    """What it waits for."""


@dataclass(frozen=True, slots=True)
class TriggerFirst:
    """Only the task that triggers can open the epoch's next attempt, which stands on another checkpoint (T7, T8)."""

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
    """The report changes nothing; `why` says so for the log."""

    why: str


@dataclass(frozen=True, slots=True)
class AbandonedRegion:
    """The last try of a stage has failed, and the checkpoint goes on without its region (semantics F6)."""

    checkpoint: int
    stages: tuple[str, ...]
    """Stages that it will leave out: those given up so far, and what reads from them."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The epoch's checkpoint is pending and not everyone has acknowledged."""

    checkpoint: int
    attempt: int
    acknowledged: tuple[str, ...]
    missing: tuple[str, ...]
    hooks: tuple[str, ...] = ()
    """Master hooks that have not answered: the task that triggers has not come to its end, and no stage begins."""
    restarted: tuple[Restarted, ...] = ()
    """Stages whose tasks have to run again after a failover, and have not begun."""
    quiet_until_ms: int = field(default=0, compare=False)
    """Until then only another version of the head ends the wait, because the task that acknowledges last completes the
    checkpoint; the acknowledgements themselves have to be looked at only in case that task has died. Milliseconds since
    1970 UTC; 0: look at them each time."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Every stage has acknowledged or may be left out; the checkpoint can be completed."""

    checkpoint: int
    left_out: tuple[str, ...] = ()
    """Stages that it would complete without by now, in order (semantics B3, F6)."""


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
    """Whether that is because a try had failed that only a person can let another one follow (semantics F4)."""
    paused: bool = False
    """Whether the DAG's pause is waited out; `tolerated` too: the epoch goes on afterwards (semantics S1)."""
    trigger_first: bool = False
    """Whether only the task that triggers can open the next attempt, which stands on another checkpoint (T7, T8)."""
    left_behind: bool = False
    """Whether so many other epochs have ended since that only a trigger opens the next attempt."""


def failed(newest: EndedEntry) -> Failed:
    """Say that an epoch's newest attempt ended without completing, from what the head keeps of it."""
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
