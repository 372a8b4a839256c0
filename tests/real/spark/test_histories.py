"""Any history of states that grow equals a plain recomputation (semantics K1, K2, K3, K7, K8, R4)."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.spark import Epoch, compact
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.spark.tables import state
from tests.real.spark.drawn_histories import (
    COMPACTED,
    HISTORIES,
    MERGE,
    SMALL,
    TRIES_AND_A_REWIND,
    History,
    Rows,
    Step,
    frame,
    latest,
    partials,
    texts,
    totals,
)
from tests.real.spark.pipeline import Pipeline, bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

EXAMPLES = int(os.environ.get("CAIRN_EXAMPLES", "1"))
"""Histories that are drawn, others in each run: `make soak` draws 50."""


@pytest.mark.parametrize(
    ("history", "compacted"),
    [
        pytest.param(TRIES_AND_A_REWIND, 0, id="tries and a rewind"),
        pytest.param(COMPACTED, 8, id="compacted", marks=pytest.mark.soak),
        pytest.param(SMALL, 0, id="small", marks=pytest.mark.soak),
    ],
)
def test_a_history_equals_a_plain_recomputation(
    spark: SparkSession, tmp_path: Path, history: History, compacted: int
) -> None:  # semantics K1, K2, K3, K7, K8, R4
    """Updates, deletes, keys that come back, null and NaN as keys, other parallelisms, tries that fail or die, rewinds.

    Runs are merged, and there are new bases, by epochs and by compactions. The same where the states are small.
    """
    played = Played(spark, f"file://{tmp_path}", history)
    played.play()
    assert played.outcomes == ["compacted"] * compacted


@pytest.mark.soak
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=HISTORIES)
def test_any_history_equals_a_plain_recomputation(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, history: History
) -> None:  # semantics K1, K2, K3, K7, K8, R4
    Played(spark, f"file://{tmp_path_factory.mktemp('lake')}", history).play()


class Played:
    """A job that lives through a history, and what its states must have."""

    def __init__(self, spark: SparkSession, lake: str, history: History) -> None:
        self.spark = spark
        self.lake = lake
        self.history = history
        self.rows: list[Rows] = [{}]
        """Rows of the updated state, after each epoch that counts."""
        self.written: list[tuple[int, Rows]] = []
        """Numbers and partials of the epochs that count."""
        self.outcomes: list[str] = []
        """Outcomes of the compactions."""

    def play(self) -> None:
        """Live through it; what each epoch restores and is given back is compared, and what is there at the end."""
        with pytest.MonkeyPatch.context() as patch:
            bounds(patch, self.history.most)
            patch.setattr(deltas, "FAN_IN_PARTIALS", 2)
            if self.history.small:
                patch.setattr(merges, "WHOLE_BYTES", 1 << 20)
            for number, step in enumerate(self.history.steps):
                stages = (StageSpec("routes", (), step.parallelism, 8),)
                pipeline = Pipeline(self.lake, self.spark, stages, retained=3)
                self._epoch(pipeline, number, step)
                pipeline.forget()
        self._same(lambda name: state(self.spark, self.lake, "flights", "routes", name))

    def _epoch(self, pipeline: Pipeline, number: int, step: Step) -> None:
        head = pipeline.coordinator.head() if number else None
        if step.rewind and head is not None and len(head.completed) > 1:
            pipeline.coordinator.rewind(head.completed[-2].id)
            self.rows.pop()
            self.written.pop()
        if step.compact == "before" and number:
            self._compact(pipeline)
        given_ = dict(step.given().values())
        rows = frame(self.spark, given_)
        deletes = frame(self.spark, dict.fromkeys(step.gone().values())).select("k")

        def body(epoch: Epoch) -> dict[str, DataFrame]:
            return {
                "latest": epoch.update("latest", rows, key="k", deletes=deletes),
                "totals": epoch.aggregate("totals", partials(rows, number), key="k", merge=MERGE),
            }

        run_id = f"r{number}"
        pipeline.trigger(run_id)
        if step.tried == "fails":
            pipeline.failed(run_id, body)
        if step.tried == "killed":
            pipeline.killed(run_id, body, step.at, after=bool(number % 2))
        # The write that it is killed at may have been the acknowledgement, or it may have none so late.
        if not pipeline.has_acknowledged(run_id):
            with pipeline.epoch(run_id) as epoch:
                if number:
                    self._same(partial(_restored, epoch, step.parallelism))
                if step.compact == "beside" and number:
                    self._compact(pipeline)
                after = body(epoch)
                self._take(number, step)
                self._same(after.__getitem__)
        else:
            self._take(number, step)
        pipeline.complete(run_id)

    def _take(self, number: int, step: Step) -> None:
        now = {key: value for key, value in self.rows[-1].items() if key not in step.gone()}
        given_of = {key: value for key, (_, value) in step.given().items()}
        self.rows.append(now | given_of)
        self.written.append((number, given_of))

    def _same(self, read: Callable[[str], DataFrame]) -> None:
        for name, expected in (("latest", latest(self.rows[-1])), ("totals", totals(self.written))):
            assert texts(read(name).collect()) == expected

    def _compact(self, pipeline: Pipeline) -> None:
        for name in ("latest", "totals"):
            found = compact(self.spark, self.lake, pipeline.job, "routes", name)
            self.outcomes += [each.outcome for each in found]


def _restored(epoch: Epoch, parallelism: int, name: str) -> DataFrame:
    """Give what is restored: of the updated state by subtask, of the other all at once."""
    parts = [epoch.state(name, subtask=subtask) for subtask in range(parallelism if name == "latest" else 0)]
    there = [part for part in parts or [epoch.state(name)] if part is not None]
    return reduce(lambda left, right: left.unionByName(right), there)
