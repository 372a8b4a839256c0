"""Inputs of epochs, on a real Airflow: files that arrive, and the events of an asset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.harness.airflow_home import AirflowHome
from scripts.harness.wait import wait_until
from tests.real.airflow.conftest import Gates
from tests.real.airflow.scenario import kill_driver
from tests.real.airflow.store import JobStore

pytestmark = [pytest.mark.e2e, pytest.mark.side_by_side]

TRIGGER, FIRST = "epoch.trigger_checkpoint", "epoch.read"
PAUSE_MS = 15_000
"""`min_pause` in `dags/sources.py`: longer than an order takes to become a run, on a machine that is not slow."""


def declined(airflow: AirflowHome, dag_id: str, run_id: str) -> dict[str, Any]:
    """Give what a trigger that waits has said; it waits outside of any worker slot, in the first stage's task."""
    airflow.api.wait_for_task(dag_id, run_id, FIRST, states={"deferred"})
    told: dict[str, Any] = airflow.api.xcom(dag_id, run_id, TRIGGER, "cairn_declined")
    return told


def completed(airflow: AirflowHome, dag_id: str, run_id: str) -> None:
    airflow.api.wait_for_run(dag_id, run_id)
    assert airflow.api.run_state(dag_id, run_id) == "success", airflow.api.explain(dag_id, run_id)


def read(gates: Gates, dag_id: str, run_id: str, attempt: int = 1) -> dict[str, Any]:
    """Give what the application was handed to read."""
    noted = (gates.folder / "read" / dag_id / run_id / str(attempt) / "read").read_text()
    found: dict[str, Any] = json.loads(noted)["sources"]
    return found


def files(gates: Gates, run_id: str, attempt: int = 1) -> list[str]:
    return [file["key"] for file in read(gates, "source_files", run_id, attempt)["files"]["files"]]


def test_files_are_read_once_by_retries_and_by_runs_at_once(
    airflow: AirflowHome, gates: Gates, shared: Path, storage: str
) -> None:
    """semantics T8, T2: a retry reads what its first try was to read; a second run waits for the first."""
    folder, job = shared / "input", JobStore(storage, "source_files")
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_text(name)
    airflow.api.trigger("source_files", "e1")
    completed(airflow, "source_files", "e1")
    assert files(gates, "e1") == ["a.txt", "b.txt"]
    assert f"files: 2 files to read from file://{folder}" in airflow.api.log("source_files", "e1", FIRST)

    (folder / "c.txt").write_text("c")
    gates.hold("source_files", "e2", 1, "read")
    airflow.api.trigger("source_files", "e2")
    driver = gates.wait_until_reached("source_files", "e2", 1, "read")
    (folder / "d.txt").write_text("d")
    airflow.api.trigger("source_files", "e3")
    told = declined(airflow, "source_files", "e3")
    assert (told["reason"], told["position"]) == ("TOO_MANY_CONCURRENT_CHECKPOINTS", 1)
    assert "checkpoint 2 of DAG run e2 is pending" in told["detail"]
    kill_driver(driver)
    completed(airflow, "source_files", "e2")
    assert airflow.api.task("source_files", "e2", "epoch.read").try_number == 2
    assert files(gates, "e2", 1) == files(gates, "e2", 2) == ["c.txt"]
    completed(airflow, "source_files", "e3")
    assert files(gates, "e3") == ["d.txt"]
    outcomes = [(1, 1, "COMPLETED"), (2, 1, "JOB_FAILOVER_REGION"), (3, 2, "COMPLETED"), (4, 1, "COMPLETED")]
    assert job.outcomes() == outcomes
    assert job.unreferenced() == []


def test_events_of_an_asset_and_the_pause_after_a_completion(airflow: AirflowHome, gates: Gates, storage: str) -> None:
    """semantics T3, T8: a run that an asset triggered reads its events, and waits until the pause is over."""
    first, second = (ordered(airflow, gates, number) for number in (1, 2))
    assert first != second
    history = JobStore(storage, "source_events").coordinator.head().history
    before, after = sorted(history, key=lambda entry: entry.id)
    # However late the second order is, its checkpoint is not triggered before the pause is over.
    assert after.triggered_at_ms >= before.ended_at_ms + PAUSE_MS


def ordered(airflow: AirflowHome, gates: Gates, number: int) -> str:
    """Let an order come in, and see that the run that it triggers reads it and completes."""
    run_id = order(airflow, number)
    completed(airflow, "source_events", run_id)
    assert [event["extra"]["order"] for event in read(gates, "source_events", run_id)["events"]] == [number]
    return run_id


def order(airflow: AirflowHome, number: int) -> str:
    """Let an order come in; give the id of the run that it triggers."""
    before = {run["dag_run_id"] for run in airflow.api.runs("source_events")}
    assets = airflow.api.request("GET", "/assets", params={"name_pattern": "orders"})["assets"]
    body = {"asset_id": assets[0]["id"], "extra": {"order": number}}
    airflow.api.request("POST", "/assets/events", json=body)

    def appeared() -> str | None:
        return next(
            (run["dag_run_id"] for run in airflow.api.runs("source_events") if run["dag_run_id"] not in before), None
        )

    return wait_until(appeared, 600, f"a run for order {number}", interval=0.5)
