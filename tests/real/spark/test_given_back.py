"""Results of `update` and `aggregate`: the state as the next epoch restores it; nothing is read if unused (K8)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint.documents.attempt import Slice
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.spark import Epoch, StateTtl, compact, epoch_state, table
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.spark.stored.outputs import frame
from airflow_cairn.storage import open_store
from tests.real.spark.pipeline import At, Pipeline, bounds, counts, rows
from tests.support.covering import as_parameters
from tests.support.narrowing import known

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Body = Callable[[Epoch], "DataFrame | None"]
Pairs = tuple[str, int]


def change(*pairs: Pairs, gone: str = "") -> Body:
    """Update the state, and delete a key of it."""

    def body(epoch: Epoch) -> DataFrame:
        deletes = epoch.spark.sql(f"SELECT '{gone}' AS route") if gone else None
        return epoch.update("state", counts(epoch.spark, *pairs) if pairs else None, key="route", deletes=deletes)

    return body


def add(*pairs: Pairs) -> Body:
    return lambda epoch: epoch.aggregate("state", counts(epoch.spark, *pairs), key="route", merge={"flights": "sum"})


def nothing(epoch: Epoch) -> DataFrame:
    return epoch.update("state", counts(epoch.spark, ("a", 1)).where("false"), key="route")


def draw(epoch: Epoch) -> DataFrame:
    """Change rows that are others each time that Spark computes them."""
    return epoch.update("state", epoch.spark.range(40).selectExpr("id AS k", "uuid() AS v"), key="k")


def draw_more(epoch: Epoch) -> DataFrame:
    drawn = epoch.spark.range(40).selectExpr("id % 7 AS k", "CAST(rand() * 1000 AS BIGINT) AS n", "uuid() AS v")
    return epoch.aggregate("state", drawn, key="k", merge={"n": "sum", "v": "max"})


def live(hour: int, *pairs: Pairs, early: bool = True, lives: StateTtl | None = None) -> Body:
    """Update a state whose rows end an hour after their time, and take the watermark to an hour, before or after."""

    def body(epoch: Epoch) -> DataFrame:
        changed = counts(epoch.spark, *pairs).selectExpr("route", "timestamp_seconds(flights * 3600) AS time")
        to = datetime(1970, 1, 1, hour, tzinfo=UTC)
        if early:
            epoch.advance_watermark(to)
        after = epoch.update("state", changed, key="route", ttl=lives)
        if not early:
            epoch.advance_watermark(to)
        return after

    return body


def widen(epoch: Epoch) -> None:
    before = known(epoch.state("state"))
    epoch.snapshot("state", before.selectExpr("flights AS best", "route", "flights"), key="route")


def change_wide(epoch: Epoch) -> DataFrame:
    wide = counts(epoch.spark, ("b", 5), ("d", 6)).selectExpr("route", "0L AS best", "flights")
    return epoch.update("state", wide, key="route")


HOUR = StateTtl(timedelta(hours=1), "time")
HISTORIES: Mapping[str, list[Body]] = {
    "rows": [change(("a", 1), ("b", 2), ("c", 3)), change(("b", 20)), change(gone="a"), change(("a", 5), gone="c")],
    "partials": [add(("a", 1), ("a", 2), ("b", 3)), add(("a", 10), ("c", 4)), add(("b", 7)), add(("d", 1), ("a", 1))],
    "rows that are others each time": [draw] * 3,
    "partials that are others each time": [draw_more] * 3,
    "no rows": [nothing, change(("a", 1)), nothing, change(gone="a")],
    "rows that end": [
        live(5, ("a", 3), ("b", 5), ("c", 9), lives=HOUR),
        live(8, ("b", 7), ("d", 9), early=False),
        live(9, ("e", 8)),
        live(9, ("a", 12), lives=HOUR),
    ],
    "another column": [change(("a", 1), ("b", 2)), widen, change_wide, change_wide],
}


FEW = {("rows", True), ("partials", False), ("rows that end", False)}
"""One that updates a small state, and of large ones one that aggregates and one that drops rows."""


@pytest.mark.parametrize(
    ("history", "small"), as_parameters((each, each in FEW) for each in product(HISTORIES, (False, True)))
)
def test_the_next_epoch_restores_what_was_given_back(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, history: str, small: bool
) -> None:  # semantics K1, K2, K3, K6, K8
    """Deltas, merged deltas and new bases, after tries that failed too; readers of a table see the same rows."""
    bounds(monkeypatch, 4)
    monkeypatch.setattr(deltas, "FAN_IN_PARTIALS", 2)
    monkeypatch.setattr(merges, "WHOLE_BYTES", (1 << 20) if small else 0)
    given: list[tuple[object, object]] = []
    """Facts of the state that the last epoch has given back; empty if that epoch wrote the state whole."""

    def work(body: Body, epoch: Epoch) -> DataFrame | None:
        if given:
            assert _facts(epoch.state("state")) == given[-1]
        after = body(epoch)
        if after is not None:
            epoch.publish("league", after)
        return after

    for number, body in enumerate([*HISTORIES[history], lambda _: None]):
        pipeline.trigger(f"r{number}")
        if body is draw:
            pipeline.failed(f"r{number}", partial(work, body))
        with pipeline.epoch(f"r{number}") as epoch:
            after = work(body, epoch)
            given = [] if after is None else [_facts(after)]
        pipeline.complete(f"r{number}")
        if given:
            assert rows(table(spark, pipeline.storage, pipeline.job, "league")) == given[-1][1]


def _facts(df: DataFrame | None) -> tuple[object, object]:
    assert df is not None
    return df.schema, rows(df)


@pytest.mark.soak  # test_updates.py has both
def test_goes_on_from_savepoint_and_compaction_at_another_parallelism(
    spark: SparkSession, at: At, tmp_path: Path
) -> None:  # semantics K7, K8, R4, R6
    def goes_on(pipeline: Pipeline) -> None:
        given = pipeline.run("next", lambda epoch: _facts(add(("b", 5), ("d", 1))(epoch)))
        assert given[1] == [("a", 11), ("b", 7), ("c", 3), ("d", 1)]
        assert pipeline.run("last", lambda epoch: _facts(epoch.state("state"))) == given

    first, other = at(2, 8), at(3, 8, job="other")
    for number, body in enumerate((add(("a", 1), ("b", 2)), add(("a", 10)), add(("c", 3)))):
        first.run(f"r{number}", body)
    taken = first.coordinator.savepoint(SavepointRequest(f"file://{tmp_path}/kept", "s"), open_store)
    other.coordinator.start_from(open_store(taken.uri))
    goes_on(other)
    done = compact(spark, first.storage, first.job, "routes", "state")
    assert [each.outcome for each in done] == ["compacted"]
    goes_on(first)


@pytest.mark.parametrize("small", [False, True], ids=["large", "small"])
def test_nothing_is_read_before_it_is_used_and_the_input_never_again(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small: bool
) -> None:  # semantics K8
    monkeypatch.setattr(merges, "WHOLE_BYTES", (1 << 20) if small else 0)
    pipeline.run("r1", change(("a", 1)))
    read: list[object] = []

    def noted(*given: object, **named: object) -> DataFrame:
        read.append(given)
        return frame(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(epoch_state, "frame", noted)
    pipeline.run("r2", change(("b", 2)))
    assert read == [], "no epoch asked for it"
    counts(spark, ("c", 3)).write.parquet(f"{tmp_path}/input")
    with pipeline.running("r3") as epoch:
        after = epoch.update("state", spark.read.parquet(f"{tmp_path}/input"), key="route")
        shutil.rmtree(tmp_path / "input")
        assert isinstance(after, type(spark.range(0)))
        assert read == []
        assert rows(after) == [("a", 1), ("b", 2), ("c", 3)]
        assert rows(after.join(counts(spark, ("c", 9)), "route")) == [("c", 3, 9)]
        assert rows(counts(spark, ("d", 4)).unionByName(after))[-1] == ("d", 4)
        assert (len(read), type(after)) == (1, type(spark.range(0)))


def test_time_to_live_is_judged_by_the_epoch_that_uses_it(spark: SparkSession, pipeline: Pipeline) -> None:
    """The epoch's own time judges processing time, its watermark event time; without one the error says so (K6, K8)."""

    def until(hour: int) -> Slice:
        return Slice(f"1970-01-01T{hour - 1:02}:00:00+00:00", f"1970-01-01T{hour:02}:00:00+00:00")

    lives = StateTtl(timedelta(hours=1), "time", "processing")

    def names(after: DataFrame | None) -> str:
        return "".join(route for route, _ in rows(after))

    born = live(1, ("a", 3), ("b", 5), ("c", 9), lives=lives)
    assert pipeline.run("r1", lambda epoch: names(born(epoch)), until(5)) == "bc"
    assert pipeline.run("r2", lambda epoch: names(epoch.state("state")), until(6)) == "c"
    assert pipeline.run("r3", lambda epoch: names(live(1, ("b", 1), ("d", 9))(epoch)), until(8)) == "cd"
    with pipeline.running("r4") as epoch:
        after = live(1, ("e", 9))(epoch)
        with pytest.raises(InvalidStateError, match="this epoch has no time of its own"):
            rows(after)
        with pytest.raises(InvalidStateError, match="this epoch has no time of its own"):
            epoch.publish("league", after)  # type: ignore[arg-type]

    with pipeline.running("r5") as epoch:
        changed = counts(epoch.spark, ("a", 3)).selectExpr("route", "timestamp_seconds(flights * 3600) AS time")
        epoch.update("other", changed, key="route", ttl=HOUR).count()
        with pytest.raises(InvalidStateError, match="'other' was written or dropped before in this epoch"):
            epoch.snapshot("other", changed)
        with pytest.raises(InvalidStateError, match="the watermark was asked for before"):
            epoch.advance_watermark(datetime(1970, 1, 1, 5, tzinfo=UTC))

    pipeline.run("r6", live(5, ("f", 9)))
    left = pipeline.run("r7", lambda epoch: names(epoch.state("other")))
    assert left == "", "a snapshot that was refused has taken no time to live away"


def test_first_used_after_the_block_it_is_refused(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics K8
    with pipeline.running("r1") as epoch:
        unused = epoch.update("state", counts(spark, ("a", 1)), key="route")
        used = epoch.aggregate("sums", counts(spark, ("a", 1)), key="route", merge={"flights": "sum"})
        assert used.columns == ["route", "flights"]
        with pytest.raises(InvalidStateError, match="'state' was written or dropped before in this epoch"):
            epoch.snapshot("state", counts(spark, ("a", 1)), key="route")
    assert rows(used) == [("a", 1)]
    text = r"epoch\.update has returned the state 'state', which was first used after the epoch's block"
    with pytest.raises(InvalidStateError, match=text):
        rows(unused)
