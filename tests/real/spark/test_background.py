"""Snapshots in the background: the block goes on, its end waits, what fails or is cancelled leaves nothing (A5, B5)."""

# ruff: noqa: PT012 - the epoch's block as a whole is what raises
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.reasons import Reason
from airflow_cairn.spark.output.background import BackgroundSnapshotError
from scripts.harness.wait import wait_until
from tests.real.spark.pipeline import Pipeline, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def slow(spark: SparkSession, tasks: int, ms_each: int, rows_each: int = 1) -> DataFrame:
    """Give a frame whose every row takes its time, inside the JVM."""
    return spark.range(0, tasks * rows_each, 1, tasks).selectExpr(
        "id",
        f"java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', {ms_each}000000L * (id - id + 1)) AS x",
    )


def parts(pipeline: Pipeline, output: str) -> list[str]:
    """Give the data files of an output, those that are being written too."""
    return [each for each in pipeline.parquet("chk-0000000001/state/") if f"/{output}/" in each]


def test_the_block_goes_on_and_its_end_waits(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics A5, B5
    ran: list[str] = []
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch:
        epoch.before_snapshot(lambda: ran.append("step"))
        epoch.snapshot("slow", slow(spark, 1, 3000), background=True)
        assert ran == ["step"], "the step is part of the short part"
        assert not pipeline.parquet("chk-0000000001/state/")
        epoch.publish("league", counts(spark, ("A-B", 1)), background=True)
        epoch.snapshot("totals", counts(spark, ("A-B", 1)))
    ack = pipeline.ack()
    assert {output.id for output in ack.outputs} == {"state.slow", "state.totals", "table.league"}
    assert {handle.output for each in ack.subtasks for handle in each.handles} == {o.id for o in ack.outputs}
    assert ack.metrics.async_ms >= 3000, "what ran in the background is asynchronous"
    pipeline.complete("one")
    with pipeline.running("two") as epoch:
        assert [row[0] for row in rows(epoch.state("slow"))] == [0]


@pytest.mark.parametrize("caught", [False, True], ids=["at the end of the block", "although the author goes on"])
def test_one_that_fails_deletes_what_it_wrote_and_declines(
    spark: SparkSession, pipeline: Pipeline, caught: bool
) -> None:  # semantics A5, D1
    # One task, for the reason that `test_leaving.py` gives.
    broken = spark.range(0, 1000, 1, 1).selectExpr("id", "if(id = 999, raise_error('boom'), 'fine') as x")
    said = r"the snapshot state\.broken failed .*boom"
    with pytest.raises(BackgroundSnapshotError, match=said), pipeline.running("one") as epoch:
        epoch.snapshot("good", counts(spark, ("A-B", 1)), background=True)
        epoch.snapshot("broken", broken, background=True)
        if caught:
            wait_until(lambda: epoch._outputs._background._all[1].error, 300, "the write to fail")
            assert not [each for each in pipeline.listing("chk-0000000001/state/") if "broken" in each], "at once"
            with pytest.raises(BackgroundSnapshotError):
                epoch.snapshot("more", counts(spark, ("A-B", 1)))
    assert pipeline.listing("chk-0000000001/state/") == []
    assert pipeline.folders() == []
    assert pipeline.declined().reason is Reason.CHECKPOINT_ASYNC_EXCEPTION
    assert "boom" in pipeline.declined().detail
    assert pipeline.listing("chk-0000000001/acks/") == []


def test_a_block_that_raises_cancels_what_is_being_written(  # semantics A5
    spark: SparkSession, pipeline: Pipeline
) -> None:
    """An hour of work is under way when the block raises: it is stopped, and no file of it or of the other is left."""
    with pytest.raises(ZeroDivisionError), pipeline.running("one") as epoch:
        epoch.snapshot("done", counts(spark, ("A-B", 1)), background=True)
        # Before the other begins, whose two tasks take both of Spark's slots.
        wait_until(lambda: epoch._outputs._background._all[0].stored, 300, "the first to be written")
        epoch.snapshot("hour", slow(spark, 2, 20, 180_000), background=True)
        # Both tasks write: one that only starts might make a file after all has been deleted.
        wait_until(lambda: len(parts(pipeline, "state.hour")) == 2, 300, "both tasks to write")
        raise ZeroDivisionError
    assert pipeline.declined().reason is Reason.CHECKPOINT_DECLINED
    assert pipeline.listing("chk-0000000001/state/") == []
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), 300, "Spark to be idle")
    assert pipeline.listing("chk-0000000001/state/") == [], "a task that ends late may make a folder, and no file"
