"""The step before a stage's first snapshot (semantics B5)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

import pytest

from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.spark.output.background import BeforeSnapshot
from tests.real.spark.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Clock:
    """Moves on by 7 ms whenever it is looked at."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        self.now_ms += 7
        return self.now_ms


@pytest.fixture
def step() -> BeforeSnapshot:
    return BeforeSnapshot(Clock())


def test_it_runs_once_and_its_time_is_known(step: BeforeSnapshot) -> None:  # semantics B5
    ran: list[int] = []
    step.set(lambda: ran.append(1))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: step.run(), range(64)))
    assert (ran, step.took_ms) == ([1], 7)


def test_without_one_nothing_runs(step: BeforeSnapshot) -> None:
    step.run()
    assert step.took_ms == 0


def test_what_failed_is_not_run_again(step: BeforeSnapshot) -> None:  # semantics B5
    ran: list[int] = []

    def fail() -> None:
        ran.append(1)
        raise OSError("no buffer")

    step.set(fail)
    with pytest.raises(OSError, match="no buffer"):
        step.run()
    with pytest.raises(InvalidStateError, match=r"cannot acknowledge.*no buffer"):
        step.run()
    assert ran == [1]


def test_a_step_that_writes_is_refused(step: BeforeSnapshot) -> None:
    step.set(step.run)
    with pytest.raises(InvalidStateError, match="writes a snapshot or table itself"):
        step.run()


def test_what_is_no_step(step: BeforeSnapshot) -> None:
    with pytest.raises(InvalidStateError, match="without arguments"):
        step.set(cast("Callable[[], object]", 3))
    step.set(list)
    with pytest.raises(InvalidStateError, match="twice"):
        step.set(list)
    step.run()
    with pytest.raises(InvalidStateError, match="at the start"):
        step.set(list)


@pytest.mark.spark
def test_it_runs_before_the_first_snapshot_and_not_before_an_exchange(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics B5
    ran: list[str] = []
    pipeline.trigger("day1")
    with pipeline.epoch("day1") as epoch:
        epoch.before_snapshot(lambda: ran.append("step"))
        epoch.write(spark.range(3))
        assert ran == []
        epoch.snapshot("totals", spark.range(3))
        assert ran == ["step"]
        epoch.publish("table", spark.range(3))
    assert ran == ["step"]
    assert pipeline.complete("day1") == 1
