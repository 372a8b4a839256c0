"""Retry policies: of a stage whose job has a restart strategy, and of the tasks that run no stage (semantics F4).

For a stage the head decides what follows. Airflow asks a retry policy in the worker, before it stores the outcome. If
the process was killed, Airflow does not ask, and retries by its own `retries` and `retry_delay`; the next try then
finds the head's decision at its start.
"""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone

from ...checkpoint import NoRestart
from ...checkpoint.answers import AbandonedRegion, EpochCompleted, Failed
from ...checkpoint.documents import layout
from ...checkpoint.errors import InvalidConfigError
from ...hooks import versions
from ...hooks.versions import RetryDecision, RetryPolicy
from ...storage.errors import CairnError
from ..graph.stages import stage_task
from ..stage.outcome import NO_CURE
from .callbacks import report, settings_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from ...checkpoint.config import RestartStrategy

UNCOUNTED = 10
"""Minimum number of tries for failures that the strategy does not count: the try failed before the stage began, for
example because the storage could not be reached, or another attempt replaced the try."""

UNLIMITED = 1_000_000
"""`retries` for a strategy without a limit for one epoch. Airflow adds to it, and its column holds 2**31 - 1."""


class CheckpointRetryPolicy(RetryPolicy):
    """Records the failed try in the job's head, and follows the job's restart strategy.

    A `CheckpointedTaskGroup` whose config has a `restart_strategy` sets this policy on its stages. A stage without a
    group takes it as an option: `SparkEpochOperator(retry_policy=CheckpointRetryPolicy(), retries=…)`. `retries` must
    then be at least what the strategy allows, because Airflow never retries beyond it.

    Raises:
        InvalidConfigError: this version of Airflow has no retry policies.
    """

    def __init__(self) -> None:
        if not versions.HAS_RETRY_POLICIES:
            raise InvalidConfigError(
                "a restart strategy needs Airflow's retry policies, which Airflow has from 3.3 on. Upgrade Airflow, or "
                "leave `restart_strategy` and CheckpointRetryPolicy out: then the stages' `retries` and `retry_delay` "
                "count",
                airflow=version("apache-airflow-core"),
            )

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - Airflow passes it by name
        max_tries: int,  # noqa: ARG002 - likewise
        context: Context | None = None,
    ) -> RetryDecision:
        """Record the failure first (semantics F5), then decide what follows.

        Args:
            exception: the error that failed the task.
            try_number: 1-based, over all clears; not used.
            max_tries: the highest `try_number` that another try may follow; not used.
            context: Airflow's task context.

        Returns:
            RETRY after the rest of the strategy's delay. FAIL if the strategy is exhausted, no retry cures the error,
            or the checkpoint goes on without the stage. DEFAULT, Airflow's own retries, if the head counted nothing.

        Raises:
            CairnError: the store could not be asked. Airflow logs the error and decides as without a policy; the next
                try asks again.
        """
        stage = None if context is None else stage_task(context["task"], context["ti"].map_index)
        if context is None or stage is None:
            return RetryDecision.default()
        known: Any = {**context, "exception": exception}
        coordinator = settings_of(known, stage.operator).coordinator()
        answer = report(known, stage.uid, coordinator)
        if isinstance(answer, Failed) and answer.job_failed:
            return RetryDecision.fail(answer.detail)
        if isinstance(answer, AbandonedRegion):
            return RetryDecision.fail(f"checkpoint {answer.checkpoint} goes on without {', '.join(answer.stages)}")
        if isinstance(answer, EpochCompleted):
            return RetryDecision.default()
        return _after_restart(coordinator, layout.epoch_name(context["ti"].run_id))


def _after_restart(coordinator: Coordinator, epoch: str) -> RetryDecision:
    entry = coordinator.head().pending_of_epoch(epoch)
    if entry is None or not (entry.restarts or entry.restart_at_ms):
        return RetryDecision.default()
    now_ms = round(timezone.utcnow().timestamp() * 1000)
    counted = f"restart {entry.restarts}" if entry.restarts else "no restart counted"
    remaining = "" if entry.restarts_left is None else f", {entry.restarts_left} left"
    return RetryDecision.retry(
        # Never more than the whole delay, even if the clock of the process that opened the attempt was ahead.
        timedelta(milliseconds=max(0, entry.restart_at_ms - max(now_ms, entry.triggered_at_ms))),
        f"checkpoint {entry.id}, attempt {entry.attempt}: {counted}{remaining}",
    )


def restart_by(strategy: RestartStrategy | None, task: Any, *, group: str) -> None:
    """Apply the job's restart strategy to a stage's task; without a strategy nothing changes.

    Args:
        strategy: the job's restart strategy.
        task: the stage, or a mapped task whose instances are stages; gets the retry policy, and at least as many
            `retries` as the strategy allows.
        group: the task group's id, for the error message.

    Raises:
        InvalidConfigError: the stage has its own retry policy.
    """
    if strategy is None:
        return
    policy = CheckpointRetryPolicy()
    if task.retry_policy is not None:
        raise InvalidConfigError(
            "the stage has a retry_policy and its group's config a restart_strategy, and both would decide whether it "
            "is retried. Remove one of them; an AirflowFailException in the stage fails it at once with either",
            group=group,
            task=task.task_id,
            retry_policy=type(task.retry_policy).__name__,
            restart_strategy=type(strategy).__name__,
        )
    task.retry_policy = policy
    if not isinstance(strategy, NoRestart):
        task.retries = _enough(strategy, task.retries or 0)


def _enough(strategy: RestartStrategy, authors: int) -> int:
    attempts = getattr(strategy, "attempts", None)
    return UNLIMITED if attempts is None else min(UNLIMITED, attempts + max(UNCOUNTED, authors))


class FailFast(RetryPolicy):
    """Airflow's own retries, except for errors of Cairn that no retry cures (`CairnError.retry_cures`).

    A retry cures an error that was raised from another one if it cures that one. See `docs/reference/errors.md`.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - Airflow passes it by name
        max_tries: int,  # noqa: ARG002 - likewise
        context: Context | None = None,  # noqa: ARG002 - likewise
    ) -> RetryDecision:
        """Decide whether another try may follow a failed one.

        Returns:
            FAIL if no retry cures the error; DEFAULT, Airflow's own retries, for all others.
        """
        if isinstance(exception, CairnError) and not exception.retry_cures:
            return RetryDecision.fail(NO_CURE)
        return RetryDecision.default()


FAIL_FAST = FailFast()
"""Retry policy of tasks that trigger, or that take, stop with or dispose of a savepoint."""
