"""A driver that dies at any of its writes, while real Spark writes for it: the next try gives what it would have given.

What Spark writes no driver can take back; the driver's own writes (what it deletes, lists and acknowledges) decide
whether it counts. The driver dies before and after each of them, and clears nothing up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.spark import Epoch
from airflow_cairn.spark.tables import state, table
from tests.real.spark.pipeline import Pipeline, bounds, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def change(epoch: Epoch, number: int) -> None:
    """Update, aggregate, append, write whole and put: each kind of output, two of them as runs or new bases."""
    spark = epoch.spark
    epoch.update("newest", counts(spark, ("all", number), (f"k{number}", number)), key="route")
    epoch.aggregate("sums", counts(spark, ("all", number)), key="route", merge={"flights": "sum"})
    epoch.append("days", counts(spark, ("day", number)))
    epoch.snapshot("whole", counts(spark, ("all", number)))
    epoch.put("count", number)


def found(pipeline: Pipeline, spark: SparkSession) -> dict[str, object]:
    of = partial(state, spark, pipeline.storage, pipeline.job, "routes")
    kept = {name: rows(of(name)) for name in ("newest", "sums", "whole")}
    return {**kept, "days": rows(table(spark, pipeline.storage, pipeline.job, "days"))}


def expected(number: int) -> dict[str, object]:
    """Result of a plain recomputation after epochs 1 to `number`."""
    epochs = range(1, number + 1)
    return {
        "newest": sorted([("all", number), *((f"k{each}", each) for each in epochs)]),
        "sums": [("all", sum(epochs))],
        "whole": [("all", number)],
        "days": [("day", each) for each in epochs],
    }


# A death before a write leaves what one after the write before it has left.
@pytest.mark.soak  # test_histories.py kills at some, crash points at each
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_driver_killed_at_any_write_does_not_change_the_result(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:  # semantics A2, A5, K2, K3
    bounds(monkeypatch, 3)  # so runs, merged runs and new bases take turns
    writes = []
    for number in count(1):
        run_id, body = f"r{number}", _body(number)
        pipeline.trigger(run_id)
        died = pipeline.killed(run_id, body, number - 1, after=after)
        if not pipeline.has_acknowledged(run_id):
            with pipeline.epoch(run_id) as epoch:
                assert epoch.get("count", 0) == number - 1
                body(epoch)
        pipeline.complete(run_id)
        assert found(pipeline, spark) == expected(number), f"killed at {died}"
        if died is None:
            break
        writes.append(died.verb)
    assert {"create", "delete"} <= set(writes)
    assert len(writes) > 6, "so all kinds of runs have been struck"
    assert all(verified.whole for verified in pipeline.coordinator.verify())


def _body(number: int) -> Callable[[Epoch], None]:
    return lambda epoch: change(epoch, number)
