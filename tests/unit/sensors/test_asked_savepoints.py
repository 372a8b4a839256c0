"""The last task of an epoch makes the savepoints that people asked for from a page (P1)."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowRescheduleException

from airflow_cairn.checkpoint.documents.entries import SavepointEntry, Stopped
from airflow_cairn.checkpoint.reasons import Status
from airflow_cairn.checkpoint.savepoints.copy_out import Copying
from airflow_cairn.checkpoint.savepoints.savepoint_format import SavepointHeader
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.sensors.outcome import LATEST, SOONEST, again_after
from airflow_cairn.storage import open_store
from airflow_cairn.storage.errors import ForbiddenError, UnavailableError
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job
from tests.unit.sensors.test_sensor import RUN, at
from tests.unit.sensors.test_sensor import sensor as plain_sensor


def sensor(job: Job, **options: Any) -> CheckpointSensor:
    """The last task of the epoch, of a DAG that names where savepoints are made."""
    return plain_sensor(job, savepoint_target=now(job)[0].target, **options)


@pytest.fixture
def asked(job: Job, tmp_path: Path) -> SavepointEntry:
    """Savepoint that waits for the epoch, which then needs nothing but its sensor."""
    return waiting(job, tmp_path, "page-1")[0]


def waiting(job: Job, tmp_path: Path, *requests: str, stop: str = "") -> list[SavepointEntry]:
    """Have savepoints wait for the epoch, which then needs nothing but its sensor; with the request `stop` it stops."""
    job.trigger(RUN)
    target = f"file://{tmp_path}/kept"
    entries = [
        job.coordinator.open_savepoint(SavepointRequest(target, each, stop=each == stop, actor="ada"), open_store)
        for each in requests
    ]
    assert all(entry.waits for entry in entries)
    job.acknowledge(job.begin(RUN))
    return entries


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A target that does not answer, until it is undone."""

    def run(*_: object) -> None:
        raise UnavailableError("the target does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Copying, "run", run)
        yield patched


def now(job: Job) -> tuple[SavepointEntry, ...]:
    return job.coordinator.head().savepoints


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("named", [None, "mine"])
def test_one_in_a_place_that_the_dag_does_not_name_is_left(  # semantics P1, P2, W10
    job: Job, tmp_path: Path, said: Said, named: str | None, stop: bool
) -> None:
    """The job's record may name any place, for whoever may write it; no task of the job opens that place."""
    (entry,) = waiting(job, tmp_path, "page-1", stop="page-1" if stop else "")
    before = sorted((tmp_path / "kept").rglob("*"))
    target = named and f"file://{tmp_path / named}"
    assert plain_sensor(job, savepoint_target=target).execute(at())["checkpoint"] == 1
    assert (now(job)[0].status, sorted((tmp_path / "kept").rglob("*"))) == (Status.PENDING, before)
    assert f"Savepoint {entry.id}, asked for from the page, is left as it is" in said.text
    assert "`cairn savepoint JOB TARGET --request-id ID`" in said.text


def test_the_sensor_makes_it(job: Job, asked: SavepointEntry, said: Said) -> None:
    sensor(job).execute(at())
    assert (now(job)[0].status, now(job)[0].uri) == (Status.COMPLETED, asked.uri)
    assert f"Savepoint {asked.id}, which ada asked for, is complete: {asked.uri}" in said.text


def test_a_target_that_is_away_does_not_fail_the_epoch(
    job: Job, asked: SavepointEntry, said: Said, away: pytest.MonkeyPatch
) -> None:
    assert sensor(job).execute(at())["checkpoint"] == 1
    assert now(job)[0].status is Status.PENDING
    assert f"Savepoint {asked.id}, asked for from the page, could not be made now" in said.text
    away.undo()
    assert sensor(job).execute(at())["checkpoint"] == 1, "a clear of it, or the sensor of the next epoch"
    assert now(job)[0].status is Status.COMPLETED
    assert now(job)[0].id == asked.id


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_stop_is_tried_again(  # P2
    job: Job, tmp_path: Path, said: Said, away: pytest.MonkeyPatch, deferrable: bool
) -> None:
    """No other run begins until then, so no other task would come by."""
    (stop,) = waiting(job, tmp_path, "page-1", stop="page-1")
    for _ in range(2):
        with pytest.raises(AirflowRescheduleException) as caught:
            sensor(job, deferrable=deferrable).execute(at())
        wait = caught.value.reschedule_date - timezone.utcnow()
        assert SOONEST - timedelta(seconds=5) < wait <= LATEST
    assert f"The job could not be stopped with savepoint {stop.id} now; this task tries again" in said.text
    assert job.coordinator.head().stopped is None
    away.undo()
    assert sensor(job, deferrable=deferrable).execute(at()) is not None
    assert (now(job)[0].status, job.coordinator.head().stopped) == (Status.COMPLETED, Stopped.SHUTDOWN)


@pytest.mark.usefixtures("away")
def test_a_stop_that_somebody_gives_up_is_not_tried_again(job: Job, tmp_path: Path) -> None:
    waiting(job, tmp_path, "page-1", stop="page-1")
    with pytest.raises(AirflowRescheduleException):
        sensor(job).execute(at())
    job.coordinator.resume()
    assert sensor(job).execute(at())["checkpoint"] == 1


def test_one_that_fails_keeps_no_other_from_being_made(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = waiting(job, tmp_path, "page-1", "page-2", stop="page-2")
    whole = Copying.run

    def run(copying: Copying, header: SavepointHeader, *rest: Any) -> Any:
        if header.savepoint == first.id:
            raise ForbiddenError("no right to write there")
        return whole(copying, header, *rest)

    monkeypatch.setattr(Copying, "run", run)
    assert sensor(job).execute(at())["checkpoint"] == 1
    head = job.coordinator.head()
    assert [entry.status for entry in head.savepoints] == [Status.PENDING, Status.COMPLETED]
    assert head.stopped is Stopped.SHUTDOWN


@pytest.mark.parametrize(
    ("age", "wait"),
    [(timedelta(0), SOONEST), (timedelta(minutes=10), timedelta(minutes=1)), (timedelta(days=1), LATEST)],
)
def test_the_wait_grows(asked: SavepointEntry, age: timedelta, wait: timedelta) -> None:
    assert again_after(asked, asked.requested_at_ms + age // timedelta(milliseconds=1)) == wait
