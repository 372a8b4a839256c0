"""A write that runs is stopped once nobody waits for it: its driver does not compute to its end (semantics B4, F3)."""

# ruff: noqa: PT012 - the epoch's block as a whole is what raises
from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.spark.execution import fence
from scripts.harness.wait import wait_until
from tests.real.spark.pipeline import Pipeline, rows
from tests.real.spark.test_background import parts, slow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence, "LOOK_EVERY_MS", 50)


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_minutes_of_work_are_stopped_when_another_attempt_takes_over(
    spark: SparkSession, pipeline: Pipeline, background: bool
) -> None:  # semantics B4, F3, A5
    pipeline.trigger("one")
    zombie = pipeline.epoch("one")

    def replace() -> None:
        # Both tasks write: one that only starts might make a file after all has been deleted.
        wait_until(lambda: len(parts(pipeline, "state.minutes")) == 2, 300, "both tasks to write")
        pipeline.begin("one")

    other = Thread(target=replace)
    other.start()
    with pytest.raises(FencedError, match="replaced: attempt 2, checkpoint 2, runs the stage now"), zombie:
        zombie.snapshot("minutes", slow(spark, 2, 20, 9_000), background=background)
        assert background, "the call itself raises"
    other.join()
    assert pipeline.listing("chk-0000000001/state/") == []
    assert pipeline.listing("chk-0000000001/acks/") == []
    assert not list(spark.sparkContext.getJobTags()), "none is left behind"
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), 300, "Spark to be idle")


def test_a_write_that_counts_is_watched_and_left_alone(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.run("one", lambda epoch: epoch.snapshot("second", slow(spark, 1, 1000)))
    with pipeline.running("two") as epoch:
        assert [row[0] for row in rows(epoch.state("second"))] == [0]


def test_a_write_that_fails_by_itself_says_so(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.trigger("one")
    broken = spark.range(1).selectExpr("raise_error('boom') AS x")
    with pytest.raises(Exception, match="boom"), pipeline.epoch("one") as epoch:
        epoch.snapshot("broken", broken)
