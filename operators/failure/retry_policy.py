"""What Airflow does with a failed try of a stage whose job has a restart strategy: the head decides (semantics F4).

Airflow asks a retry policy in the worker, before it stores the outcome, and not at all where the process was killed.
Then Airflow retries by its own `retries` and `retry_delay`, and the next try finds at its start what the head decides.
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
from ...hooks.versions import features
from ...hooks.versions.retry_policies import RetryDecision, RetryPolicy
from ..graph.stages import stage_task
from .report import report, settings_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ...checkpoint import Coordinator
    from ...checkpoint.restart_strategies import RestartStrategy

UNCOUNTED = 10
"""So many tries at least are left for those that the strategy does not count: a try that fails before the stage has
begun, for example because the storage cannot be reached, and a try that another attempt has replaced."""

UNLIMITED = 1_000_000
"""`retries` of a strategy that names no number for one epoch. Airflow adds to it, and its column holds 2**31 - 1."""


class CheckpointRetryPolicy(RetryPolicy):
    """Records the failed try in the job's head, and follows the job's restart strategy.

    A `CheckpointedTaskGroup` whose config has a `restart_strategy` gives it to its stages. For a stage without a group
    it is an option: `SparkEpochOperator(retry_policy=CheckpointRetryPolicy(), retries=…)`. `retries` must then be no
    less than what the strategy allows, because Airflow never retries beyond it.

    Raises:
        InvalidConfigError: this Airflow has no retry policies.
    """

    def __init__(self) -> None:
        if not features.HAS_RETRY_POLICIES:
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
        """Record the failure first (semantics F5), then say what follows.

        Args:
            exception: what failed the task.
            try_number: 1-based, over all clears; not used.
            max_tries: the highest `try_number` that is followed by another; not used.
            context: Airflow's.

        Returns:
            RETRY after what is left of the strategy's delay; FAIL where the strategy is exhausted, no retry would cure
            it, or the checkpoint goes on without the stage; DEFAULT, Airflow's own retries, where nothing was counted.

        Raises:
            CairnError: the store could not be asked. Airflow logs it and does what it does without a policy; the next
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
    if entry is None or not entry.restarts:
        return RetryDecision.default()
    now_ms = round(timezone.utcnow().timestamp() * 1000)
    remaining = "" if entry.restarts_left is None else f", {entry.restarts_left} left"
    return RetryDecision.retry(
        timedelta(milliseconds=max(0, entry.restart_at_ms - now_ms)),
        f"checkpoint {entry.id}, attempt {entry.attempt}: restart {entry.restarts}{remaining}",
    )


def restart_by(strategy: RestartStrategy | None, task: Any, *, group: str) -> None:
    """Let a stage's task be retried as the job's restart strategy says; without one nothing changes.

    Args:
        strategy: of the job.
        task: the stage, or a mapped task whose instances are stages; gets the retry policy, and at least as many
            `retries` as the strategy allows.
        group: its group, for the error.

    Raises:
        InvalidConfigError: the stage has a retry policy of its own.
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
