"""Keyed state that grows: what changed is written, merged when it is read, and folded into a new base (K1 to K5)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.acknowledgement import CompactionDocument
from airflow_cairn.checkpoint.errors import FencedError, InvalidStateError, NoCheckpointError
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.checkpoint.store import compactions
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark import compact
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.spark.tables import state
from airflow_cairn.storage import open_store
from tests.real.spark.drawn_histories import (
    ALIKE,
    DIME,
    MINUS_ZERO,
    NAN,
    NONE,
    NULL,
    OTHER,
    SOME,
    ZERO,
    Rows,
    frame,
    latest,
    texts,
)
from tests.real.spark.pipeline import At, Pipeline, bounds, counts, rows
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def update(
    pipeline: Pipeline, run_id: str, changed: DataFrame | None, deletes: DataFrame | None = None, key: str = "route"
) -> list[tuple[Any, ...]] | None:
    """Run an epoch that updates the state; gives what it had restored."""
    with pipeline.running(run_id) as epoch:
        before = epoch.state("totals")
        epoch.update("totals", changed, key=key, deletes=deletes)
        return None if before is None else rows(before)


def keys(spark: SparkSession, *routes: str) -> DataFrame:
    return spark.sql("SELECT * FROM VALUES {} AS t(route)".format(", ".join(f"('{each}')" for each in routes)))


def now(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """Rows of the newest checkpoint's state, read from outside."""
    assert pipeline.spark is not None
    return rows(state(pipeline.spark, pipeline.storage, pipeline.job, "routes", "totals"))


def test_an_epoch_writes_what_changed_and_the_next_reads_the_whole(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K1, K2
    assert update(pipeline, "r1", counts(spark, ("a", 1), ("b", 2), ("c", 3))) is None
    [base] = pipeline.parquet()
    assert update(pipeline, "r2", counts(spark, ("b", 20), ("d", 4))) == [("a", 1), ("b", 2), ("c", 3)]
    assert update(pipeline, "r3", None, keys(spark, "a", "nowhere")) == [("a", 1), ("b", 20), ("c", 3), ("d", 4)]
    assert update(pipeline, "r4", counts(spark, ("a", 10)), keys(spark, "c")) == [("b", 20), ("c", 3), ("d", 4)]
    assert now(pipeline) == [("a", 10), ("b", 20), ("d", 4)]
    standing = pipeline.parquet()
    assert base in standing
    assert len(standing) == 4, "a base, and a run for each epoch since: each is one small file"
    assert all(verified.whole for verified in pipeline.coordinator.verify())


@pytest.mark.soak  # test_histories.py, and a rewind below
def test_runs_are_merged_and_folded_into_a_new_base_and_the_value_stays(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K2, K3, K4
    bounds(monkeypatch, 6)
    expected = {"a": 0}
    live = []
    update(pipeline, "r0", counts(spark, ("a", 0), ("base", 0)))
    for number in range(1, 8):
        expected |= {"a": number, f"k{number}": number}
        # The key of the base is deleted in the first run: the runs that it is merged into have to say so too.
        gone = f"k{number - 1}" if number > 1 else "base"
        expected.pop(gone, None)
        update(pipeline, f"r{number}", counts(spark, ("a", number), (f"k{number}", number)), keys(spark, gone))
        assert dict(now(pipeline)) == expected
        live.append(len(pipeline.parquet()))
    assert live == [2, 2, 3, 2, 3, 1, 2], "base and runs: 1; 1+2; 2, 3; 2+3+4; 4, 5; none; 1"
    assert all(verified.whole for verified in pipeline.coordinator.verify())


def test_a_rewind_goes_back_to_runs_that_a_merge_and_a_fold_have_replaced(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K4
    bounds(monkeypatch, 3)
    pipeline = at(retained=4)
    for number in range(1, 5):
        update(pipeline, f"r{number}", counts(spark, ("a", number), (f"k{number}", number)))
    pipeline.coordinator.rewind(2)
    assert now(pipeline) == [("a", 2), ("k1", 1), ("k2", 2)]
    assert update(pipeline, "r3", counts(spark, ("b", 1))) == [("a", 2), ("k1", 1), ("k2", 2)]
    assert now(pipeline) == [("a", 2), ("b", 1), ("k1", 1), ("k2", 2)]


def test_of_two_drivers_that_merge_runs_one_counts_and_a_failed_one_leaves_nothing(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K2, A2, A5
    bounds(monkeypatch, 9)
    update(pipeline, "r1", counts(spark, ("a", 1), ("z", 1)))
    update(pipeline, "r2", counts(spark, ("b", 2)), keys(spark, "z"))
    before = pipeline.parquet()
    pipeline.trigger("r3")
    pipeline.failed("r3", lambda epoch: epoch.update("totals", counts(spark, ("b", 0)), key="route"))
    assert pipeline.parquet() == before, "what a failed try has merged is deleted, and nothing else"
    twice = pipeline.epoch("r3")
    with pytest.raises(InvalidStateError, match=r"more than once in one update.*key=`route='b'`"), twice:
        twice.update("totals", counts(spark, ("b", 4), ("b", 5)), key="route")
    assert pipeline.parquet() == before, "and of an update that has a key twice nothing is merged"
    submit = pipeline.begin("r3")
    late = pipeline.submitted(submit)
    late.__enter__()
    late.update("totals", counts(spark, ("late", 1)), key="route")
    with pipeline.submitted(submit) as first:
        first.update("totals", counts(spark, ("c", 3)), key="route")
    with pytest.raises(FencedError, match="acknowledged already"):
        late.__exit__(None, None, None)
    pipeline.complete("r3")
    assert now(pipeline) == [("a", 1), ("b", 2), ("c", 3)]


def test_a_small_state_is_written_whole(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K3, K4
    update(pipeline, "r1", counts(spark, ("a", 1), ("b", 2)))
    update(pipeline, "r2", counts(spark, ("b", 20), ("c", 3)))
    assert len(pipeline.parquet()) == 2, "a base and a run: the fixtures have it count as large"
    monkeypatch.setattr(merges, "WHOLE_BYTES", 1 << 20)
    assert update(pipeline, "r3", counts(spark, ("c", 30), ("d", 4)), keys(spark, "a", "nowhere")) == [
        ("a", 1),
        ("b", 20),
        ("c", 3),
    ]
    assert now(pipeline) == [("b", 20), ("c", 30), ("d", 4)]
    [file] = pipeline.parquet()
    assert "/state.totals/" in file, "one base, and no run"
    stored = spark.read.parquet(f"{pipeline.storage}/{pipeline.job}/{file}")
    assert stored.columns == ["route", "flights", "_cairn_key_group"]
    groups = [row[0] for row in stored.select("_cairn_key_group").collect()]
    assert groups == sorted(groups)
    update(pipeline, "r4", None, keys(spark, "b", "c", "d"))
    assert now(pipeline) == []
    assert update(pipeline, "r5", counts(spark, ("e", 5))) == []
    monkeypatch.setattr(merges, "WHOLE_BYTES", 0)
    update(pipeline, "r6", counts(spark, ("f", 6)))
    assert now(pipeline) == [("e", 5), ("f", 6)], "it has grown: runs again"
    assert len(pipeline.parquet()) == 2
    assert all(verified.whole for verified in pipeline.coordinator.verify())


def test_a_key_keeps_all_rows_that_a_snapshot_gave_it_until_it_changes(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K3
    bounds(monkeypatch, 2)
    rows_of_keys = counts(spark, ("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5), ("c", 6))
    pipeline.run("r1", lambda epoch: epoch.snapshot("totals", rows_of_keys, key="route"))
    update(pipeline, "r2", counts(spark, ("b", 7)))
    assert now(pipeline) == [("a", 1), ("a", 2), ("b", 7), ("c", 5), ("c", 6)]
    update(pipeline, "r3", counts(spark, ("d", 8)), keys(spark, "c"))
    assert now(pipeline) == [("a", 1), ("a", 2), ("b", 7), ("d", 8)]
    assert len(pipeline.parquet()) == 1, "a new base"


@pytest.mark.soak  # a size alone
def test_after_a_delta_as_large_as_the_base_comes_a_new_base(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K1, K2, K3
    """An epoch that changes most of a state writes about as much as a snapshot, and none writes a delta and a base."""
    monkeypatch.setattr(deltas, "SMALL_BYTES", 0)
    folders = []
    for number in range(4):
        changed = counts(spark, ("a", number), ("b", number), (f"new {number}", number))
        before = set(pipeline.parquet())
        update(pipeline, f"r{number}", changed, keys(spark, f"new {number - 1}") if number else None)
        assert now(pipeline) == [("a", number), ("b", number), (f"new {number}", number)]
        [added] = set(pipeline.parquet()) - before
        folders.append(added.split("/")[-2])
    assert folders == ["state.totals", "run.totals", "state.totals", "run.totals"]
    assert len(pipeline.parquet()) == 2
    pipeline.trigger("r4")
    twice = pipeline.epoch("r4")
    with pytest.raises(InvalidStateError, match="a key is more than once in one update"), twice:
        twice.update("totals", counts(spark, ("a", 4), ("a", 5)), key="route")
    with pipeline.epoch("r4") as epoch:
        epoch.update("totals", counts(spark, ("a", 4)), key="route")
    pipeline.complete("r4")
    assert now(pipeline) == [("a", 4), ("b", 3), ("new 3", 3)]


def compacted(pipeline: Pipeline, name: str | None = "totals") -> list[str]:
    """Compact the states; gives what became of each."""
    assert pipeline.spark is not None
    found = compact(pipeline.spark, pipeline.storage, pipeline.job, "routes" if name else None, name)
    return [each.outcome for each in found]


def test_the_next_epoch_adopts_a_compaction_in_place_of_base_and_runs(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K4, K7
    def add(run_id: str, *pairs: tuple[str, int]) -> None:
        with pipeline.running(run_id) as epoch:
            epoch.update("totals", counts(spark, *pairs), key="route", deletes=keys(spark, "gone"))
            epoch.aggregate("sums", counts(spark, *pairs), key="route", merge={"flights": "sum"})

    with pytest.raises(NoCheckpointError, match="nothing to compact"):
        compacted(pipeline)
    with pipeline.running("r0") as epoch:
        for name in ("totals", "sums"):
            epoch.snapshot(name, counts(spark, ("a", 1), ("gone", 1)), key="route")
    assert compacted(pipeline) == [], "there are no runs"
    add("r1", ("a", 2), ("b", 1))
    add("r2", ("b", 5))
    replaced = pipeline.parquet()
    assert len(replaced) == 6
    assert compacted(pipeline, None) == ["compacted", "compacted"]
    assert compacted(pipeline) == ["waits"]
    assert now(pipeline) == [("a", 2), ("b", 5)], "the checkpoint names what it named"
    assert pipeline.coordinator.clean().deleted == 0
    with pytest.raises(NoCheckpointError, match="no such state"):
        compacted(pipeline, "total")

    with pipeline.running("r3") as epoch:
        assert rows(epoch.state("totals")) == [("a", 2), ("b", 5)]
        assert rows(epoch.state("sums")) == [("a", 3), ("b", 6), ("gone", 1)]
        epoch.update("totals", counts(spark, ("c", 7)), key="route")
    assert now(pipeline) == [("a", 2), ("b", 5), ("c", 7)]
    left = pipeline.parquet()
    assert not set(left) & set(replaced), "nothing names them any more"
    assert len(left) == 3, "two new bases and a run"
    assert not pipeline.listing("chk-0000000001/compactions/"), "what they replace is gone, and so are the records"
    assert all(verified.whole for verified in pipeline.coordinator.verify(deep=True))
    assert compacted(pipeline) == ["compacted"], "an adopted base is compacted with its runs as any other"
    assert update(pipeline, "r4", counts(spark, ("d", 8))) == [("a", 2), ("b", 5), ("c", 7)]
    assert now(pipeline) == [("a", 2), ("b", 5), ("c", 7), ("d", 8)]


@pytest.mark.soak  # a compaction is above
def test_a_compaction_beside_an_epoch_leaves_the_run_of_that_one(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K7
    update(pipeline, "r1", counts(spark, ("a", 1), ("b", 1)))
    update(pipeline, "r2", counts(spark, ("b", 2)))
    pipeline.trigger("r3")
    epoch = pipeline.epoch("r3")
    with epoch:
        assert compacted(pipeline) == ["compacted"]
        epoch.update("totals", counts(spark, ("b", 3)), key="route")
    pipeline.complete("r3")
    assert len(pipeline.parquet()) == 4, "base, two runs, and a new base that no epoch has adopted yet"
    assert update(pipeline, "r4", counts(spark, ("c", 4))) == [("a", 1), ("b", 3)]
    assert now(pipeline) == [("a", 1), ("b", 3), ("c", 4)]
    assert len(pipeline.parquet()) == 3, "the new base, and the runs of r3 and r4"


def test_what_an_epoch_has_replaced_is_not_compacted(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K7
    update(pipeline, "r1", counts(spark, ("a", 1)))
    update(pipeline, "r2", counts(spark, ("b", 2)))
    right = compactions.begin

    def late(files: JobFiles, document: CompactionDocument) -> compactions.Record:
        begun = right(files, document)
        pipeline.trigger("r3")
        with pipeline.epoch("r3") as epoch:
            epoch.snapshot("totals", counts(spark, ("c", 3)), key="route")
        pipeline.complete("r3")  # the cleaner deletes what nothing names any more
        return begun

    monkeypatch.setattr(compactions, "begin", late)
    assert compacted(pipeline) == ["lost"]
    assert now(pipeline) == [("c", 3)]
    assert len(pipeline.parquet()) == 1
    assert not pipeline.listing("chk-0000000001/"), "neither files nor the record are left"


def test_runs_are_carried_over_until_a_snapshot_replaces_them(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K1, C3
    update(pipeline, "r1", counts(spark, ("a", 1)))
    update(pipeline, "r2", counts(spark, ("b", 2)))
    pipeline.run("r3", lambda epoch: epoch.put("rows", 2))
    assert now(pipeline) == [("a", 1), ("b", 2)]
    pipeline.run("r4", lambda epoch: epoch.snapshot("totals", counts(spark, ("c", 3)), key="route"))
    assert update(pipeline, "r5", None, keys(spark, "c")) == [("c", 3)]
    assert now(pipeline) == []


@pytest.fixture(
    params=[
        pytest.param((0, 0), id="large"),
        pytest.param((1 << 20, 0), id="small", marks=pytest.mark.soak),
        pytest.param((1 << 20, 100), id="few"),
    ],
)
def is_few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A state of which the files are chosen by the keys; one that is read whole; and one of few values."""
    scanned_bytes, values = request.param
    monkeypatch.setattr(deltas, "SCANNED_BYTES", scanned_bytes)
    monkeypatch.setattr(deltas, "_BROADCAST_VALUES", values)
    return bool(values)


def test_keys_read_what_they_touch(spark: SparkSession, pipeline: Pipeline, is_few: bool) -> None:
    update(pipeline, "r1", counts(spark, ("a", 1), ("b", 2), ("c", 3)))
    update(pipeline, "r2", counts(spark, ("b", 20), ("d", 4)), keys(spark, "c"))
    with pipeline.running("r3") as epoch:
        asked = keys(spark, "b", "c", "d", "e", "b")
        found = known(epoch.state("totals", keys=asked))
        assert rows(found) == [("b", 20), ("d", 4)]
        assert ("LeftSemi" in found._jdf.queryExecution().toString()) is not is_few, "a state of few values is sent"
        assert rows(epoch.state("totals", keys=asked.where("false"))) == []
        odd: Any = ["b"]
        for given, text in (
            (asked.toDF("other"), "keys lacks the column 'route'"),
            (spark.sql("SELECT 1 AS route"), r"'route' of keys is of another type.*found=`int`"),
            (odd, "keys must be a Spark DataFrame and is a list"),
        ):
            with pytest.raises(InvalidStateError, match=text):
                epoch.state("totals", keys=given)


def test_keys_are_compared_as_spark_compares_them(
    spark: SparkSession, pipeline: Pipeline, is_few: bool
) -> None:  # semantics K1
    """Each is asked for twice, beside a key that is not there; a key may be a struct, and have many rows."""
    stored = dict.fromkeys([NULL, NAN, ZERO, SOME], DIME)
    pairs = spark.sql(
        "SELECT named_struct('a', a, 'b', b) AS k, v FROM VALUES (1, NULL, 1), (1, NULL, 2), (1, 2, 3) AS t(a, b, v)"
    )
    with_null = spark.sql("SELECT * FROM VALUES (NULL, 1), ('b', 2) AS t(k, v)")
    with pipeline.running("r1") as epoch:
        epoch.update("totals", frame(spark, stored), key="k")
        epoch.snapshot("pairs", pairs, key="k")
        epoch.snapshot("with_null", with_null, key="k")
    with pipeline.running("r2") as epoch:
        for asked in (NULL, NAN, MINUS_ZERO, OTHER):
            wanted = frame(spark, dict.fromkeys([asked, OTHER], NONE))
            found = known(epoch.state("totals", keys=wanted.unionByName(wanted)))
            assert found.columns == ["k", "v"]
            there: Rows = {ALIKE.get(asked, asked): DIME} if asked != OTHER else {}
            assert texts(found.collect()) == latest(there)
        found = known(epoch.state("pairs", keys=pairs.where("v < 3").withColumnRenamed("v", "other")))
        assert sorted(row["v"] for row in found.collect()) == [1, 2], "all rows of a key, once"
        # The least and the greatest of the other keys narrow what is read.
        assert known(epoch.state("with_null", keys=with_null.select("k"))).count() == 2


def test_it_restores_at_another_parallelism_and_travels_with_a_savepoint(
    spark: SparkSession, at: At, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics R4, R6, P1, K4
    bounds(monkeypatch, 9)
    names = [f"k{number}" for number in range(20)]
    update(at(2, 8), "r1", counts(spark, *((name, 1) for name in names)))
    update(at(2, 8), "r2", counts(spark, *((name, 2) for name in names[5:])), keys(spark, "k0"))
    update(at(5, 8), "r3", counts(spark, ("k1", 3)), keys(spark, "k19"))
    expected = sorted([("k1", 3), *((name, 1) for name in names[2:5]), *((name, 2) for name in names[5:19])])
    taken = at(5, 8).coordinator.savepoint(SavepointRequest(f"file://{tmp_path}/kept", "s"), open_store)
    other = at(3, 8, job="other")
    other.coordinator.start_from(open_store(taken.uri))
    with other.running("r1") as epoch:
        parts = [rows(epoch.state("totals", subtask=subtask)) for subtask in range(3)]
        assert sorted(row for part in parts for row in part) == expected
        assert all(parts), "each subtask has some"
        epoch.update("totals", counts(spark, ("k1", 4)), key="route")
    assert now(other) == sorted({**dict(expected), "k1": 4}.items())


Given = Callable[["SparkSession"], tuple["DataFrame | None", Any, "DataFrame | None"]]
BAD: dict[str, tuple[Given, str]] = {
    "no key": (lambda spark: (counts(spark, ("a", 1)), (), None), "no key is given"),
    "another key": (lambda spark: (counts(spark, ("a", 1)), "flights", None), "stored_key=`route`"),
    "no such column": (lambda spark: (counts(spark, ("a", 1)).toDF("r", "flights"), "route", None), "is not in the"),
    "another type": (
        lambda spark: (counts(spark, ("a", 1)).selectExpr("route", "int(flights) AS flights"), "route", None),
        "columns=`route string, flights int` stored_columns=`route string, flights bigint`",
    ),
    "a column more": (lambda spark: (counts(spark, ("a", 1)).selectExpr("*", "1 AS x"), "route", None), "x int"),
    "a column of ours": (
        lambda spark: (counts(spark, ("a", 1)).selectExpr("*", "1 AS _cairn_run"), "route", None),
        "a name that keyed state needs for itself",
    ),
    "deletes without the key": (lambda spark: (None, "route", keys(spark, "a").toDF("x")), "is not in the DataFrame"),
    "deletes of another type": (
        lambda spark: (None, "route", spark.sql("SELECT 1 AS route")),
        r"of the deletes of state\.totals is of another type",
    ),
    "nothing": (lambda spark: (None, "route", None), "holds nothing"),
}
TWICE: dict[str, tuple[Given, str]] = {
    "one key twice": (
        lambda spark: (counts(spark, ("a", 1), ("a", 2), ("b", 1)), "route", None),
        "more than once in one update.*key=`route='a'` times=`2`",
    ),
    "given and deleted": (
        lambda spark: (counts(spark, ("a", 1)), "route", keys(spark, "a")),
        "more than once in one update.*key=`route='a'`",
    ),
}


@pytest.mark.parametrize("whole_bytes", [0, pytest.param(1 << 20, marks=pytest.mark.soak)], ids=["large", "small"])
def test_bad_input_is_refused_and_the_state_stays(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, whole_bytes: int
) -> None:  # semantics K5
    monkeypatch.setattr(merges, "WHOLE_BYTES", whole_bytes)
    update(pipeline, "r1", counts(spark, ("a", 0)))
    before = pipeline.parquet()
    with pipeline.running("r2") as epoch:
        for make, text in BAD.values():
            changed, key, deletes = make(spark)
            with pytest.raises(InvalidStateError, match=text):
                epoch.update("totals", changed, key=key, deletes=deletes)
        of_there = 0 if whole_bytes else 1
        for index, (make, text) in enumerate(TWICE.values()):
            changed, key, deletes = make(spark)
            for name in ("totals", f"new-{index}") if index == of_there else (f"new-{index}",):
                with pytest.raises(InvalidStateError, match=text):
                    epoch.update(name, changed, key=key, deletes=deletes)
        assert pipeline.parquet() == before, "what was refused is deleted"
        with pytest.raises(InvalidStateError, match="written or dropped before"):
            epoch.update("totals", counts(spark, ("a", 1)), key="route")
    assert now(pipeline) == [("a", 0)]


def test_a_refused_snapshot_leaves_its_name_free(spark: SparkSession, pipeline: Pipeline) -> None:
    with pipeline.running("r1") as epoch:
        with pytest.raises(InvalidStateError, match="route"):
            epoch.snapshot("totals", spark.sql("SELECT map('a', 1) AS route, 1 AS flights"), key="route")
        epoch.update("totals", counts(spark, ("a", 1)), key="route")
    assert now(pipeline) == [("a", 1)]


def test_a_state_without_a_key_cannot_be_updated(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics K5
    with pipeline.running("r1") as epoch:
        epoch.snapshot("totals", counts(spark, ("a", 1)))
        with pytest.raises(InvalidStateError, match=r"no state\.new to delete from"):
            epoch.update("new", None, key="route", deletes=keys(spark, "a"))
    with pipeline.running("r2") as epoch:
        with pytest.raises(InvalidStateError, match="was written without a key, so its rows cannot be found again"):
            epoch.update("totals", counts(spark, ("a", 1)), key="route")
        with pytest.raises(InvalidStateError, match="was written without a key, so its rows cannot be found by keys"):
            epoch.state("totals", keys=keys(spark, "a"))
