"""A store that refuses for a minute fails no task: each role waits for it in its own try (semantics W3)."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.operators import (
    DisposeSavepointOperator,
    RestoreLatestCheckpointOperator,
    SavepointOperator,
    SparkEpochOperator,
    StageSpec,
    TriggerCheckpointOperator,
)
from airflow_cairn.sensors import CheckpointSensor, CompletedEpochSensor
from airflow_cairn.spark.handover import conf
from airflow_cairn.storage import ForbiddenError, S3Options, open_store
from airflow_cairn.storage.network.waiting import LONGEST_S
from scripts.harness.s3_server import S3Server
from tests.support.airflow_fixtures import Define, Said
from tests.support.airflow_stage import Job, Ti, context
from tests.support.s3_proxy import Action, Request, Rule, S3Proxy, answer

pytestmark = pytest.mark.s3

RUN = "manual__r1"


@dataclass
class Refusal(Rule):
    """Refuses everything while it lasts; only waits move its clock on."""

    method: str = ""
    key: str = ""
    action: Action = field(default_factory=lambda: answer(403, "AccessDenied"))
    times: int = 1 << 30
    lasts_s: float = 0.0
    now: float = 0.0

    def fits(self, request: Request) -> bool:
        return self.now < self.lasts_s

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class LakeJob(Job):
    """A job on S3; the others that play a part in it are not refused."""

    bucket: str = ""
    options: S3Options = field(default_factory=S3Options)

    @property
    def storage(self) -> str:
        return f"s3://{self.bucket}/cairn"

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(open_store(self.storage, s3=self.options), self.name)


@pytest.fixture
def refusal() -> Refusal:
    return Refusal()


@pytest.fixture
def lake(
    job: Job,
    refusal: Refusal,
    s3_server: S3Server,
    s3_bucket: str,
    s3_options: S3Options,
    connections: Define,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LakeJob]:
    with S3Proxy(s3_server.endpoint_url) as proxy:
        proxy.rules.append(refusal)
        extra = {"endpoint_url": proxy.url, "region_name": s3_server.region}
        keys = {"login": s3_server.access_key, "password": s3_server.secret_key}
        connections("lake", json.dumps({"conn_type": "aws", **keys, "extra": extra}))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
        monkeypatch.setenv("CAIRN_TEST_PROXY", proxy.url)
        waits = partial(open_store, sleep=refusal.sleep, clock=lambda: refusal.now)
        monkeypatch.setattr("airflow_cairn.hooks.storage.open_store", waits)
        monkeypatch.setattr("airflow_cairn.spark.handover.conf.open_store", waits)
        yield LakeJob(job.folder, job.name, s3_bucket, s3_options)


def _execute(task: Any, run_id: str = RUN) -> Any:
    return task.execute(context(Ti(run_id=run_id)))


def task(kind: Any, job: LakeJob, **options: Any) -> Any:
    return kind(task_id="routes", storage=job.storage, job=job.name, aws_conn_id="lake", **options)


def trigger(job: LakeJob) -> Callable[[], Any]:
    of = task(TriggerCheckpointOperator, job, stages=[StageSpec("routes")], reads_window=False)
    return lambda: _execute(of)["checkpoint"] == 1


def stage(job: LakeJob) -> Callable[[], Any]:
    job.trigger(RUN)
    job.acknowledge(job.begin(RUN))
    of = task(SparkEpochOperator, job, application="routes.py")
    return lambda: _execute(of) is None and job.coordinator.head().completed


def driver(job: LakeJob) -> Callable[[], Any]:
    job.trigger(RUN)
    handover = job.begin(RUN)
    (key,) = (each for each in job.coordinator.files.listing("") if "/handover/" in each.key)
    told = {conf.STORAGE: job.storage, conf.JOB: job.name, conf.HANDOVER: key.key}

    def open_handover() -> object:
        handed = conf.parse((told | {conf.S3_ENDPOINT: os.environ["CAIRN_TEST_PROXY"]}).get)
        store = handed.open_store()
        return handover.token.encode() in store.get(f"{job.name}/{handed.handover_key}").data

    return open_handover


def restore(job: LakeJob) -> Callable[[], Any]:
    job.complete(RUN)
    of = task(RestoreLatestCheckpointOperator, job)
    return lambda: _execute(of)["checkpoint"] == 1


def savepoint(job: LakeJob) -> Callable[[], Any]:
    job.complete(RUN)
    of = task(SavepointOperator, job, target=f"s3://{job.bucket}/kept")
    return lambda: _execute(of)["checkpoint"] == 1


def dispose(job: LakeJob) -> Callable[[], Any]:
    job.complete(RUN)
    folder = _execute(task(SavepointOperator, job, target=f"s3://{job.bucket}/kept"))["savepoint"]
    of = DisposeSavepointOperator(task_id="dispose", storage=job.storage, savepoint=folder, aws_conn_id="lake")
    return lambda: _execute(of)["disposed"] == [folder]


def sensor(job: LakeJob) -> Callable[[], Any]:
    job.trigger(RUN)
    job.acknowledge(job.begin(RUN))
    of = task(CheckpointSensor, job, deferrable=False, poke_interval=0.01)
    return lambda: _execute(of)["checkpoint"] == 1


def other_dag(job: LakeJob) -> Callable[[], Any]:
    job.complete(RUN)
    of = task(CompletedEpochSensor, job, run_id=RUN, deferrable=False)
    return lambda: _execute(of, "another")["checkpoint"] == 1


Role = Callable[[LakeJob], Callable[[], Any]]
ROLES = (trigger, stage, driver, restore, savepoint, dispose, sensor, other_dag)
REFUSALS = [(403, "AccessDenied"), (403, "RequestTimeTooSkewed"), (400, "ExpiredToken"), (503, "SlowDown")]


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        pytest.param(role, each, id=f"{role.__name__}-{each[1]}", marks=() if at % 4 == which else pytest.mark.soak)
        for at, role in enumerate(ROLES)
        for which, each in enumerate(REFUSALS)
    ],
)
def test_a_refusal_of_a_minute_is_waited_for(
    lake: LakeJob, refusal: Refusal, said: Said, role: Role, refused: tuple[int, str]
) -> None:
    act = role(lake)
    refusal.action, refusal.lasts_s = answer(*refused), 60.0
    assert act(), "and the task has done its work"
    assert refusal.now >= 60
    assert said.text.count("Waiting for the store since ") == 1
    assert "with the credentials of the connection lake" in said.text or role is driver


@pytest.mark.parametrize("role", ROLES, ids=[role.__name__ for role in ROLES])
def test_one_that_lasts_ends_with_the_stores_words(lake: LakeJob, refusal: Refusal, role: Role) -> None:
    act = role(lake)
    refusal.lasts_s = 1e9
    with pytest.raises(ForbiddenError, match="AccessDenied: said the proxy"):
        act()
    assert LONGEST_S <= refusal.now < 2 * LONGEST_S


def test_a_sensor_waits_in_the_triggerer(lake: LakeJob, refusal: Refusal, said: Said) -> None:
    lake.complete(RUN)
    refusal.lasts_s = 1e9
    for waits in (task(CheckpointSensor, lake), task(CompletedEpochSensor, lake, run_id=RUN)):
        with pytest.raises(TaskDeferred):
            _execute(waits)
    assert said.text.count("The storage refuses the credentials, asking again: ") == 2
    assert refusal.now == 0.0, "the task waits for nothing"
