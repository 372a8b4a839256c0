"""What is asked of the coordinator, and its answers: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from ..storage.names import shorten
from ..storage.uris import check_storage_uri
from .documents.head import MAX_HISTORY
from .errors import InvalidConfigError
from .restart_strategies import RestartStrategy, check_strategy
from .validation import check_choice, check_whole, refuses_unknown

FAILOVERS = ("region", "full")
"""What `CheckpointConfig.failover` may be."""

DEFAULT_TIMEOUT = timedelta(hours=6)
"""An epoch does the work itself, where Flink's ten minutes only take a snapshot."""


@refuses_unknown
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


@refuses_unknown
@dataclass(frozen=True, slots=True)
class RegionalCheckpoints:
    """How many regions may fail, and how often in a row (semantics F6). F1 says what a region is.

    Raises:
        InvalidConfigError: an option is out of its bounds; the text names the option, the value and the bound.
    """

    max_failure_ratio: float = 0.3
    """Failed regions to all regions, at most; above 0 and below 1."""
    max_consecutive_failures: int = 2
    """Checkpoints in a row that may complete although a region failed; at least 1. The next must be whole."""

    def __post_init__(self) -> None:
        """Check the bounds where the DAG is parsed."""
        ratio = self.max_failure_ratio
        if not isinstance(ratio, float) or not 0 < ratio < 1:
            raise InvalidConfigError(
                "max_failure_ratio must be a number above 0 and below 1", max_failure_ratio=shorten(ratio)
            )
        check_whole("max_consecutive_failures", self.max_consecutive_failures)


EXACTLY_ONCE = "exactly_once"

AT_LEAST_ONCE = "at_least_once"

MODES = (EXACTLY_ONCE, AT_LEAST_ONCE)
"""What `CheckpointConfig.mode` may be."""
