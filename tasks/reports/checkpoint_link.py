"""From a task of a job to the checkpoints of its run, as the page in Airflow shows them (`plugin/page`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

TAB = "run-checkpoints"
"""The route of the tab on a run's page, as the plugin registers it."""


class CheckpointLink(BaseOperatorLink):
    """A button on a task's page that leads to the checkpoints of its run."""

    @property
    def name(self) -> str:
        """The button's text."""
        return "Checkpoint"

    @property
    def xcom_key(self) -> str:
        """Where Airflow keeps the address."""
        return "_cairn_checkpoint_link"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow calls it so
        """Give the address of the tab *Checkpoints* of the same run."""
        base = conf.get("api", "base_url", fallback="/").rstrip("/")
        dag, run = (quote(part, safe="") for part in (ti_key.dag_id, ti_key.run_id))
        return f"{base}/dags/{dag}/runs/{run}/plugin/{TAB}"
