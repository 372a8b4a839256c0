"""Fails a task at once where no retry would do any better: the error's class says so (semantics F4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...hooks.versions.retry_policies import RetryDecision, RetryPolicy
from ...storage.errors import CairnError

if TYPE_CHECKING:
    from airflow.sdk import Context


NO_CURE = "a retry does not help: change what the error names, then clear the task"


class WhereARetryMayCure(RetryPolicy):
    """Airflow's own retries, except for errors of Cairn that no retry cures (`CairnError.retry_cures`).

    An error that was raised from another one may be cured if the other one may. See `docs/reference/errors.md`.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - Airflow passes it by name
        max_tries: int,  # noqa: ARG002 - likewise
        context: Context | None = None,  # noqa: ARG002 - likewise
    ) -> RetryDecision:
        """Say whether a failed try may be followed by another.

        Returns:
            FAIL where no retry cures the error; DEFAULT, Airflow's own retries, for all others.
        """
        if isinstance(exception, CairnError) and not exception.retry_cures:
            return RetryDecision.fail(NO_CURE)
        return RetryDecision.default()


WHERE_A_RETRY_MAY_CURE = WhereARetryMayCure()
"""What Airflow does with a failed try of a task that triggers, takes, stops with or disposes of a savepoint."""
