"""The differences between versions of Airflow, in one place; docs/reference/versions.md describes the consequences.

Airflow 3.2 lacks retry policies, so they have substitutes. Its metrics are methods of a class; from 3.3 on they are
functions of a module. A store for a task's state also came with 3.3. It is not checked here: without it the Spark
provider itself sets `durable` to False. Imports nothing else of this package.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

__all__ = ["HAS_RETRY_POLICIES", "TAKES_NOTES", "RetryDecision", "RetryPolicy", "policy_option"]

_SINCE_3_3 = find_spec("airflow.sdk.definitions.retry_policy") is not None

HAS_RETRY_POLICIES = _SINCE_3_3
"""Without retry policies a failed task is retried by its `retries` alone."""
TAKES_NOTES = _SINCE_3_3
"""Whether a request that clears tasks may have a note. Airflow 3.2 refuses a request with one."""

if HAS_RETRY_POLICIES:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
else:

    class RetryPolicy:  # type: ignore[no-redef]
        """Substitute for Airflow's class; no task gets one."""

    class RetryDecision:  # type: ignore[no-redef]
        """Substitute for Airflow's class; none is created."""


def policy_option(policy: RetryPolicy | None) -> dict[str, Any]:
    """Return the operator's argument that sets its retry policy; empty if Airflow takes none."""
    return {"retry_policy": policy} if HAS_RETRY_POLICIES else {}


def metrics() -> Any:
    """Return Airflow's own metrics, with `incr`, `gauge` and `timing`."""
    from airflow.sdk.observability import stats

    return stats if hasattr(stats, "initialize") else stats.Stats


def configure_metrics() -> None:
    """Configure Airflow's metrics in this process, as Airflow's own processes do."""
    from airflow.sdk.configuration import conf
    from airflow.sdk.observability import stats
    from airflow.sdk.observability.metrics import stats_utils

    if hasattr(stats, "initialize"):
        legacy_names = conf.getboolean("metrics", "legacy_names_on")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=legacy_names)
    else:
        older: Any = stats.Stats
        older_factory: Any = stats_utils.get_stats_factory
        older.initialize(factory=older_factory(older))
