"""From Airflow's DAG run to what the domain and a source may know of it: plain values."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...checkpoint import RequestKind
from ...checkpoint.documents.attempt import Slice
from ...checkpoint.errors import InvalidConfigError, SourceRefusedError
from ...checkpoint.source import AssetEvent, RunFacts
from ...checkpoint.sources.already_read import NO_INTERVAL
from ...hooks.storage import CheckpointStorageHook
from ...storage.port import ObjectStore

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger("airflow_cairn")

PERIODIC_RUNS = frozenset({"scheduled", "backfill", "asset_triggered"})
"""Types of DAG runs that no person asked for one by one (semantics T3)."""


def run_facts(context: Context) -> RunFacts:
    """Give the facts of the task's DAG run."""
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


def kind_of(context: Context) -> RequestKind:
    """Tell who asks, by the type of the DAG run (semantics T3)."""
    return RequestKind.PERIODIC if run_type_of(context) in PERIODIC_RUNS else RequestKind.MANUAL


def run_type_of(context: Context) -> str:
    """Give the type of the task's DAG run, such as `scheduled`."""
    found: Any = context["dag_run"].run_type
    # An enum, of which `str` gives the class's name too.
    return str(getattr(found, "value", found))


def slice_of(
    context: Context,
    detail: dict[str, Any] | None,
    *,
    reads_window: bool = True,
    has_source: bool = False,
    again: bool = False,
) -> Slice:
    """Give the input slice of a run's epoch (semantics T8): its data interval, in ISO 8601 with offset.

    Args:
        context: the task's context.
        detail: what else belongs to the input.
        reads_window: whether the epoch reads the run's data interval, where no source says what it reads.
        has_source: whether a source says what the epoch reads; then nothing is missing without a window.
        again: whether the epoch is read although the job has read its window, or may have.

    Raises:
        SourceRefusedError: the epoch would read the run's data interval, and the run has none.
        InvalidConfigError: the run is to read again what a source keeps.
    """
    dag_run = context["dag_run"]
    start, end = dag_run.data_interval_start, dag_run.data_interval_end
    if again and has_source:
        raise InvalidConfigError(
            "dag_run.conf['cairn']['read_again'] is for a job without a source, and this one has one. To read again "
            "what a source has read go back by `cairn rewind`",
            run=context["ti"].run_id,
        )
    if not has_source and not reads_window:
        return Slice(detail=dict(detail or {}), again=again)
    if not has_source and (start is None or end is None):
        raise SourceRefusedError(
            f"no checkpoint was triggered: {NO_INTERVAL}",
            run=context["ti"].run_id,
            start=_iso(start),
            end=_iso(end),
        )
    if has_source and start is not None and start == end:
        start = None
    return Slice(_iso(start), _iso(end), dict(detail or {}), again=again)


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment is not None else None


def _event(event: Any) -> AssetEvent:
    at = event.timestamp.isoformat()
    # The execution API gives no id of the event: what made it, and when, tells it from every other.
    made_by = [event.source_dag_id, event.source_run_id, event.source_task_id, event.source_map_index]
    name = "|".join([event.asset.uri or event.asset.name, at, *("" if each is None else str(each) for each in made_by)])
    return AssetEvent(name, event.asset.uri, at, event.extra, event.source_run_id)


def _open(uri: str, aws_conn_id: str | None) -> ObjectStore:
    return CheckpointStorageHook(uri, aws_conn_id=aws_conn_id).open_store()
