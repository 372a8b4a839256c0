"""Links from a stage to its Spark application: its own UI while it runs, a history server afterwards."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseHook, BaseOperatorLink
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowNotFoundException

from ...storage.records import dataclass

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from ...spark.execution.log_lines import Application


log = logging.getLogger("airflow_cairn")

EXTRA = "history_server"
"""The connection's extra with the address of Spark's history server."""


class SparkLink(BaseOperatorLink):
    """A button on a stage's page that leads to its Spark application, if known."""

    @property
    def name(self) -> str:
        return "Spark"

    @property
    def xcom_key(self) -> str:
        return "_cairn_spark_link"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow calls it so
        """Return the address as of the task's end; empty, and so no button, if there is none."""
        found: SparkPlace | None = getattr(operator, "spark_place", None)
        return found.afterwards() if found is not None else ""


@dataclass(frozen=True, slots=True)
class SparkPlace:
    """The addresses at which an application is visible."""

    application: Application
    conn_id: str

    def now(self) -> str:
        """Return the address while it runs."""
        ui = self.application.ui
        return ui if _is_plain_url(ui) else self.afterwards()

    def afterwards(self) -> str:
        """Return the address once its own UI is gone; empty if no history server has it."""
        if not self.application.logged:
            return ""
        server = history_server(self.conn_id)
        place = "/".join(filter(None, [quote(self.application.id, safe=""), self.application.attempt]))
        return f"{server}/history/{place}/jobs/" if server else ""


def history_server(conn_id: str) -> str:
    """Return the address of a Spark connection's history server; empty if it names none that can be used.

    It is in the connection's extra `history_server`, such as `https://spark-history.example.com`.
    """
    try:
        found = BaseHook.get_connection(conn_id).extra_dejson.get(EXTRA)
    except AirflowNotFoundException:
        return ""
    if not found:
        return ""
    if not isinstance(found, str) or not _is_plain_url(found):
        log.warning(
            "No link to Spark: the extra `%s` of the connection %s is not a plain http or https URL; write "
            "https://spark-history.example.com",
            EXTRA,
            conn_id,
        )
        return ""
    return found.rstrip("/")


def _is_plain_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username


# Links a job's task to the checkpoints of its run, as the page in Airflow shows them (`plugin/page`).


TAB = "run-checkpoints"
"""The route of the tab on a run's page, as the plugin registers it."""


class CheckpointLink(BaseOperatorLink):
    """A button on a task's page that leads to the checkpoints of its run."""

    @property
    def name(self) -> str:
        return "Checkpoint"

    @property
    def xcom_key(self) -> str:
        return "_cairn_checkpoint_link"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow calls it so
        """Return the address of the tab *Checkpoints* of the same run."""
        base = conf.get("api", "base_url", fallback="/").rstrip("/")
        dag, run = (quote(part, safe="") for part in (ti_key.dag_id, ti_key.run_id))
        return f"{base}/dags/{dag}/runs/{run}/plugin/{TAB}"
