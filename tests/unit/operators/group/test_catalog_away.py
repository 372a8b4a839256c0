"""The catalog of a table is away for ten minutes: what is owed stays, is said, and is committed once it is back."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_cairn import IcebergTable
from airflow_cairn.checkpoint import SavepointRequest, system_runtime
from airflow_cairn.checkpoint.documents import staged_tables
from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.checkpoint.views.overview import alarms, overview
from airflow_cairn.operators import CheckpointedTaskGroup, SparkEpochOperator
from airflow_cairn.spark.staged_tables import described
from airflow_cairn.storage import open_store
from tests.support.acking import ack_of
from tests.support.airflow_stage import Job, Ti, context
from tests.support.api_stand_in import ApiStandIn, OneRun
from tests.support.errors import raises_code
from tests.support.lake import Iceberg
from tests.support.world.world import Clock

RUN = "manual__r1"


def test_a_catalog_that_is_away_for_ten_minutes(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: Callable[[str, str], None]
) -> None:  # semantics C4, C7, P2
    (tmp_path / "tables").mkdir()
    place = Iceberg(tmp_path / "tables", f"file://{tmp_path}/tables/lake")
    place.owner = staged_tables.owner_of(job.name, job.storage)
    connections("rest", json.dumps({"conn_type": "generic", "extra": {"type": "sql", **place.properties}}))
    tables = {"orders": IcebergTable("lake.sales.orders", conn_id="rest")}
    with (
        DAG(job.name, schedule=None) as dag,
        CheckpointedTaskGroup("epoch", reads_window=False, storage=job.storage, tables=tables),
    ):
        SparkEpochOperator(task_id="routes", application="x.py")
    trigger: Any = dag.get_task("epoch.trigger_checkpoint")
    wait: Any = dag.get_task("epoch.wait_for_checkpoint")

    def run(task: Any, run_id: str = RUN) -> Any:
        return task.execute(context(Ti(run_id=run_id, task_id=task.task_id)))

    def warnings() -> list[str]:
        found = alarms(overview(job.coordinator), job.storage, clock.now_ms)
        return [each.text for each in found if each.level == "warning"]

    run(trigger)
    handover = job.begin(RUN)
    place.described = described(job.coordinator.files, handover, "orders")
    staged = place.stage(place.described.staging, "good", 1)
    job.coordinator.acknowledge(ack_of(handover, committables={"table.orders": staged.value}))

    clock = Clock(system_runtime().now_ms())
    back_ms, opened = clock.now_ms + 600_000, IcebergTable.open

    def open_table(table: IcebergTable, access: Any) -> Any:
        if clock.now_ms < back_ms:
            raise ConnectionError("the catalog is away")
        return opened(table, access)

    monkeypatch.setattr(IcebergTable, "open", open_table)
    notes = OneRun({})
    with ApiStandIn(notes) as api:
        facts = {"conn_type": "http", "host": api.url, "password": "ready-made-7431"}
        connections("cairn_airflow_api", json.dumps(facts))
        for _ in range(1 + wait.retries):
            with raises_code("listener", match="its notice is kept and the next task tells it again.*catalog is away"):
                run(wait)
            clock.advance(wait.retry_delay)
        assert notes.notes[""] == (
            "Cairn: flights: checkpoint 1 completed · `table.orders` could not be told (`the catalog is away`) · the "
            "next task of the job tells again; `cairn show` says what is owed"
        )
        with raises_code("master_hook", match="table.orders failed in trigger.*the catalog is away"):
            run(trigger, "manual__r2")
        head = job.coordinator.head()
        assert (head.pending, head.history[-1].reason) == ((), Reason.TRIGGER_CHECKPOINT_FAILURE)
        assert warnings() == [], "its commit may be on its way"
        clock.advance(timedelta(minutes=6))
        [late] = warnings()
        assert late.startswith("The table `orders` lacks checkpoint 1, which completed 6m"), late
        stop = SavepointRequest(f"file://{tmp_path}/saved", "by hand", stop=True)
        entry = job.coordinator.savepoint(stop, open_store)
        assert "these listeners to be notified that a checkpoint has completed: table.orders" in (
            job.coordinator.awaited_by(entry)
        )
        clock.advance(timedelta(minutes=4))
        assert place.rows() == []
        for _ in range(2):
            assert run(wait)["checkpoint"] == 1
            assert place.rows() == [1]
        assert (warnings(), job.coordinator.head().notices) == ([], ())
        assert notes.notes[""] == "Cairn: flights: checkpoint 1 completed · attempt 1 · started empty"
    assert job.coordinator.savepoint(stop, open_store).ended, "the stop goes on"
