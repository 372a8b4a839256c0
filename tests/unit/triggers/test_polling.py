"""Triggers as letters to another process; an error ends each by its one event."""

from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_cairn.checkpoint.errors import InvalidConfigError
from airflow_cairn.triggers import CheckpointTrigger, RequestTrigger, SavepointTrigger
from airflow_cairn.triggers.polling import PollingTrigger
from tests.support.airflow_stage import Job
from tests.support.trigger_events import payload

Make = Callable[..., PollingTrigger]


def _checkpoint(storage: str, job: str, conn_id: str | None = None, poll_interval: float = 0.01) -> PollingTrigger:
    return CheckpointTrigger(storage, job, "r1", aws_conn_id=conn_id, poll_interval=poll_interval)


def _request(storage: str, job: str, conn_id: str | None = None, poll_interval: float = 0.01) -> PollingTrigger:
    return RequestTrigger(storage, job, "r2", "periodic", 3, 60_000, conn_id, poll_interval, 40.0)


def _savepoint(storage: str, job: str, conn_id: str | None = None, poll_interval: float = 0.01) -> PollingTrigger:
    return SavepointTrigger(storage, job, "r1", "nightly", conn_id, poll_interval, 40.0)


pytestmark = pytest.mark.parametrize("make", [_checkpoint, _request, _savepoint], ids=lambda make: make.__name__[1:])


def test_it_survives_being_sent_as_a_letter(make: Make) -> None:
    first = make("s3://lake", "flights", "lake", 2.5)
    path, arguments = first.serialize()
    module, _, name = path.rpartition(".")
    second = getattr(__import__(module, fromlist=[name]), name)(**arguments)
    assert type(second) is type(first)
    assert second.serialize() == (path, arguments)
    assert {"s3://lake", "flights", "lake", 2.5} <= set(arguments.values())


@pytest.mark.parametrize("interval", [0, -1.0])
def test_the_interval_is_positive(make: Make, interval: float) -> None:
    with pytest.raises(InvalidConfigError, match="poll_interval must be above 0 seconds"):
        make("s3://lake", "flights", poll_interval=interval)


def test_a_connection_that_is_not_there_ends_the_wait(make: Make) -> None:
    found = payload(make("s3://lake/x", "flights", "nowhere"))
    assert found["status"] == "error"
    assert "nowhere" in found["detail"]


def test_a_broken_head_ends_the_wait(make: Make, job: Job, tmp_path: Path) -> None:
    job.trigger("r1")
    (tmp_path / "storage/flights/head.json").write_text("{")
    found = payload(make(job.storage, job.name))
    assert (found["status"], found["kind"]) == ("error", "data")
    assert "head.json" in found["detail"]
