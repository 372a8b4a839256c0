"""What this Airflow can do: the one place that asks.

Airflow has retry policies and a store for a task's state from 3.3 on. Without policies a failed task is tried again by
its `retries` alone. Without the store no later try can find a driver, so the provider itself sets `durable` to False.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

__all__ = ["HAS_RETRY_POLICIES", "RetryDecision", "RetryPolicy", "policy_option"]

HAS_RETRY_POLICIES = find_spec("airflow.sdk.definitions.retry_policy") is not None

if HAS_RETRY_POLICIES:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:

    class RetryPolicy:  # type: ignore[no-redef]
        """Stands in for Airflow's; no task is given one."""

    class RetryDecision:  # type: ignore[no-redef]
        """Stands in for Airflow's; none is made."""


def policy_option(policy: RetryPolicy | None) -> dict[str, Any]:
    """Give the argument of an operator that sets its retry policy; none where Airflow takes none."""
    return {"retry_policy": policy} if HAS_RETRY_POLICIES else {}
