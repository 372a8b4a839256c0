"""A job starts from DataFrames: written as a savepoint, moved, copied in, read as state at any parallelism."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidConfigError, InvalidStateError
from airflow_cairn.checkpoint.savepoints import integrity
from airflow_cairn.spark import Keyed, bootstrap_savepoint
from airflow_cairn.spark.tables import state
from airflow_cairn.storage import InvalidKeyError, UnsupportedStorageError, open_store
from tests.real.spark.pipeline import At, counts, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

States = dict[str, dict[str, Any]]
HISTORY = [(f"R{number}", number) for number in range(40)]


@pytest.fixture
def totals(spark: SparkSession) -> DataFrame:
    return counts(spark, *HISTORY)


def test_a_new_job_starts_from_history(
    spark: SparkSession, at: At, totals: DataFrame, tmp_path: Path
) -> None:  # semantics P1, C5, R3, R4
    states: States = {
        "routes": {
            "totals": Keyed(totals, "route"),
            "grown": Keyed(totals, "route"),
            "sums": Keyed(totals, "route"),
            "none": totals.where("false"),
        },
        "airports": {"seen": counts(spark, ("A", 1))},
    }
    made = bootstrap_savepoint(spark, states, f"file://{tmp_path}/savepoints/", max_parallelism={"routes": 8})
    assert made.startswith(f"file://{tmp_path}/savepoints/savepoint-bootstrap-")
    moved = shutil.move(made.removeprefix("file://"), tmp_path / "moved")
    folder = open_store(f"file://{moved}")
    savepoint = integrity.load(folder)
    assert list(integrity.damages(folder, savepoint)) == []
    assert {stage.uid: stage.state for stage in savepoint.stages} == {
        "routes": ("state.totals", "state.grown", "state.sums", "state.none"),
        "airports": ("state.seen",),
    }

    pipeline = at(stages=(StageSpec("routes", (), 3), StageSpec("airports")))
    pipeline.coordinator.start_from(folder)
    shutil.rmtree(moved)
    pipeline.trigger("one")
    with pipeline.epoch("one") as epoch:
        assert rows(epoch.state("totals")) == sorted(HISTORY)
        parts = [rows(epoch.state("totals", subtask=subtask)) for subtask in range(3)]
        assert sorted(row for part in parts for row in part) == sorted(HISTORY)
        assert all(parts), "each subtask has some"
        assert rows(epoch.state("none")) == []
        epoch.snapshot("totals", totals, key="route")
        epoch.update("grown", counts(spark, ("R0", 100), ("new", 1)), key="route", deletes=totals.where("flights = 1"))
        epoch.aggregate("sums", counts(spark, ("R1", 100), ("new", 1)), key="route", merge={"flights": "sum"})
    with pipeline.epoch("one", "airports") as epoch:
        assert rows(epoch.state("seen")) == [("A", 1)]
    pipeline.complete("one")
    with pytest.raises(InvalidStateError, match=r"parallelism=`9` restored_max_parallelism=`8`"):
        at(stages=(StageSpec("routes", (), 9), StageSpec("airports"))).trigger("two")
    assert len([each for each in pipeline.listing() if "/run." in each]) == 2, "bases of the savepoint, and a run each"
    history = dict(HISTORY)
    grown = {"R0": 100, "new": 1, **{route: flights for route, flights in HISTORY if flights > 1}}
    for name, expected in (("totals", history), ("grown", grown), ("sums", {**history, "R1": 101, "new": 1})):
        found = state(spark, pipeline.storage, pipeline.job, "routes", name)
        assert rows(found) == sorted(expected.items())


def test_one_that_fails_half_way_leaves_nothing(spark: SparkSession, totals: DataFrame, tmp_path: Path) -> None:
    """semantics A5"""
    broken = totals.selectExpr("route", "raise_error('bad row') AS flights")
    with pytest.raises(Exception, match="bad row"):
        bootstrap_savepoint(spark, {"a": {"fine": totals, "broken": broken}}, f"file://{tmp_path}/savepoints")
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


@pytest.mark.parametrize(
    ("states", "options", "error", "text"),
    [
        ({}, {}, InvalidConfigError, "no state is given"),
        ({"routes": {}}, {}, InvalidConfigError, "no state is given"),
        ({"ro/utes": {"totals": "df"}}, {}, InvalidKeyError, "stage"),
        ({"routes": {"to tals": "df"}}, {}, InvalidKeyError, "state"),
        ({"routes": {"totals": 7}}, {}, InvalidStateError, "state.totals of routes must be a Spark DataFrame"),
        ({"routes": {"totals": "gone"}}, {}, InvalidStateError, "the key column 'gone' is not in the DataFrame"),
        ({"routes": {"totals": "df"}}, {"max_parallelism": {"routes": 0}}, InvalidConfigError, "max_parallelism must"),
        ({"routes": {"totals": "df"}}, {"max_parallelism": {"other": 8}}, InvalidConfigError, "of which no state"),
        ({"routes": {"totals": "df"}}, {"target": "hdfs://lake"}, UnsupportedStorageError, "no storage for the scheme"),
        ({"routes": {"totals": "df"}}, {"target": "savepoints"}, InvalidKeyError, "savepoints"),
    ],
)
def test_what_makes_no_savepoint_is_refused_before_anything_is_written(
    spark: SparkSession,
    totals: DataFrame,
    tmp_path: Path,
    states: States,
    options: dict[str, Any],
    error: type[Exception],
    text: str,
) -> None:
    meant = {"df": totals, "gone": Keyed(totals, "gone")}
    given: States = {
        uid: {name: meant.get(each, each) for name, each in named.items()} for uid, named in states.items()
    }
    with pytest.raises(error, match=text):
        bootstrap_savepoint(spark, given, **{"target": f"file://{tmp_path}/savepoints", **options})
    assert list(tmp_path.iterdir()) == []
