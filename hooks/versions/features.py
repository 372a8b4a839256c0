"""What this Airflow can do. Airflow 3.2 lacks what is named here; docs/reference/versions.md says what follows.

A store for a task's state came with 3.3 too. It is not asked for here: without it the Spark provider itself sets
`durable` to False.
"""

from __future__ import annotations

from importlib.util import find_spec

_SINCE_3_3 = find_spec("airflow.sdk.definitions.retry_policy") is not None

HAS_RETRY_POLICIES = _SINCE_3_3
"""Without them a failed task is tried again by its `retries` alone."""
TAKES_NOTES = _SINCE_3_3
"""Whether a request that clears tasks may say why. Airflow 3.2 refuses a request with a note."""
