"""Choice of states to compact, as far as it needs no Spark (semantics K7)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from airflow_cairn.checkpoint.errors import NoCheckpointError
from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.spark import compaction
from airflow_cairn.spark.compaction import LEASE_MS, compact_in
from airflow_cairn.spark.stored import deltas
from airflow_cairn.storage.clock import Runtime, system_runtime
from tests.support.world import grown_state
from tests.support.world.world import JOB, World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "c0ffee"


class StartedSparkError(Exception):
    """The state is to be compacted."""


def no_spark() -> SparkSession:
    raise StartedSparkError


@pytest.fixture
def grown(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job one of whose states has a base and a run."""
    for bound in ("FAN_IN", "MAX_EPOCHS", "MAX_SHARE"):
        monkeypatch.setattr(deltas, bound, 1000)
    world.appends = True
    world.run_epoch("e1", "e2")
    return world


def became(world: World, name: str | None = None, *, now_ms: int = 0, max_bytes: int | None = None) -> list[str]:
    runtime = replace(system_runtime(), now_ms=lambda: now_ms)
    found = compact_in(world.store, JOB, no_spark, "report", name, max_bytes=max_bytes, runtime=runtime)
    return [each.outcome for each in found]


def spent(world: World, runtime: Runtime) -> int:
    """Give what compactions have read of the newest checkpoint."""
    entry = world.coordinator().head().completed[-1]
    return compaction._spent(world.files, compaction._candidates(world.files, entry, None, None), runtime)


def test_a_job_without_a_checkpoint_or_without_the_state_is_an_error(world: World, grown: World) -> None:
    with pytest.raises(NoCheckpointError, match="no such state"):
        became(grown, "newst")
    with pytest.raises(NoCheckpointError, match="no checkpoint of the job has completed yet"):
        list(compact_in(World().store, JOB, no_spark))
    assert list(compact_in(grown.store, JOB, no_spark, "clean")) == [], "none of its states has deltas"


def test_a_state_whose_runs_are_large_enough_is_compacted(grown: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartedSparkError):
        became(grown)
    monkeypatch.setattr(compaction, "MIN_SHARE", 1000)
    assert became(grown) == ["small"]
    with pytest.raises(StartedSparkError):
        became(grown, grown_state.UPDATED)


def test_base_and_runs_count_against_the_budget(grown: World) -> None:
    [found] = compact_in(grown.store, JOB, no_spark, max_bytes=1)
    assert (found.outcome, found.stage, found.state, found.deltas) == ("over budget", "report", grown_state.UPDATED, 1)
    size = found.base_bytes + found.delta_bytes
    assert became(grown, max_bytes=size - 1) == ["over budget"]
    with pytest.raises(StartedSparkError):
        became(grown, max_bytes=size)


@pytest.mark.parametrize("finish", [True, False], ids=["finished", "under way"])
def test_the_budget_is_that_of_an_epoch_whatever_compacts(
    grown: World, monkeypatch: pytest.MonkeyPatch, finish: bool
) -> None:
    """Compactions of the last checkpoint, of any stage, spend the budget; the next checkpoint has a budget anew."""
    [found] = compact_in(grown.store, JOB, no_spark, max_bytes=1)
    size = found.base_bytes + found.delta_bytes
    grown_state.compact(grown, TOKEN, finish=finish)
    runtime = replace(system_runtime(), now_ms=lambda: 0)
    assert spent(grown, runtime) == size
    later = replace(system_runtime(), now_ms=lambda: LEASE_MS)
    assert spent(grown, later) == (size if finish else 0), "what is left unfinished is repeated"
    monkeypatch.setattr(compaction, "_judge", lambda *_, **__: None)  # so that a state is compacted once more
    assert became(grown, max_bytes=2 * size - 1) == ["over budget"]
    with pytest.raises(StartedSparkError):
        became(grown, max_bytes=2 * size)
    grown.run_epoch("e3")
    assert spent(grown, runtime) == 0


def test_the_budget_counts_what_another_begins_while_spark_starts(grown: World) -> None:
    [found] = compact_in(grown.store, JOB, no_spark, max_bytes=1)

    def start() -> SparkSession:
        grown_state.compact(grown, TOKEN, finish=False)
        return cast("SparkSession", "never used")

    runtime = replace(system_runtime(), now_ms=lambda: 0)
    budget = found.base_bytes + found.delta_bytes
    assert [each.outcome for each in compact_in(grown.store, JOB, start, max_bytes=budget, runtime=runtime)] == [
        "over budget"
    ]


def test_another_compactors_work_is_left_to_it(grown: World) -> None:
    grown_state.compact(grown, TOKEN, finish=False)
    assert became(grown, now_ms=LEASE_MS - 1) == ["under way"]
    [record] = compactions.of_stage(grown.files, "report", 1)
    assert compactions.finish(grown.files, record, record.document.output, ())
    assert became(grown, now_ms=LEASE_MS + 1) == ["waits"], "the lease is of what is unfinished"


def test_what_is_unfinished_for_too_long_is_given_up(grown: World, caplog: pytest.LogCaptureFixture) -> None:
    grown_state.compact(grown, TOKEN, finish=False)
    assert became(grown, now_ms=LEASE_MS, max_bytes=1) == ["over budget"]
    assert "was left unfinished, and is given up" in caplog.text
    [record] = compactions.of_stage(grown.files, "report", 1)
    assert record.document.given_up
    assert grown.coordinator().clean().deleted == 2, "the record and a file"
