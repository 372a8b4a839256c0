"""Airflow's retry policies, and substitutes for an Airflow without them."""

from __future__ import annotations

from typing import Any

from . import features

__all__ = ["RetryDecision", "RetryPolicy", "policy_option"]

if features.HAS_RETRY_POLICIES:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:

    class RetryPolicy:  # type: ignore[no-redef]
        """Substitute for Airflow's class; no task gets one."""

    class RetryDecision:  # type: ignore[no-redef]
        """Substitute for Airflow's class; none is created."""


def policy_option(policy: RetryPolicy | None) -> dict[str, Any]:
    """Return the operator's argument that sets its retry policy; empty if Airflow takes none."""
    return {"retry_policy": policy} if features.HAS_RETRY_POLICIES else {}
