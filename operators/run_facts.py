"""From Airflow's context to what a source may know: plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..checkpoint.source import AssetEvent, RunFacts
from ..hooks.storage import CheckpointStorageHook
from ..storage.port import ObjectStore

if TYPE_CHECKING:
    from airflow.sdk import Context


def run_facts(context: Context) -> RunFacts:
    """Give the facts of the task's DAG run.

    Args:
        context: the task's context.
    """
    run: Any = context["dag_run"]
    return RunFacts(
        run_id=run.run_id,
        run_type=run_type_of(context),
        logical_date=run.logical_date,
        data_interval_start=run.data_interval_start,
        data_interval_end=run.data_interval_end,
        events=tuple(_event(event) for event in run.consumed_asset_events or ()),
        open_store=_open,
    )


def run_type_of(context: Context) -> str:
    """Give the type of the task's DAG run, such as `scheduled`.

    Args:
        context: the task's context.
    """
    found: Any = context["dag_run"].run_type
    # An enum, of which `str` gives the class's name too.
    return str(getattr(found, "value", found))


def _event(event: Any) -> AssetEvent:
    at = event.timestamp.isoformat()
    # The execution API gives no id of the event: what made it, and when, tells it from every other.
    made_by = [event.source_dag_id, event.source_run_id, event.source_task_id, event.source_map_index]
    name = "|".join([event.asset.uri or event.asset.name, at, *("" if each is None else str(each) for each in made_by)])
    return AssetEvent(name, event.asset.uri, at, event.extra, event.source_run_id)


def _open(uri: str, aws_conn_id: str | None) -> ObjectStore:
    return CheckpointStorageHook(uri, aws_conn_id=aws_conn_id).open_store()
