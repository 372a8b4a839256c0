"""What the asset events of an epoch's last task say: which checkpoint completed, and what it holds.

Airflow registers a task's asset events with its success, in one transaction. A task that dies before leaves none, and
its next try finds the same checkpoint. A task that a user clears succeeds again, with another event of the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..tasks.job_settings import JobSettings


def describe(outlets: Iterable[object], context: Context, settings: JobSettings, result: Mapping[str, Any]) -> None:
    """Have the event of each asset say what completed; an author's own words in it stay.

    Args:
        outlets: the task's; what is no `Asset` is left to its author.
        context: Airflow's.
        settings: the job and its storage.
        result: the task's result.
    """
    facts = {"storage": str(settings.storage), "run_id": context["ti"].run_id, **result}
    for asset in outlets:
        if isinstance(asset, Asset):
            event = context["outlet_events"][asset]
            event.extra = {**facts, **event.extra}
