"""Checkpoint options of a job, its restart strategy, and its stages, as an author gives them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from ..storage.names import check_name, check_storage_uri, shorten
from ..storage.records import dataclass
from .documents import codec
from .documents.attempt import MAX_BACKLOG_BYTES, BacklogEpoch, Execution, RestartKind, RestartRule, StageSpec
from .documents.entries import MAX_FAILURES
from .documents.head import MAX_HISTORY
from .documents.strict_json import to_json
from .errors import InvalidConfigError
from .validation import check_choice, check_span, check_whole, refuses_unknown

# The author's options: restart strategies with Flink's names (semantics F4). `rules/restarts` decides by them.


MAX_DELAY = timedelta(days=7)
"""The longest delay before a restart."""


@refuses_unknown
@dataclass(frozen=True, slots=True)
class NoRestart:
    """Do not restart: the first failed try fails the epoch."""

    def rule(self) -> RestartRule:
        """Give the rule that travels with an attempt."""
        return RestartRule(RestartKind.NONE)


@refuses_unknown
@dataclass(frozen=True, slots=True)
class FixedDelayRestart:
    """Restart an epoch up to `attempts` times, each time after the same delay. The next epoch starts at 0.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    attempts: int = 1
    """Restarts of an epoch before the job fails; at least 1."""
    delay: timedelta = timedelta(seconds=1)
    """Delay from the failure to the restart; 0 to 7 days."""

    def __post_init__(self) -> None:
        check_whole("attempts", self.attempts)
        _check_span("delay", self.delay, timedelta(0))

    def rule(self) -> RestartRule:
        """Give the rule that travels with an attempt."""
        return RestartRule(RestartKind.FIXED_DELAY, attempts=self.attempts, delay_ms=_ms(self.delay))


@refuses_unknown
@dataclass(frozen=True, slots=True)
class ExponentialDelayRestart:
    """Restart after a delay that grows with each failure of any epoch, and is reset after a quiet time.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    initial_delay: timedelta = timedelta(seconds=1)
    """Delay before the first restart; 1 ms to `max_delay`."""
    max_delay: timedelta = timedelta(minutes=1)
    """Longest delay; up to 7 days."""
    multiplier: float = 1.5
    """Factor by which each delay is longer than the one before; more than 1, up to 100."""
    jitter: float = 0.1
    """Random part of the delay, so that jobs that fail together do not restart together: 0.1 makes the delay up to a
    tenth longer or shorter, but never shorter than `initial_delay` or longer than `max_delay`; 0 to 1. The jitter is
    derived from job, epoch and count, so every process computes the same delay."""
    reset_after: timedelta = timedelta(hours=1)
    """Time without a failure, counted from the last restart, after which delay and count are reset; 1 ms to 365 days.
    """
    attempts: int | None = None
    """Restarts in a row before the job fails; at least 1. None: no limit."""

    def __post_init__(self) -> None:
        _check_span("max_delay", self.max_delay, timedelta(milliseconds=1))
        _check_span("initial_delay", self.initial_delay, timedelta(milliseconds=1), self.max_delay, "max_delay")
        _check_number("multiplier", self.multiplier, 1, 100, above=True)
        _check_number("jitter", self.jitter, 0, 1)
        _check_span("reset_after", self.reset_after, timedelta(milliseconds=1), timedelta(days=365))
        if self.attempts is not None:
            check_whole("attempts", self.attempts)

    def rule(self) -> RestartRule:
        """Give the rule that travels with an attempt."""
        return RestartRule(
            RestartKind.EXPONENTIAL_DELAY,
            attempts=self.attempts,
            delay_ms=_ms(self.initial_delay),
            max_delay_ms=_ms(self.max_delay),
            multiplier=float(self.multiplier),
            jitter=float(self.jitter),
            interval_ms=_ms(self.reset_after),
        )


@refuses_unknown
@dataclass(frozen=True, slots=True)
class FailureRateRestart:
    """Restart while no more than `max_failures` tries fail in any `interval`, over all epochs of the job.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    max_failures: int = 1
    """Failures in an interval that lead to a restart; 1 to 100. With one more the job fails."""
    interval: timedelta = timedelta(minutes=1)
    """Length of the interval; 1 ms to 365 days."""
    delay: timedelta = timedelta(seconds=1)
    """Delay from the failure to the restart; 0 to 7 days."""

    def __post_init__(self) -> None:
        check_whole("max_failures", self.max_failures)
        if self.max_failures > MAX_FAILURES:
            raise InvalidConfigError(f"max_failures must be at most {MAX_FAILURES}", max_failures=self.max_failures)
        _check_span("interval", self.interval, timedelta(milliseconds=1), timedelta(days=365))
        _check_span("delay", self.delay, timedelta(0))

    def rule(self) -> RestartRule:
        """Give the rule that travels with an attempt."""
        return RestartRule(
            RestartKind.FAILURE_RATE,
            attempts=self.max_failures,
            delay_ms=_ms(self.delay),
            interval_ms=_ms(self.interval),
        )


RestartStrategy = NoRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart


def check_strategy(strategy: object) -> None:
    """Check the option `restart_strategy`.

    Raises:
        InvalidConfigError: the value is not a restart strategy.
    """
    if strategy is not None and not isinstance(strategy, RestartStrategy):
        raise InvalidConfigError(
            "restart_strategy must be a NoRestart, FixedDelayRestart, ExponentialDelayRestart or FailureRateRestart, "
            "or None for Airflow's own retries",
            restart_strategy=shorten(strategy),
        )


def _ms(span: timedelta) -> int:
    return -(-span // timedelta(milliseconds=1))


def _check_span(option: str, value: object, least: timedelta, most: timedelta = MAX_DELAY, most_is: str = "") -> None:
    if not isinstance(value, timedelta) or not least <= value <= most:
        bound = f"{most_is} ({most})" if most_is else str(most)
        raise InvalidConfigError(
            f"{option} must be a timedelta of at least {least} and at most {bound}", **{option: repr(value)}
        )


def _check_number(option: str, value: object, least: float, most: float, *, above: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (least < value if above else least <= value) or not value <= most:  # type: ignore[operator]
        word = "more than" if above else "at least"
        raise InvalidConfigError(
            f"{option} must be a number of {word} {least} and at most {most}", **{option: shorten(value)}
        )


FAILOVERS = ("region", "full")
"""Values of `CheckpointConfig.failover`."""

DEFAULT_TIMEOUT = timedelta(hours=6)
"""Timeout of a checkpoint; Flink's ten minutes cover only a snapshot, but an epoch also does the work."""


@refuses_unknown
@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Checkpoint options of a job (semantics S3).

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
        UnsupportedStorageError: Cairn does not support the scheme of `savepoint_target`.
        InvalidKeyError: `savepoint_target` is of no accepted form.
    """

    timeout: timedelta = DEFAULT_TIMEOUT
    """Time after which a pending checkpoint expires, unless all stages have acknowledged (semantics D2); more than
    zero. A cleared stage of an expired run uses the DAG file's value of that time."""
    retained: int = 3
    """Completed checkpoints to keep (semantics C3); at least 1."""
    max_concurrent_checkpoints: int = 1
    """Epochs that may be pending at once; 1 to 100. Above 1, a run that is overtaken starts again on the new checkpoint
    (semantics C2)."""
    min_pause: timedelta = timedelta(0)
    """Shortest time from a completion to the admission of the next periodic request (semantics T3); not negative, and
    at most the DAG's schedule if that is a timedelta. A `CheckpointTimetable` sets it (S3). Manual requests ignore
    it."""
    tolerable_failed_checkpoints: int = 0
    """Failed checkpoints in a row that the job tolerates before it fails (semantics D5); at least 0. Only failures
    of checkpoints themselves count: declined, expired, storage."""
    allow_non_restored_state: bool = False
    """Start although the latest checkpoint holds state of a stage that the job no longer has; this state is left behind
    and cannot come back (semantics R3)."""
    unaligned: bool = False
    """Complete without lagging stages once `alignment_timeout` has run out; their unread input is kept for their next
    run (semantics B3). Only with `max_concurrent_checkpoints` = 1 (S3)."""
    alignment_timeout: timedelta = timedelta(0)
    """With `unaligned`: time after the trigger to wait for all stages; not negative, and less than `timeout`."""
    max_backlog: int = 4
    """With `unaligned`: epochs that a stage may lag behind; at least 1. At the bound the checkpoint waits for it."""
    regional: RegionalCheckpoints | None = None
    """Complete although some regions failed (semantics F6); None: never."""
    mode: Literal["exactly_once", "at_least_once"] = "exactly_once"
    """`exactly_once`: a stage needs all of its upstreams' output of the epoch (semantics B1). `at_least_once`: it reads
    only upstream output that is acknowledged when it begins, and the rest in its next run (B2). Not with `unaligned` or
    `regional`. A savepoint names the stages that have still to read (P1)."""
    restart_strategy: RestartStrategy | None = None
    """Decides whether and when another try follows a failed one (semantics F4); None: Airflow's own retries decide."""
    failover: Literal["region", "full"] = "region"
    """Stages that run again after a failure (semantics F1): with `region` only those that have to, with `full` every
    stage that has begun."""

    on_gap: Literal["report", "refuse"] = "report"
    """Treatment of a run that begins after a window of time that no run has read (semantics T12): `report` logs the
    gap, `refuse` fails the run before it reads. Only for runs that read their data interval, one at a time."""

    savepoint_target: str | None = None
    """URI of the default folder for savepoints (semantics P1), outside of the job's folder; those that a user asks for
    on the page are made there. Known to the job from its next trigger on. None: each savepoint has to name a target."""

    def __post_init__(self) -> None:
        if self.savepoint_target is not None:
            object.__setattr__(self, "savepoint_target", check_storage_uri(self.savepoint_target))
        check_span("timeout", self.timeout)
        if not isinstance(self.min_pause, timedelta) or self.min_pause < timedelta(0):
            raise InvalidConfigError("min_pause must be a timedelta of at least zero", min_pause=repr(self.min_pause))
        for option in ("retained", "max_concurrent_checkpoints"):
            check_whole(option, getattr(self, option))
        if self.max_concurrent_checkpoints > MAX_HISTORY:
            # All pending checkpoints may end in one swap (S1, D2, C2), and the history must hold each outcome (D3).
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
        check_choice("on_gap", self.on_gap, ON_GAP)
        if self.on_gap == REFUSE and self.max_concurrent_checkpoints > 1:
            raise InvalidConfigError(
                "on_gap='refuse' needs max_concurrent_checkpoints=1: of two runs at once the later one begins after a "
                "window that the earlier one has still to read",
                max_concurrent_checkpoints=self.max_concurrent_checkpoints,
            )
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


@refuses_unknown
@dataclass(frozen=True, slots=True)
class RegionalCheckpoints:
    """Limits for regions that fail (semantics F6); F1 defines regions.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    max_failure_ratio: float = 0.3
    """Largest ratio of failed regions to all regions; above 0 and below 1."""
    max_consecutive_failures: int = 2
    """Checkpoints in a row that may complete although a region failed; at least 1. The next must be whole."""

    def __post_init__(self) -> None:
        ratio = self.max_failure_ratio
        if not isinstance(ratio, float) or not 0 < ratio < 1:
            raise InvalidConfigError(
                "max_failure_ratio must be a number above 0 and below 1", max_failure_ratio=shorten(ratio)
            )
        check_whole("max_consecutive_failures", self.max_consecutive_failures)


EXACTLY_ONCE = "exactly_once"

AT_LEAST_ONCE = "at_least_once"

MODES = (EXACTLY_ONCE, AT_LEAST_ONCE)
"""Values of `CheckpointConfig.mode`."""

REFUSE = "refuse"

ON_GAP = ("report", REFUSE)
"""Values of `CheckpointConfig.on_gap`."""


# The stages of a job, checked where the DAG is parsed (semantics B1, R4, S3).


def check_stages(stages: tuple[StageSpec, ...], config: CheckpointConfig) -> None:
    """Check a job's stages: at least one, uids unique and within the grammar, upstreams known, no cycle.

    So are parallelism and maximum, each and together (semantics R4), and that the longest possible backlogs fit (B2).

    Raises:
        InvalidConfigError: naming the stage at fault.
        InvalidKeyError: a uid is outside the grammar (semantics W1).
    """
    if not stages:
        raise InvalidConfigError("a job needs at least one stage: list what must acknowledge in `stages`", stages="()")
    uids: set[str] = set()
    for stage in stages:
        check_name("stage", stage.uid)
        if stage.uid in uids:
            raise InvalidConfigError("two stages have the same uid; give each its own", stage=stage.uid)
        uids.add(stage.uid)
    for stage in stages:
        for upstream in stage.upstream:
            if upstream not in uids:
                raise InvalidConfigError(
                    "the stage names an upstream that is not a stage of the job; add that stage or take it out",
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
    try:
        TopologicalSorter({stage.uid: stage.upstream for stage in stages}).prepare()
    except CycleError as error:
        circle = sorted(set(error.args[1]))
        raise InvalidConfigError(
            "these stages read from each other in a circle; take one of the edges out", stages=", ".join(circle)
        ) from None
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


MAX_PARALLELISM = 32_768
"""The highest maximum that a stage may have, and the highest that is derived."""


def check_parallelism(parallelism: object, max_parallelism: object, **where: str) -> None:
    """Check both numbers of a stage as its author gave them.

    Args:
        parallelism: subtasks that must acknowledge; None for as many as the stage says.
        max_parallelism: the highest that the stage will ever be restored at; None to have it derived.
        **where: the stage or task, for the error text.

    Raises:
        InvalidConfigError: one is not a whole number from 1 to 32768, or they do not go together.
    """
    for option, value in (("parallelism", parallelism), ("max_parallelism", max_parallelism)):
        if value is None:
            continue
        check_whole(option, value, **where)
        if isinstance(value, int) and value > MAX_PARALLELISM:
            raise InvalidConfigError(
                f"{option} must be at most {MAX_PARALLELISM}; a stage that names none may have more subtasks",
                **where,
                **{option: value},
            )
    if max_parallelism is not None and parallelism is None:
        raise InvalidConfigError(
            "max_parallelism bounds parallelism, and the stage names none: set parallelism too, or leave both out",
            **where,
            max_parallelism=max_parallelism,
        )
    if isinstance(max_parallelism, int) and isinstance(parallelism, int) and parallelism > max_parallelism:
        raise InvalidConfigError(
            "parallelism must not be above max_parallelism",
            **where,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        )


_LONGEST = BacklogEpoch("e" * 250)

_EXECUTION = Execution("0" * 16, 10**10, 10**6)


def check_fits(stages: Iterable[StageSpec]) -> None:
    """Check that an attempt's documents hold the backlogs even if every stage reads before all its upstreams.

    Raises:
        InvalidConfigError: they do not.
    """
    edges = {stage.uid: stage.upstream for stage in stages if stage.upstream}
    unread = {uid: (BacklogEpoch(_LONGEST.epoch, inputs=dict.fromkeys(up, _EXECUTION)),) for uid, up in edges.items()}
    size = len(codec.encode(to_json(unread)))
    if size > MAX_BACKLOG_BYTES:
        raise InvalidConfigError(
            "the job has too many stages and edges for mode='at_least_once': their backlogs may not fit into a "
            "checkpoint's documents. Split the job, or use mode='exactly_once'",
            edges=sum(len(each) for each in edges.values()),
            size_bytes=size,
            limit_bytes=MAX_BACKLOG_BYTES,
        )
