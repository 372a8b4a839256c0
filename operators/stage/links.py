"""From a stage to the task of the same run that waits for its checkpoint: there it is said how the epoch ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from ...tasks.job_settings import scope_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator


class CheckpointLink(BaseOperatorLink):
    """A button on a stage's page that leads to its checkpoint; empty outside of a CheckpointedTaskGroup."""

    @property
    def name(self) -> str:
        """The button's text."""
        return "Checkpoint"

    @property
    def xcom_key(self) -> str:
        """Where Airflow keeps the address."""
        return "_cairn_checkpoint_link"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Give the address of the waiting task's page in the same run."""
        scope = scope_of(operator.task_group)
        if scope is None:
            return ""
        base = conf.get("api", "base_url", fallback="/").rstrip("/")
        dag, run, task = (quote(part, safe="") for part in (ti_key.dag_id, ti_key.run_id, scope.wait_task_id))
        return f"{base}/dags/{dag}/runs/{run}/tasks/{task}"
