"""What is asked of the coordinator, and its answers: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from ..storage.names import check_name, shorten
from ..storage.uris import check_storage_uri
from .already_read import AlreadyRead
from .assignment import check_parallelism
from .at_least_once import AT_LEAST_ONCE, MODES, check_fits
from .errors import InvalidConfigError
from .fixing import Refused
from .head import MAX_HISTORY, EndedEntry
from .model import Handover, Owner, PendingDocument, Slice, StageSpec
from .named import check_distinct
from .options import check_choice, check_whole
from .read_windows import WindowText
from .reasons import Reason, RequestKind
from .regional import RegionalCheckpoints
from .restarts import RestartStrategy, check_strategy
from .restore import Damage
from .slice_window import window_text
from .source import RunFacts, Source

FAILOVERS = ("region", "full")
"""What `CheckpointConfig.failover` may be."""

DEFAULT_TIMEOUT = timedelta(hours=6)
"""An epoch does the work itself, where Flink's ten minutes only take a snapshot."""


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """How a job makes checkpoints (semantics S3).

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
        UnsupportedStorageError: the scheme of `savepoint_target` is none of ours.
        InvalidKeyError: `savepoint_target` is of no accepted form.
    """

    timeout: timedelta = DEFAULT_TIMEOUT
    """After this long a pending checkpoint expires (semantics D2); more than zero."""
    retained: int = 3
    """Completed checkpoints to keep (semantics C3); at least 1."""
    max_concurrent_checkpoints: int = 1
    """Epochs that may be pending at once; 1 to `MAX_HISTORY`."""
    min_pause: timedelta = timedelta(0)
    """How long after a completion the next periodic request is admitted at the earliest (semantics T3); not negative.
    Manual requests ignore it."""
    tolerable_failed_checkpoints: int = 0
    """Failed checkpoints in a row that the job tolerates before it fails (semantics D5); at least 0. Only failures
    of checkpoints themselves count: declined, expired, storage."""
    allow_non_restored_state: bool = False
    """Start although the latest checkpoint holds state of a stage that the job no longer has; it is then left behind
    and cannot come back (semantics R3)."""
    unaligned: bool = False
    """Complete without stages that lag, once `alignment_timeout` has run out; what they have not read is kept for their
    next run (semantics B3). Only with `max_concurrent_checkpoints` = 1 (S3)."""
    alignment_timeout: timedelta = timedelta(0)
    """With `unaligned`: how long after the trigger to wait for all stages; not negative, and less than `timeout`."""
    max_backlog: int = 4
    """With `unaligned`: epochs that a stage may lag behind; at least 1. At the bound the checkpoint waits for it."""
    regional: RegionalCheckpoints | None = None
    """Complete although some regions failed (semantics F6); None: never."""
    mode: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`at_least_once`: a stage reads what its upstreams have acknowledged by then, and reads the rest in its next run
    (semantics B2). Not with `unaligned` or `regional`. A savepoint says which stages have still to read (P1)."""
    restart_strategy: RestartStrategy | None = None
    """Whether a failed try of a stage is followed by another, and when (semantics F4); None: Airflow's own retries
    decide."""
    failover: Literal["region", "full"] = "region"
    """What runs again after a failure (semantics F1): what has to, or with `full` every stage that has begun."""

    savepoint_target: str | None = None
    """URI of the folder below which savepoints are made that name no place of their own (semantics P1); known to the
    job from its next trigger on. None: each has to name one."""

    def __post_init__(self) -> None:
        """Check the bounds where the DAG is parsed."""
        if self.savepoint_target is not None:
            object.__setattr__(self, "savepoint_target", check_storage_uri(self.savepoint_target))
        if not isinstance(self.timeout, timedelta) or self.timeout_ms < 1:
            raise InvalidConfigError("timeout must be a timedelta of more than zero", timeout=repr(self.timeout))
        if not isinstance(self.min_pause, timedelta) or self.min_pause < timedelta(0):
            raise InvalidConfigError("min_pause must be a timedelta of at least zero", min_pause=repr(self.min_pause))
        for option in ("retained", "max_concurrent_checkpoints"):
            check_whole(option, getattr(self, option))
        if self.max_concurrent_checkpoints > MAX_HISTORY:
            # All that is pending may end in one swap (S1, D2, C2), and the history must tell each outcome (D3).
            raise InvalidConfigError(
                f"max_concurrent_checkpoints must be at most {MAX_HISTORY}",
                max_concurrent_checkpoints=shorten(self.max_concurrent_checkpoints),
            )
        check_whole("tolerable_failed_checkpoints", self.tolerable_failed_checkpoints, 0)
        if not isinstance(self.allow_non_restored_state, bool):
            raise InvalidConfigError(
                "allow_non_restored_state must be True or False",
                allow_non_restored_state=repr(self.allow_non_restored_state),
            )
        self._check_leaving_out()
        self._check_mode()
        check_strategy(self.restart_strategy)

    def _check_leaving_out(self) -> None:
        check_whole("max_backlog", self.max_backlog)
        if not isinstance(self.unaligned, bool):
            raise InvalidConfigError("unaligned must be True or False", unaligned=repr(self.unaligned))
        waits = self.alignment_timeout
        if not isinstance(waits, timedelta) or not timedelta(0) <= waits < self.timeout:
            raise InvalidConfigError(
                "alignment_timeout must be a timedelta of at least zero and less than timeout",
                alignment_timeout=repr(waits),
                timeout=repr(self.timeout),
            )
        if self.unaligned and self.max_concurrent_checkpoints > 1:
            raise InvalidConfigError(
                "unaligned checkpoints need max_concurrent_checkpoints=1: an epoch must not start before it is known "
                "who was left out of the one before",
                max_concurrent_checkpoints=self.max_concurrent_checkpoints,
            )
        if waits and not self.unaligned:
            raise InvalidConfigError(
                "alignment_timeout does nothing without unaligned=True", alignment_timeout=repr(waits)
            )
        if self.regional is not None and not isinstance(self.regional, RegionalCheckpoints):
            raise InvalidConfigError("regional must be a RegionalCheckpoints or None", regional=repr(self.regional))

    def _check_mode(self) -> None:
        check_choice("failover", self.failover, FAILOVERS)
        check_choice("mode", self.mode, MODES)
        if self.mode == AT_LEAST_ONCE and (self.unaligned or self.regional is not None):
            raise InvalidConfigError(
                "mode='at_least_once' does not go with unaligned or regional: a stage that does not wait for its "
                "upstreams is to take part in every checkpoint. Use one of them",
                mode=self.mode,
                unaligned=self.unaligned,
                regional=repr(self.regional),
            )

    @property
    def timeout_ms(self) -> int:
        """The timeout in whole milliseconds."""
        return self.timeout // timedelta(milliseconds=1)

    @property
    def min_pause_ms(self) -> int:
        """The pause in milliseconds, rounded up: it never ends early."""
        return -(-self.min_pause // timedelta(milliseconds=1))


@dataclass(frozen=True, slots=True)
class TriggerRequest:
    """A wish to start an epoch's next attempt."""

    epoch: str
    """The epoch's name (`layout.epoch_name` of the run id)."""
    slice: Slice
    """Its input, used if this is the epoch's first trigger (semantics T8)."""
    stages: tuple[StageSpec, ...]
    config: CheckpointConfig = field(default_factory=CheckpointConfig)
    owner: Owner | None = None
    """The DAG run that asks. Without one a request keeps no place in the line: its end could not be seen."""
    kind: RequestKind = RequestKind.MANUAL
    listeners: tuple[str, ...] = ()
    """Names of those who are to be told how the attempt ended (semantics C4, D4); its later attempts have the same."""
    hooks: tuple[str, ...] = ()
    """Names of the master hooks that are to answer, in order; later attempts have the same (semantics T7)."""
    sources: tuple[Source, ...] = ()
    """What says, at the first trigger, what the epoch reads (semantics T8)."""
    run: RunFacts | None = None
    """What the sources may know; needed where there are any."""

    @property
    def window(self) -> WindowText | None:
        """What the epoch reads, for people; None where a source will say it."""
        return None if self.sources else window_text(self.slice)

    def __post_init__(self) -> None:
        """Check the epoch's name, the topology and the listeners' names."""
        check_name("epoch", self.epoch)
        check_stages(self.stages, self.config)
        if self.sources and self.run is None:
            raise InvalidConfigError("a request with sources needs `run`, the facts of the DAG run", epoch=self.epoch)
        check_distinct("listener", self.listeners)
        check_distinct("hook", self.hooks)


def check_stages(stages: tuple[StageSpec, ...], config: CheckpointConfig) -> None:
    """Check a job's stages: at least one, uids unique and within the grammar, upstreams known, no cycle.

    So are parallelism and maximum, each and together (semantics R4), and that what could be owed fits (B2).

    Args:
        stages: what must acknowledge.
        config: how the job makes checkpoints.

    Raises:
        InvalidConfigError: naming the stage at fault.
        InvalidNameError: a uid is outside the grammar (semantics W1).
    """
    if not stages:
        raise InvalidConfigError("a job needs at least one stage: list what must acknowledge in `stages`", stages="()")
    uids = [stage.uid for stage in stages]
    for uid in uids:
        check_name("stage", uid)
        if uids.count(uid) > 1:
            raise InvalidConfigError("two stages have the same uid; give each its own", stage=uid)
    for stage in stages:
        for upstream in stage.upstream:
            if upstream not in uids:
                raise InvalidConfigError(
                    "the stage names an upstream that is no stage of the job; add that stage or take it out",
                    stage=stage.uid,
                    upstream=upstream,
                    stages=", ".join(sorted(uids)),
                )
        unread = set(stage.pipelined) - set(stage.upstream)
        if unread:
            raise InvalidConfigError(
                "the stage names a pipelined exchange with a stage that it does not read from; name that one in "
                "upstream too, or take it out of pipelined",
                stage=stage.uid,
                pipelined=", ".join(sorted(unread)),
                upstream=", ".join(stage.upstream) or "none",
            )
        check_parallelism(stage.parallelism, stage.max_parallelism, stage=stage.uid)
        if stage.member_of is not None and check_name("stage", stage.member_of) in uids:
            raise InvalidConfigError(
                "the stage belongs to a group of stages that has the uid of a stage; give one of them another",
                stage=stage.uid,
                member_of=stage.member_of,
            )
    for stage in stages:
        if stage.uid in consumers(stages, stage.uid):
            circle = sorted(
                uid for uid in uids if uid in consumers(stages, stage.uid) and stage.uid in consumers(stages, uid)
            )
            raise InvalidConfigError(
                "these stages read from each other in a circle; take one of the edges out", stages=", ".join(circle)
            )
    if config.mode == AT_LEAST_ONCE:
        pipelined = [f"{uid} to {stage.uid}" for stage in stages for uid in stage.pipelined]
        if pipelined:
            raise InvalidConfigError(
                "mode='at_least_once' does not go with pipelined exchanges: a stage that does not wait for its "
                "upstreams is not run again together with them. Make the exchange blocking, or use mode='exactly_once'",
                mode=config.mode,
                pipelined=", ".join(pipelined),
            )
        check_fits(stages)


def consumers(stages: tuple[StageSpec, ...], uid: str) -> frozenset[str]:
    """Give the stages that read, directly or through others, what `uid` writes; `uid` itself only in a circle."""
    found: set[str] = set()
    frontier = {uid}
    while frontier:
        frontier = {s.uid for s in stages if frontier & set(s.upstream)} - found
        found |= frontier
    return frozenset(found)


def members_of(stages: tuple[StageSpec, ...], upstream: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Give the names that stand for several of a stage's upstreams, each with those in the order of the job.

    Args:
        stages: of the job.
        upstream: what the stage reads; a name of which it does not read all is left out.
    """
    found: dict[str, list[str]] = {}
    for stage in stages:
        if stage.member_of is not None:
            found.setdefault(stage.member_of, []).append(stage.uid)
    return {name: tuple(uids) for name, uids in found.items() if set(uids) <= set(upstream)}


def producers(stages: tuple[StageSpec, ...], uid: str) -> frozenset[str]:
    """Give the stages whose outputs `uid` reads, directly or through others."""
    return frozenset(stage.uid for stage in stages if uid in consumers(stages, stage.uid))


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
    """The request's 1-based place in the line, where it is to ask again (semantics T2); None: it is refused."""
    retry_at_ms: int | None = None
    """When asking again may help at the earliest (semantics T3), milliseconds since 1970 UTC."""


@dataclass(frozen=True, slots=True)
class EpochCompleted:
    """The epoch is done; running it again would fold its input in twice."""

    epoch: str
    checkpoint: int


TriggerAnswer = Triggered | Declined | EpochCompleted | AlreadyRead | Refused


@dataclass(frozen=True, slots=True)
class Restarted:
    """A stage that has to run again although its own task has not failed (semantics F1, F2)."""

    stage: str
    claimant: str
    """The task that held the execution which was replaced: the Airflow task instance's id, one per try. If the task has
    another id by now, it has been cleared already. Empty for a stage that has failed by itself: its task runs again
    without a clear, unless it has ended well meanwhile."""


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
    lost: tuple[str, ...] = ()
    """Those of `upstreams` that have not begun either, and of which it is not known which task held them: a person has
    to clear them."""


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
    who comes second can finish what the first died over."""


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The report changes nothing; `why` says so for the log."""

    why: str


@dataclass(frozen=True, slots=True)
class GivenUp:
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
    """Whether the job tolerates it, so that the epoch may be taken up again (semantics D5)."""
    job_failed: bool = False
    """Whether the job failed with it (semantics D5, F4)."""
    for_good: bool = False
    """Whether that is because a try had failed that nothing but a person follows by another (semantics F4)."""
    paused: bool = False
    """Whether it ended because the DAG was paused; `tolerated` too: the epoch goes on afterwards (semantics S1)."""
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


FailAnswer = FailedOver | NothingToDo | EpochCompleted | GivenUp | Failed
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
