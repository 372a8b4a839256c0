"""A bucket that is not there, and credentials that are refused, on a real S3 server: each task says what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from airflow_cairn.operators import (
    DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
    SavepointOperator,
    SparkEpochOperator,
    StageSpec,
    TriggerCheckpointOperator,
)
from airflow_cairn.sensors import CheckpointSensor
from airflow_cairn.storage.errors import CairnError, ErrorKind, ForbiddenError
from airflow_cairn.storage.network.waiting import Waiting
from airflow_cairn.triggers import CheckpointTrigger
from scripts.harness.s3_server import S3Server
from tests.support.airflow_stage import Job, Ti, context

pytestmark = pytest.mark.s3

WRONG = "canary-wrong-0123456789"
TASKS: dict[str, Callable[..., Any]] = {
    "trigger": lambda **where: TriggerCheckpointOperator(
        task_id="t", reads_window=False, stages=[StageSpec("routes")], **where
    ),
    "stage": lambda **where: SparkEpochOperator(task_id="t", application="a.py", **where),
    "wait": lambda **where: CheckpointSensor(task_id="t", deferrable=False, **where),
    "restore": lambda **where: RestoreLatestCheckpointOperator(task_id="t", **where),
}


@pytest.fixture(autouse=True)
def _ended_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for a store end at once: the errors after them are tested here."""
    monkeypatch.setattr("airflow_cairn.hooks.storage.Waiting", partial(Waiting, longest_s=0.0))
    monkeypatch.setattr("airflow_cairn.triggers.polling.LONGEST_S", 0.0)


@pytest.fixture
def lake(s3_server: S3Server, connections: Callable[[str, str], None]) -> Callable[[str], None]:
    """Define the connection `lake` to the real server, with a secret of the test's choice."""

    def define(secret_key: str) -> None:
        extra = {"endpoint_url": s3_server.endpoint_url, "region_name": s3_server.region}
        account = {"login": s3_server.access_key, "password": secret_key}
        connections("lake", json.dumps({"conn_type": "aws", **account, "extra": extra}))

    return define


def failure(task: str, storage: str, **where: Any) -> CairnError:
    """Run a task that fails; gives its error."""
    operator = TASKS[task](storage=storage, job="flights", **where)
    with pytest.raises(CairnError) as caught:
        operator.execute(context(Ti(run_id="r1")))
    return caught.value


@pytest.mark.parametrize("task", TASKS)
def test_a_bucket_that_does_not_exist(task: str, s3_server: S3Server, lake: Callable[[str], None]) -> None:
    lake(s3_server.secret_key)
    error = failure(task, "s3://nowhere-at-all/cairn", aws_conn_id="lake")
    assert "the bucket does not exist. Create it, or correct the storage URI" in str(error)
    assert f"store=`s3://nowhere-at-all/cairn at {s3_server.endpoint_url}`" in str(error)


@pytest.mark.parametrize("task", TASKS)
def test_a_wrong_secret(task: str, s3_bucket: str, lake: Callable[[str], None]) -> None:  # semantics W3
    lake(WRONG)
    error = failure(task, f"s3://{s3_bucket}/cairn", aws_conn_id="lake")
    assert isinstance(error, ForbiddenError)
    assert "the store refuses these credentials (SignatureDoesNotMatch" in str(error)
    assert "Check the keys and their rights" in str(error)
    assert "aws_conn_id=`lake`" in str(error)
    assert WRONG not in str(error)


def test_a_wrong_secret_of_the_environment(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**s3_server.env, "AWS_SECRET_ACCESS_KEY": WRONG}.items():
        monkeypatch.setenv(name, value)
    error = failure("trigger", f"s3://{s3_bucket}/cairn")
    assert "the store refuses these credentials" in str(error)
    assert "aws_conn_id=`none, so boto3's own chain`" in str(error)


def test_the_triggerer_says_it_too(s3_bucket: str, lake: Callable[[str], None]) -> None:
    lake(WRONG)

    async def event() -> dict[str, Any]:
        waiting = CheckpointTrigger(f"s3://{s3_bucket}/cairn", "flights", "r1", aws_conn_id="lake")
        return {**(await anext(aiter(waiting.run()))).payload}

    found = asyncio.run(asyncio.wait_for(event(), 300))
    assert (found["status"], found["kind"]) == ("error", str(ErrorKind.FORBIDDEN))
    assert "the store refuses these credentials" in found["detail"]
    assert "aws_conn_id=`lake`" in found["detail"]


@pytest.mark.parametrize("asks", ["take", "dispose"])
def test_a_target_that_refuses_names_its_own_connection(
    asks: str, job: Job, s3_bucket: str, lake: Callable[[str], None]
) -> None:  # semantics P1, W3
    lake(WRONG)
    job.complete("r1")
    where: dict[str, Any] = {"task_id": asks, "storage": job.storage, "target_aws_conn_id": "lake"}
    kept = f"s3://{s3_bucket}/kept"
    task = (
        SavepointOperator(job="flights", target=kept, **where)
        if asks == "take"
        else DisposeSavepointOperator(savepoint=f"{kept}/savepoint-flights-1", **where)
    )
    with pytest.raises(ForbiddenError, match=rf"refuses these credentials.*store=`{kept}/sav.*conn_id=`lake`") as told:
        task.execute(context(Ti(run_id="r1")))
    assert told.value.fields["target_aws_conn_id"] == "lake"
    assert job.coordinator.head().savepoints == ()
