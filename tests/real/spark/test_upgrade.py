"""The store of each release goes on under this version: pending epoch, failover, state, savepoint (semantics C5).

`tests/stores_released/0.1.tar.gz` was written by version 0.1 and its Spark code, never by this one: two completed
epochs, a savepoint of the second, and a third epoch whose first stage has acknowledged. Epoch n adds n times 0 to 4.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from airflow_cairn.checkpoint.answers import FailedOver, StageAcknowledged
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.spark import table
from airflow_cairn.storage import open_store
from tests.real.spark.pipeline import Pipeline, rows
from tests.support.narrowing import known

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from airflow_cairn.spark import Epoch

pytestmark = pytest.mark.spark

STORES = Path(__file__).parents[2] / "stores_released"
STAGES = (StageSpec("routes", (), 2), StageSpec("report", ("routes",)))


@pytest.fixture(params=sorted(STORES.iterdir()), ids=lambda archive: archive.name.removesuffix(".tar.gz"))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path / "lake", filter="data")
    return tmp_path / "lake"


@pytest.fixture
def released(lake: Path, spark: SparkSession) -> Iterator[Pipeline]:
    made = Pipeline(f"file://{lake}", spark, STAGES, retained=3)
    yield made
    made.forget()


def totals(times: int) -> list[tuple[str, int]]:
    return [(f"k{each}", each * times) for each in range(5)]


def add(epoch: Epoch, spark: SparkSession, times: int, model: Path) -> None:
    """Do what the released application did: fold in an epoch's numbers, and keep one state of every kind."""
    before = known(epoch.state("totals"))
    added = spark.createDataFrame(totals(times), "key string, n long")
    after = before.unionByName(added).groupBy("key").agg(F.sum("n").alias("n"))
    assert epoch.restore_files("model", model)
    assert (model / "model.bin").read_bytes() == bytes(range(256))
    assert epoch.get("large") == {"seen": ["x" * 1000] * 40}
    epoch.snapshot("totals", after, key="key")
    epoch.snapshot_list("offsets", [[{"p": 0, "at": 7 * times}, {"p": 1, "at": 9 * times}], []])
    epoch.snapshot_files("model", model)
    epoch.put("small", times)
    epoch.put("large", epoch.get("large"))
    epoch.write(after)
    epoch.publish("totals", after)


def finish(job: Pipeline, run_id: str) -> None:
    with job.epoch(run_id, "report") as epoch:
        exchanged = epoch.read("routes")
        assert exchanged is not None
        epoch.put("count", exchanged.count())
    job.complete(run_id)


@pytest.mark.parametrize(
    "fails_first", [pytest.param(False, marks=pytest.mark.soak), True], ids=["goes on", "fails over"]
)
def test_the_epoch_that_was_pending_completes(
    released: Pipeline, spark: SparkSession, tmp_path: Path, *, fails_first: bool
) -> None:
    assert [each.id for each in released.coordinator.head().completed] == [1, 2]
    assert all(each.whole for each in released.coordinator.verify(deep=True))
    if fails_first:
        died = released.begin("three", "report").handover
        answer = released.coordinator.fail(died.epoch, died.stage, died.claimant, "killed")
        assert isinstance(answer, FailedOver), answer
        assert answer.pending.attempt == died.attempt + 1
        # Another region: what 0.1 wrote for it counts for the second attempt.
        assert isinstance(released.coordinator.begin(died.epoch, "routes", "a try of today"), StageAcknowledged)
    finish(released, "three")
    released.trigger("four")
    with released.epoch("four") as epoch:
        assert rows(epoch.state("totals")) == totals(1 + 2 + 3)
        assert epoch.list_state("offsets") == [[{"p": 0, "at": 21}, {"p": 1, "at": 27}], []]
        assert epoch.get("small") == 3
        add(epoch, spark, 4, tmp_path / "4")
    finish(released, "four")
    assert rows(table(spark, released.storage, "flights", "totals")) == totals(1 + 2 + 3 + 4)
    assert all(each.whole for each in released.coordinator.verify(deep=True))


def test_a_job_starts_from_the_savepoint(lake: Path, spark: SparkSession, tmp_path: Path) -> None:
    [savepoint] = (lake / "savepoints").glob("savepoint-*")
    job = Pipeline(f"file://{lake}", spark, STAGES, job="another", retained=3)
    job.coordinator.start_from(open_store(f"file://{savepoint}"))
    job.trigger("one")
    with job.epoch("one") as epoch:
        assert rows(epoch.state("totals")) == totals(1 + 2)
        add(epoch, spark, 3, tmp_path / "model")
    finish(job, "one")
    assert rows(table(spark, job.storage, "another", "totals")) == totals(1 + 2 + 3)
    job.forget()
