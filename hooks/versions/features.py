"""The features of this Airflow that Airflow 3.2 lacks; docs/reference/versions.md describes the consequences.

A store for a task's state also came with 3.3. It is not checked here: without it the Spark provider itself sets
`durable` to False.
"""

from __future__ import annotations

from importlib.util import find_spec

_SINCE_3_3 = find_spec("airflow.sdk.definitions.retry_policy") is not None

HAS_RETRY_POLICIES = _SINCE_3_3
"""Without retry policies a failed task is retried by its `retries` alone."""
TAKES_NOTES = _SINCE_3_3
"""Whether a request that clears tasks may have a note. Airflow 3.2 refuses a request with one."""
