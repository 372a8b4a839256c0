"""The last task of an epoch makes the savepoints that people asked for from a page (P1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cairn.checkpoint.documents.entries import SavepointEntry
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints.copy_out import Copying
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import UnavailableError
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job
from tests.unit.sensors.test_sensor import RUN, at, sensor


@pytest.fixture
def asked(job: Job, tmp_path: Path) -> SavepointEntry:
    """One that waits for the epoch, which then needs nothing but its sensor."""
    job.trigger(RUN)
    request = SavepointRequest(f"file://{tmp_path}/kept", "page-1", actor="ada")
    entry = job.coordinator.open_savepoint(request, open_store)
    assert entry.waits
    job.acknowledge(job.begin(RUN))
    return entry


def now(job: Job) -> SavepointEntry:
    (entry,) = job.coordinator.head().savepoints
    return entry


def test_the_sensor_makes_it(job: Job, asked: SavepointEntry, said: Said) -> None:
    sensor(job).execute(at())
    assert (now(job).status, now(job).uri) == (Status.COMPLETED, asked.uri)
    assert f"savepoint {asked.id}, which ada asked for, is complete: {asked.uri}" in said.text


def test_a_target_that_is_away_does_not_fail_the_epoch(
    job: Job, asked: SavepointEntry, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise UnavailableError("the target does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Copying, "run", away)
        assert sensor(job).execute(at())["checkpoint"] == 1
    assert now(job).status is Status.PENDING
    assert "could not be made now; the next task goes on" in said.text
    assert sensor(job).execute(at())["checkpoint"] == 1, "a clear of it, or the sensor of the next epoch"
    assert now(job).status is Status.COMPLETED
    assert now(job).id == asked.id
