"""A job that takes no request, for tests that are not about how it came to that."""

from __future__ import annotations

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.rules import transitions
from airflow_cairn.checkpoint.store.head_store import Decision, changed


def shut_down(coordinator: Coordinator) -> None:
    """Leave a job as the swap does that completes a stop with a savepoint, whatever is pending (semantics P2).

    Args:
        coordinator: of the job.
    """
    heads = coordinator._heads
    heads.ensure()
    heads.update(lambda head, now_ms: Decision(None, changed(head, transitions.shut_down(head, now_ms))))
