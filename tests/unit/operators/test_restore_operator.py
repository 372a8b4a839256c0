"""`RestoreLatestCheckpointOperator` on a real store: it settles what is pending and says what the job starts from."""

from typing import Any

import pytest

from airflow_cairn.checkpoint.errors import NoCheckpointError
from airflow_cairn.operators import RestoreLatestCheckpointOperator
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.narrowing import known


def restore(job: Job, **options: Any) -> dict[str, Any]:
    operator = RestoreLatestCheckpointOperator(task_id="restore", storage=job.storage, job=job.name, **options)
    return operator.execute(context(Ti(run_id="repair")))


def damage(job: Job, checkpoint: int) -> None:
    (path,) = (job.folder / f"flights/chk-{checkpoint:010}").glob("_metadata*")
    path.write_bytes(path.read_bytes()[:-1])


def test_the_latest_completed_one(job: Job, said: Said) -> None:  # semantics R1
    job.complete("r1")
    job.complete("r2")
    assert restore(job) == {"job": "flights", "storage": job.storage, "checkpoint": 2, "damages": []}
    assert "The next epoch of job flights starts from checkpoint 2" in said.text


def test_what_is_pending_is_aborted(job: Job) -> None:  # semantics R5
    job.complete("r1")
    job.trigger("r2")
    assert restore(job)["checkpoint"] == 1
    head = job.coordinator.head()
    assert head.pending == ()
    ended = known(head.ended_by_id(2))
    assert ended.status == "FAILED"


def test_a_damaged_one_is_passed_over(job: Job, said: Said) -> None:  # semantics R1
    job.complete("r1")
    job.complete("r2")
    damage(job, 2)
    found = restore(job)
    assert found["checkpoint"] == 1
    (why,) = found["damages"]
    assert "chk-0000000002/" in why
    assert f"Not restored, because it is damaged: {why}" in said.text
    damage(job, 1)
    with pytest.raises(NoCheckpointError):  # never an empty start
        restore(job)


def test_nothing_to_go_back_to(job: Job, said: Said) -> None:  # semantics R2
    assert restore(job)["checkpoint"] is None
    assert "Job flights has no completed checkpoint: the next epoch starts empty" in said.text
    with pytest.raises(NoCheckpointError):
        restore(job, required=True)
