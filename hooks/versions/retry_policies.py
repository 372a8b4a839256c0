"""Airflow's retry policies, and what stands in for them where Airflow has none."""

from __future__ import annotations

from typing import Any

from . import features

__all__ = ["RetryDecision", "RetryPolicy", "policy_option"]

if features.HAS_RETRY_POLICIES:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:

    class RetryPolicy:  # type: ignore[no-redef]
        """Stands in for Airflow's; no task is given one."""

    class RetryDecision:  # type: ignore[no-redef]
        """Stands in for Airflow's; none is made."""


def policy_option(policy: RetryPolicy | None) -> dict[str, Any]:
    """Give the argument of an operator that sets its retry policy; none where Airflow takes none."""
    return {"retry_policy": policy} if features.HAS_RETRY_POLICIES else {}
