"""Keyed state of partial aggregates: each epoch writes its own, and a read merges them all (semantics K1, K2, K5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.spark.tables import state, table
from airflow_cairn.storage import open_store
from tests.real.spark.edges import POINT
from tests.real.spark.pipeline import At, Pipeline, configured, rows
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

MERGE = {
    "flights": "sum",
    "seats": "count",
    "cost": "sum",
    "low": "min",
    "high": "max",
    "every": "bool_and",
    "once": "bool_or",
    "bits": "bit_or",
    "both": "bit_and",
    "odd": "bit_xor",
    "city": "last_by(high)",
    "birth": "first_by(low)",
    "seen": "hll_union",
    "met": "theta_union",
    "times": "kll_merge_bigint",
    "ratios": "kll_merge_double",
    "parts": "kll_merge_float",
    "lots": "each(sum)",
    "ends": "each(max)",
    "each_bit": "each(bit_xor)",
}
COLUMNS = """
    CAST(count(*) AS BIGINT) AS flights, CAST(count(*) AS BIGINT) AS seats, CAST(sum(cost) AS DECIMAL(20,2)) AS cost,
    min(at) AS low, max(at) AS high, bool_and(ok) AS every, bool_or(ok) AS once, bit_or(bits) AS bits,
    bit_and(bits) AS both, bit_xor(bits) AS odd,
    max_by(city, at) AS city, min_by(city, at) AS birth, hll_sketch_agg(city) AS seen,
    theta_sketch_agg(city) AS met, kll_sketch_agg_bigint(CAST(at AS BIGINT)) AS times,
    kll_sketch_agg_double(CAST(at AS DOUBLE)) AS ratios, kll_sketch_agg_float(CAST(at AS FLOAT)) AS parts,
    array(count_if(at < 2), count_if(at >= 2)) AS lots, array(max(city), CAST(max(at) AS STRING)) AS ends,
    array(bit_xor(bits)) AS each_bit
"""


def flights(*lines: tuple[Any, ...]) -> str:
    """Some flights as a query: route, cost, when, ok, bits, city."""
    values = ", ".join(
        f"({route!r}, {cost}, {at}, {ok}, {bits}, {city!r})".replace("None", "NULL")
        for route, cost, at, ok, bits, city in lines
    )
    return f"(SELECT * FROM VALUES {values} AS t(route, cost, at, ok, bits, city))"


EPOCHS = [
    flights(("a", 1.10, 1, True, 1, "x"), ("a", 2.20, 2, True, 2, "y"), ("b", None, 5, False, 0, "x")),
    flights(("a", 3.30, 3, False, 4, "z"), ("c", 9.99, 1, True, 8, "q")),
    flights(("b", 1.00, 4, True, 1, None), ("b", 0.01, 6, None, 1, "w")),
    flights((None, 5.00, 7, True, 1, "n"), ("a", 0.00, 0, True, 0, "first")),
]


def grouped(spark: SparkSession, query: str) -> DataFrame:
    return spark.sql(f"SELECT route, {COLUMNS} FROM {query} GROUP BY route")


def of_epochs(spark: SparkSession, *numbers: int) -> DataFrame:
    """Aggregate what some epochs have added, at once."""
    together = " UNION ALL ".join(f"SELECT * FROM {EPOCHS[number]}" for number in numbers)
    return grouped(spark, f"({together})")


def plain(frame: DataFrame) -> list[str]:
    return sorted(map(str, rows_of(frame)))


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Sketches are no bytes to compare: what they say is, and of so few values it is exact."""
    said = ["hll_sketch_estimate(seen) AS seen", "theta_sketch_estimate(met) AS met"]
    for column, kind in (("times", "bigint"), ("ratios", "double"), ("parts", "float")):
        said += [f"kll_sketch_get_{asked}_{kind}({column}{more})" for asked, more in (("n", ""), ("quantile", ", 0.5"))]
    return [tuple(row) for row in frame.selectExpr("* EXCEPT (seen, met, times, ratios, parts)", *said).collect()]


def add(pipeline: Pipeline, number: int, part: DataFrame, merge: dict[str, str] = MERGE) -> None:
    """Run an epoch that adds partials."""
    pipeline.run(f"r{number}", lambda epoch: epoch.aggregate("routes", part, key="route", merge=merge))


def test_partials_merge_to_what_one_aggregation_gives(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K2, K3, R4
    monkeypatch.setattr(deltas, "FAN_IN_PARTIALS", 2)
    monkeypatch.setattr(deltas, "MAX_EPOCHS", 3)
    monkeypatch.setattr(deltas, "MAX_SHARE", 100.0)  # the size of a tiny base decides nothing
    lives = []
    for number, query in enumerate(EPOCHS):
        pipeline = at(number + 1, 8)
        with pipeline.running(f"r{number}") as epoch:
            before = epoch.state("routes")
            if number:
                assert before is not None
                assert plain(before) == plain(of_epochs(spark, *range(number)))
                assert before.dtypes == grouped(spark, query).dtypes
                parts = [epoch.state("routes", subtask=subtask) for subtask in range(number + 1)]
                assert sum(part.count() for part in parts if part is not None) == before.count()
                some = known(epoch.state("routes", keys=spark.sql("SELECT 'a' AS route")))
                assert [row[0] for row in rows_of(some)] == ["a"]
            epoch.aggregate("routes", grouped(spark, query), key="route", merge=MERGE)
        lives.append(len(pipeline.parquet()))
    assert lives[1:3] == [2, 2], "the third epoch has written one run in place of two"
    assert lives[-1] <= 4, "the fourth epoch has written a new base, a file for each subtask at most"


@pytest.mark.soak  # test_updates.py has a small state, the test above its merge
def test_a_small_state_is_merged_with_what_an_epoch_adds(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K3
    monkeypatch.setattr(merges, "WHOLE_BYTES", 1 << 20)
    for number, query in enumerate(EPOCHS[:3]):
        add(pipeline, number, grouped(spark, query))
    assert ["/state.routes/" in each for each in pipeline.parquet()] == [True], "a base alone"
    found = state(spark, pipeline.storage, pipeline.job, "routes", "routes")
    assert plain(found) == plain(of_epochs(spark, 0, 1, 2))
    assert found.columns == grouped(spark, EPOCHS[0]).columns


@pytest.mark.soak  # test_updates.py has both; test_histories.py rewinds totals
def test_runs_of_totals_travel_with_a_savepoint_and_are_rewound(
    spark: SparkSession, at: At, tmp_path: Path
) -> None:  # semantics K1, R4, R6, P1
    def now(pipeline: Pipeline) -> list[str]:
        return plain(state(spark, pipeline.storage, pipeline.job, "routes", "routes"))

    first = at(2, 8, retained=4)
    for number in range(3):
        add(first, number, grouped(spark, EPOCHS[number]))
    assert len([each for each in first.listing() if "/run.routes/" in each]) >= 2, "a base and two runs"
    taken = first.coordinator.savepoint(SavepointRequest(f"file://{tmp_path}/kept", "s"), open_store)
    other = at(3, 8, job="other", retained=4)
    other.coordinator.start_from(open_store(taken.uri))
    add(other, 3, grouped(spark, EPOCHS[3]))
    assert now(other) == plain(of_epochs(spark, 0, 1, 2, 3))
    # The first job gives its third epoch up: its base and first run count, and what comes after adds to those.
    first.coordinator.rewind(2)
    assert now(first) == plain(of_epochs(spark, 0, 1))
    add(first, 3, grouped(spark, EPOCHS[3]))
    assert now(first) == plain(of_epochs(spark, 0, 1, 3))
    assert now(other) == plain(of_epochs(spark, 0, 1, 2, 3)), "a job of its own"


def test_a_stage_after_it_publishes_the_totals_with_those_of_its_epoch(spark: SparkSession, at: At) -> None:
    """As docs/how-to/state.md says; `epoch.state` would give those of the epoch before."""
    pipeline = at(stages=(StageSpec("routes"), StageSpec("report", upstream=("routes",))))
    for run_id in ("r1", "r2"):
        pipeline.trigger(run_id)
        with pipeline.epoch(run_id, "routes") as epoch:
            epoch.aggregate("routes", spark.sql("SELECT 'a' AS route, 2L AS n"), "route", merge={"n": "sum"})
        with pipeline.epoch(run_id, "report") as epoch:
            epoch.publish("totals", epoch.read("routes", "routes"))
        pipeline.complete(run_id)
    assert rows(table(spark, pipeline.storage, pipeline.job, "totals")) == [("a", 4)]


def test_a_column_may_have_the_name_that_a_key_has_in_the_merge(spark: SparkSession, pipeline: Pipeline) -> None:
    for number in (1, 2):
        add(pipeline, number, spark.sql("SELECT 'a' AS route, 2L AS key_0"), {"key_0": "sum"})
    assert pipeline.run("r3", lambda epoch: rows(epoch.state("routes"))) == [("a", 4)]


def test_arrays_are_merged_element_by_element(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics K1
    """The shorter one ends early, nulls are left out, and what is null in all partials stays null"""
    partials = [
        "('a', array(1, 2), array(0.5D), array(true, NULL)), ('b', NULL, NULL, array(NULL))",
        "('a', array(10, NULL, 5), array(1D), array(false, true)), ('b', NULL, array(), array(NULL))",
        "('a', NULL, array(), array(true))",
    ]
    types = "route, CAST(n AS ARRAY<INT>) AS n, CAST(part AS ARRAY<DOUBLE>) AS part, CAST(ok AS ARRAY<BOOLEAN>) AS ok"
    for number, values in enumerate(partials):
        part = spark.sql(f"SELECT {types} FROM VALUES {values} AS t(route, n, part, ok)")
        add(pipeline, number, part, {"n": "each(sum)", "part": "each(sum)", "ok": "each(bool_and)"})
    with pipeline.running("r3") as epoch:
        found = known(epoch.state("routes"))
        assert found.dtypes[1:] == [("n", "array<int>"), ("part", "array<double>"), ("ok", "array<boolean>")]
        assert rows(found) == [("a", [11, 2, 5], [1.5], [False, True]), ("b", None, [], [None])]


def test_a_sum_that_no_longer_fits_is_an_error(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics K1
    n = "9223372036854775807"
    most = f"SELECT 'a' AS route, {n} AS n, CAST(99.99 AS DECIMAL(4,2)) AS d, array(0, {n}) AS h"
    for number in (1, 2):
        add(pipeline, number, spark.sql(most), {"n": "sum", "d": "sum", "h": "each(sum)"})
    with pipeline.running("r3") as epoch, configured(spark, {"spark.sql.ansi.enabled": "false"}):
        found = known(epoch.state("routes"))
        for column, kind in (("n", "bigint"), ("d", "decimal"), ("h", "array<bigint>")):
            with pytest.raises(Exception, match=f"the sum of the column {column} no longer fits its type {kind}"):
                found.select(column).collect()


def test_partials_that_fit_only_with_their_base_are_merged_with_it(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K2
    monkeypatch.setattr(deltas, "FAN_IN_PARTIALS", 2)
    monkeypatch.setattr(deltas, "MAX_SHARE", 1e9)
    for number, added in enumerate((-100, 100, 100)):
        add(pipeline, number, spark.sql(f"SELECT 'a' AS route, CAST({added} AS TINYINT) AS n"), {"n": "sum"})
    assert pipeline.run("r3", lambda epoch: rows(epoch.state("routes"))) == [("a", 100)]


def test_bad_input_is_refused(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics K5
    good = spark.sql("SELECT 'a' AS route, 1L AS n, 2L AS at, map('x', 1) AS m")
    narrow = good.drop("m")
    merge = {"n": "sum", "at": "max"}
    with pipeline.running("r1") as epoch:
        for df, key, given, text in (
            (narrow, (), merge, "to be aggregated and no key is given"),
            (narrow, "route", {"n": "sum"}, r"needs a merge for each column.*columns=`n, at` merge=`n: sum`"),
            (narrow, "route", {**merge, "route": "min"}, "for no other"),
            (narrow, "route", {**merge, "n": "median"}, "there is no merge 'median'.*merges=`sum, count"),
            (narrow, "route", {**merge, "n": "each(median)"}, r"no merge 'each\(median\)'.*each\(sum\)"),
            (narrow, "route", {**merge, "n": "each(sum)"}, "does not take the column 'n'.*takes=`arrays of byte"),
            (narrow, "route", {**merge, "n": "bool_or"}, "'bool_or' does not take the column 'n'.*takes=`boolean`"),
            (good, "route", {**merge, "m": "max"}, "'max' does not take the column 'm'"),
            *(
                (
                    narrow.selectExpr("* EXCEPT (n)", f"array({each}) AS n"),
                    "route",
                    {**merge, "n": how},
                    f"'{how}' does not take the.*takes=`what can be ordered`",
                )
                for how in ("min", "max")
                for each in (
                    "map(1, 2)",
                    "named_struct('v', parse_json('1'))",
                    "make_interval(1)",
                    f"st_geomfromwkb({POINT})",
                    f"named_struct('v', st_geogfromwkb({POINT}))",
                )
            ),
            (good, "route", {**merge, "m": "first_by(at)"}, "to be merged by 'min'"),
            (good, "route", {**merge, "m": "last_by(nowhere)"}, "to be merged by 'max'"),
        ):
            with pytest.raises(InvalidStateError, match=text):
                epoch.aggregate("routes", df, key=key, merge=given)
        epoch.aggregate("routes", narrow, key="route", merge=merge)
        epoch.update("rows", narrow, key="route")
        epoch.snapshot("whole", narrow, key="route")
    with pipeline.running("r2") as epoch:
        with pytest.raises(InvalidStateError, match="merge=`at: max, n: max` stored_merge=`at: max, n: sum`"):
            epoch.aggregate("routes", narrow, key="route", merge={**merge, "n": "max"})
        with pytest.raises(InvalidStateError, match="is aggregated, and a state keeps its merge"):
            epoch.update("routes", narrow, key="route")
        epoch.update("rows", narrow, key="route")
        epoch.aggregate("whole", narrow, key="route", merge=merge)
    with pipeline.running("r3") as epoch:
        assert rows(epoch.state("whole")) == [("a", 2, 2)]
        with pytest.raises(InvalidStateError, match=r"has deltas of epoch\.update"):
            epoch.aggregate("rows", narrow, key="route", merge=merge)
