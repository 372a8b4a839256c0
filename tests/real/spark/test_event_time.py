"""Watermarks, late rows, timers and the time to live of state, epoch after epoch on a real Spark (semantics K6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import InvalidStateError
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.spark import Epoch, StateTtl, compact
from airflow_cairn.spark.stored import deltas, merges
from airflow_cairn.storage import open_store
from tests.real.spark.pipeline import At, Pipeline, bounds, rows
from tests.support.errors import raises_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

DELAY = timedelta(minutes=10)
HOUR = timedelta(hours=1)
BY_EVENT, BY_EPOCH = StateTtl(HOUR, "time"), StateTtl(HOUR, "time", "processing")
LIVES = {"event": BY_EVENT, "processing": BY_EPOCH}
"""By name of a state, how long its rows live."""


def events(spark: SparkSession, *pairs: tuple[str, str | None], kind: str = "TIMESTAMP") -> DataFrame:
    """Make a frame of routes and times of 1 January 2026, without Python workers."""
    day = f"{kind} '2026-01-01"
    values = ", ".join(f"('{route}', " + (f"{day} {time}')" if time else "NULL)") for route, time in pairs)
    typed = f"CAST(time AS {kind}) AS time"
    if not pairs:
        return spark.sql(f"SELECT 'A' AS route, CAST(NULL AS {kind}) AS time WHERE false")
    return spark.sql(f"SELECT route, {typed} FROM VALUES {values} AS t(route, time)").coalesce(1)


def clock(frame: DataFrame | None) -> list[tuple[str, str]]:
    """Give routes and times, sorted."""
    assert frame is not None
    return rows(frame.selectExpr("route", "date_format(time, 'HH:mm')"))


def routes(frame: DataFrame | None) -> str:
    assert frame is not None
    return "".join(row[0] for row in rows(frame))


def moment(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-01T{time}:00+00:00")


def until(hour: int) -> Slice:
    """Give the hour that ends then."""
    begin, end = (f"2026-01-01T{each:02d}:00:00+00:00" for each in (hour - 1, hour))
    return Slice(begin, end)


def stored(pipeline: Pipeline, folder: str, name: str) -> list[tuple[str, str]]:
    """Give the rows in the files of a state's base below a folder."""
    assert pipeline.spark is not None
    found = [each for each in pipeline.parquet() if each.startswith(folder) and f"/state.{name}/" in each]
    files = [f"{pipeline.storage}/{pipeline.job}/{each}" for each in found]
    return clock(pipeline.spark.read.parquet(*files).drop("_cairn_key_group"))


@pytest.mark.parametrize("kind", ["TIMESTAMP", pytest.param("TIMESTAMP_NTZ", marks=pytest.mark.soak)])
def test_the_watermark_moves_on_and_what_is_behind_it_is_late(
    spark: SparkSession, pipeline: Pipeline, kind: str
) -> None:

    def run(run_id: str, *pairs: tuple[str, str | None]) -> Any:
        frame = events(spark, *pairs, kind=kind)
        with pipeline.running(run_id) as epoch:
            epoch.watermark(frame, "time", delay=DELAY)
            both = (epoch.on_time(frame, "time"), epoch.late(frame, "time"))
            return epoch.current_watermark, *map(routes, both)

    assert run("one") == (None, "", "")
    found = run("two", ("A", "10:00"), ("B", "09:00"), ("C", None))
    assert found == (moment("09:50"), "AB", "C"), "no row is late before there is a watermark"
    found = run("three", ("A", "09:50"), ("B", "09:49"), ("C", "10:05"))
    assert found == (moment("09:55"), "AC", "B"), "judged by the watermark that the epoch began with"
    assert run("four", ("A", "09:00")) == (moment("09:55"), "", "A"), "it never goes back"
    assert run("five") == (moment("09:55"), "", "")


def test_the_end_of_a_window_is_late_when_the_watermark_reaches_it(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.run("one", lambda epoch: epoch.advance_watermark("2026-01-01T10:00"))
    with pipeline.running("two") as epoch:
        ends = events(spark, ("A", "09:59"), ("B", "10:00"), ("C", "10:01"))
        assert routes(epoch.late(ends, "time", inclusive=False)) == "A"
        assert routes(epoch.late(ends, "time", inclusive=True)) == "AB"
        assert routes(epoch.on_time(ends, "time", inclusive=True)) == "C"


def test_an_upstreams_watermark_comes_with_what_it_wrote(spark: SparkSession, at: At) -> None:
    """The watermark passes a stage that does not know of event time, and the slower of two holds it back."""
    upstreams: dict[str, tuple[str, ...]] = {"fast": (), "slow": ()}
    upstreams |= {"between": ("fast",), "routes": ("between", "slow")}
    pipeline = at(stages=tuple(StageSpec(name, each) for name, each in upstreams.items()))

    def run(run_id: str, fast: str, slow: str) -> datetime | None:
        pipeline.trigger(run_id)
        for stage, time in (("fast", fast), ("slow", slow)):
            with pipeline.epoch(run_id, stage) as at_source:
                read = events(spark, ("A", time))
                at_source.watermark(read, "time")
                at_source.write(read)
        with pipeline.epoch(run_id, "between") as between:
            between.write(between.read("fast"))
        with pipeline.epoch(run_id, "routes") as epoch:
            epoch.read("between")
            epoch.read("slow")
            found = epoch.current_watermark
        pipeline.complete(run_id)
        return found

    assert run("one", "10:00", "09:00") == moment("09:00")
    assert run("two", "09:30", "11:00") == moment("10:00")


def test_a_timer_fires_once_when_the_watermark_reaches_it(spark: SparkSession, pipeline: Pipeline) -> None:
    def due(run_id: str, now: str, *set_now: tuple[str, str]) -> list[tuple[str, str]]:
        with pipeline.running(run_id) as epoch:
            epoch.advance_watermark(moment(now))
            timers = epoch.timers("windows", "route")
            if set_now:
                timers.set(events(spark, *set_now, *set_now))
            return clock(timers.due())

    at_once = due("one", "09:00", ("A", "10:00"), ("B", "10:00"), ("A", "11:00"), ("C", "08:00"))
    assert at_once == [("C", "08:00")], "one whose time has passed is due at once"
    first = pipeline.parquet()
    assert due("two", "09:59") == []
    assert first == pipeline.parquet(), "what did not change is not written again"
    assert due("three", "10:00", ("A", "10:00"), ("B", "12:00")) == [("A", "10:00"), ("B", "10:00")]
    assert due("four", "10:30") == []
    assert due("five", "23:00") == [("A", "11:00"), ("B", "12:00")]
    assert due("six", "23:00") == []


@pytest.mark.soak  # test_updates.py moves by a savepoint; a drain is below
def test_timers_travel_with_a_savepoint_into_another_job(
    spark: SparkSession, pipeline: Pipeline, tmp_path: Path
) -> None:  # semantics K6, P1
    """Timers that are set come due once there, by the watermark that came along; earlier ones do not come again."""

    def due(job: Pipeline, run_id: str, now: str | None, *set_now: tuple[str, str]) -> Any:
        with job.running(run_id) as epoch:
            if now is not None:
                epoch.advance_watermark(moment(now))
            timers = epoch.timers("windows", "route")
            if set_now:
                timers.set(events(spark, *set_now))
            return epoch.current_watermark, clock(timers.due())

    found = due(pipeline, "one", "09:00", ("A", "08:00"), ("A", "10:00"), ("B", "11:00"))
    assert found == (moment("09:00"), [("A", "08:00")])
    taken = pipeline.coordinator.savepoint(SavepointRequest(f"file://{tmp_path}/kept", "s"), open_store)
    other = Pipeline(pipeline.storage, spark, pipeline.stages, job="other")
    other.coordinator.start_from(open_store(taken.uri))
    assert due(other, "one", None) == (moment("09:00"), [])
    assert due(other, "two", "10:30") == (moment("10:30"), [("A", "10:00")])
    assert due(other, "three", "11:00", ("C", "12:00")) == (moment("11:00"), [("B", "11:00")])
    own = due(pipeline, "two", "12:00")
    assert own == (moment("12:00"), [("A", "10:00"), ("B", "11:00")]), "the first job has its own"


@pytest.mark.soak  # timers fire above
def test_timers_that_are_not_asked_for_wait(spark: SparkSession, pipeline: Pipeline) -> None:
    with pipeline.running("one") as epoch:
        epoch.advance_watermark(moment("12:00"))
        epoch.timers("windows", "route").set(events(spark, ("A", "10:00")))
    pipeline.run("two", lambda epoch: epoch.put("other", 1))
    with pipeline.running("three") as epoch:
        timers = epoch.timers("windows", ["route"])
        assert epoch.timers("windows", "route") is timers
        assert [clock(timers.due()), clock(timers.due())] == [[("A", "10:00")], []]
        timers.set(events(spark, ("A", "11:00"), ("B", "13:00")))
        assert clock(timers.due()) == [("A", "11:00")]
        timers.set(events(spark, ("A", "11:30")))
    with pipeline.running("four") as epoch:
        assert clock(epoch.timers("windows", "route").due()) == [("A", "11:30")]


def test_a_drain_gives_all_timers_and_keeps_the_watermark(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K6, P2
    """A job that goes on from the drain's savepoint has the watermark that the rows gave."""
    with pipeline.running("one") as epoch:
        epoch.timers("windows", "route").set(events(spark, ("A", "10:00"), ("B", "23:00")))
    pipeline.trigger("two")
    submit = pipeline.begin("two")
    with Epoch(spark, pipeline.store, replace(submit.handover, draining=True)) as epoch:
        epoch.advance_watermark(moment("10:00"))
        assert epoch.current_watermark == datetime.max.replace(tzinfo=UTC)
        timers = epoch.timers("windows", "route")
        timers.set(events(spark, ("C", "22:00")))
        assert clock(timers.due()) == [("A", "10:00"), ("B", "23:00"), ("C", "22:00")]
        assert clock(epoch.on_time(events(spark, ("A", "01:00")), "time")) == [("A", "01:00")]
        epoch.snapshot("seen", events(spark, ("A", "09:30")), key="route", ttl=BY_EVENT)
    pipeline.complete("two")
    with pipeline.running("three") as epoch:
        assert clock(epoch.state("seen")) == [("A", "09:30")]
        assert epoch.current_watermark == moment("10:00")
        assert clock(epoch.timers("windows", "route").due()) == []


def test_timers_are_deleted_by_key_and_time_or_by_key(spark: SparkSession, pipeline: Pipeline) -> None:
    null_key = "SELECT CAST(NULL AS STRING) AS route, TIMESTAMP '2026-01-01 10:00' AS time"
    with pipeline.running("one") as epoch:
        timers = epoch.timers("windows", "route")
        timers.delete(events(spark, ("A", "10:00")))
        assert timers.due() is None
        timers.set(events(spark, ("A", "10:00"), ("A", "11:00"), ("B", "10:00"), ("B", "11:00"), ("C", "10:00")))
        timers.set(spark.sql(null_key))
        timers.delete(events(spark, ("A", "10:00"), ("A", "10:30")))
    with pipeline.running("two") as epoch:
        epoch.advance_watermark(moment("20:00"))
        timers = epoch.timers("windows", "route")
        timers.delete(events(spark, ("B", "00:00"), ("Z", "00:00")).select("route"))
        timers.delete(spark.sql(null_key))
        assert clock(timers.due()) == [("A", "11:00"), ("C", "10:00")]


@pytest.mark.soak  # the test below has another attempt
def test_timers_of_a_killed_attempt_fire_again_at_another_parallelism(
    spark: SparkSession, at: At
) -> None:  # semantics K6, R4
    """A driver that is killed acknowledges nothing: the next attempt is given the same timers, and sets its own."""

    def body(epoch: Epoch) -> Any:
        epoch.watermark(events(spark, ("A", "10:00")), "time")
        timers = epoch.timers("windows", "route")
        timers.set(events(spark, ("N", "11:00")))
        return clock(timers.due())

    many = [(f"R{number}", "09:00") for number in range(40)]
    at(4).run("one", lambda epoch: epoch.timers("windows", "route").set(events(spark, *many)))
    pipeline = at(3)
    pipeline.trigger("two")
    killed = pipeline.epoch("two").__enter__()
    assert body(killed) == sorted(many)
    with pipeline.epoch("two") as epoch:
        assert body(epoch) == sorted(many)
    pipeline.complete("two")
    assert at(5).run("three", body) == []
    assert at(1).run("four", lambda epoch: clock(epoch.state("_cairn_timers.windows"))) == [("N", "11:00")]


def test_a_failover_gives_them_again(spark: SparkSession, pipeline: Pipeline) -> None:  # semantics K6, F2
    """The epoch's next attempt starts from the same checkpoint, and its watermark too."""

    def body(epoch: Epoch, newest: str) -> Any:
        epoch.watermark(events(spark, ("A", newest)), "time")
        timers = epoch.timers("windows", "route")
        timers.set(events(spark, ("A", "10:00"), ("B", "12:00")))
        return epoch.current_watermark, clock(timers.due())

    pipeline.trigger("one")
    first = pipeline.epoch("one").__enter__()
    assert body(first, "23:00")[1] == [("A", "10:00"), ("B", "12:00")]
    pipeline.coordinator.fail(epoch_name("one"), "routes", "try-1", "the driver was killed")
    with pipeline.epoch("one") as epoch:
        assert epoch.attempt == 2
        assert body(epoch, "10:00") == (moment("10:00"), [("A", "10:00")])
    pipeline.complete("one")
    assert pipeline.run("two", lambda epoch: body(epoch, "11:00"))[1] == [("A", "10:00")]


def test_rows_live_as_long_as_they_are_told(spark: SparkSession, pipeline: Pipeline) -> None:
    """By event time and by the time of the epoch: dropped when written, left out when read, and null lives on."""
    some = events(spark, ("A", "09:00"), ("B", "10:00"), ("C", None))

    def read(epoch: Epoch) -> list[str]:
        return [routes(epoch.state(name)) for name in ("event", "processing", "forever")]

    with pipeline.running("one", until(10)) as epoch:
        assert epoch.time == moment("10:00")
        epoch.advance_watermark(moment("10:00"))
        epoch.snapshot("forever", some, key="route")
        for name, ttl in LIVES.items():
            epoch.snapshot(name, some, key="route", ttl=ttl)
    with pipeline.running("two", until(11)) as epoch:
        assert read(epoch) == ["BC", "C", "ABC"]
        epoch.advance_watermark(moment("10:30"))
        with pytest.raises(InvalidStateError, match="'event' has a time to live, and partial aggregates would bring"):
            epoch.aggregate("event", some, key="route", merge={"time": "max"})
        epoch.update("event", events(spark, ("D", "10:20"), ("A", "09:15")), key="route")
    pipeline.trigger("three", until(12))
    for _ in range(2):
        # The second one is its retry, at a later moment of the same epoch.
        epoch = pipeline.epoch("three").__enter__()
        assert read(epoch) == ["BCD", "C", "ABC"]
        epoch.advance_watermark(moment("12:00"))
    epoch.__exit__(None, None, None)
    pipeline.complete("three")
    with pipeline.running("four", until(13)) as epoch:
        assert read(epoch) == ["C", "C", "ABC"]
        epoch.snapshot("event", some, key="route")
        epoch.drop("processing")
    assert pipeline.run("five", lambda epoch: routes(epoch.state("event")), until(14)) == "ABC"


@pytest.mark.soak  # the test above, and test_given_back.py
def test_a_state_that_is_only_updated_has_a_time_to_live(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K2, K6
    """Given once it stays; rows of epochs before it end too, and none comes back by another one."""
    with pipeline.running("one") as epoch:
        epoch.update("seen", events(spark, ("A", "08:00"), ("B", "11:00"), ("C", None)), "route")
    with pipeline.running("two") as epoch:
        epoch.advance_watermark(moment("10:00"))
        with pytest.raises(InvalidStateError, match="time to live of the state 'seen'"):
            epoch.update("seen", events(spark, ("B", "08:30")), key="route", ttl=StateTtl(HOUR, "route"))
        with pytest.raises(InvalidStateError, match="this epoch has no time of its own"):
            epoch.update("other", events(spark, ("B", None)), key="route", ttl=BY_EPOCH)
        epoch.update("seen", events(spark, ("B", "08:30"), ("D", "10:30")), key="route", ttl=BY_EVENT)
    with pipeline.running("three") as epoch:
        assert clock(epoch.state("seen")) == [("C", None), ("D", "10:30")], "B has not come back"
        with pytest.raises(InvalidStateError, match="rows could come back that have ended"):
            epoch.update("seen", events(spark, ("E", "09:30")), key="route", ttl=StateTtl(2 * HOUR, "time"))
        epoch.update("seen", events(spark, ("E", "09:30")), key="route")
        epoch.advance_watermark(moment("10:45"))
    with pipeline.running("four") as epoch:
        assert clock(epoch.state("seen")) == [("C", None), ("D", "10:30")], "without a ttl it keeps the one that it has"
        epoch.update("seen", None, deletes=events(spark, ("D", None)), key="route", ttl=BY_EVENT)
    assert pipeline.run("five", lambda epoch: clock(epoch.state("seen"))) == [("C", None)]


@pytest.mark.soak  # rows end above, and in test_given_back.py
def test_a_new_base_drops_rows_that_have_ended(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K3, K6
    """Rows that a read leaves out go. No older row of their key comes back; a run without a time drops none by it.

    A merged run keeps them: they hide the older rows of the base.
    """
    bounds(monkeypatch, 3)
    pipeline = at(retained=3)

    def written(name: str) -> list[tuple[str, str]]:
        folder = f"chk-{pipeline.coordinator.head().completed[-1].id:010}/"
        assert all("/state." in each for each in pipeline.parquet(folder)), "the runs have become a base"
        return stored(pipeline, folder, name)

    with pipeline.running("one", until(11)) as epoch:
        # Of B the older row would live longest: only one that hides it has ended.
        some = events(spark, ("A", "08:00"), ("B", "11:00"), ("C", None))
        for name, ttl in LIVES.items():
            epoch.snapshot(name, some, key="route", ttl=ttl)
    with pipeline.running("two", until(12)) as epoch:
        epoch.advance_watermark(moment("10:00"))
        for name in LIVES:
            epoch.update(name, events(spark, ("B", "08:30"), ("D", "10:30")), key="route")
    with pipeline.running("three", until(13)) as epoch:
        for name in LIVES:
            epoch.update(name, events(spark, ("E", "08:45"), ("F", "09:30")), key="route")
    files = pipeline.parquet(f"chk-{epoch.checkpoint:010}/")
    assert [each.split("/")[-2] for each in sorted(files)] == ["merged.event", "merged.processing"]
    with pipeline.running("four") as epoch:
        assert clock(epoch.state("event")) == [("C", None), ("D", "10:30"), ("F", "09:30")], "B has not come back"
        # The watermark moves on in this epoch, after the update: a read and a new base go by that of its begin.
        for name in LIVES:
            epoch.update(name, events(spark, ("G", "09:45")), key="route")
        epoch.advance_watermark(moment("11:00"))
    there = [("B", "08:30"), ("C", None), ("D", "10:30"), ("E", "08:45"), ("F", "09:30"), ("G", "09:45")]
    assert written("event") == [each for each in there if each[0] in "CDFG"]
    assert written("processing") == there, "the run has no time of its own"

    monkeypatch.setattr(deltas, "MAX_EPOCHS", 2)
    with pipeline.running("five", until(14)) as epoch:
        epoch.update("processing", events(spark, ("H", "14:45")), key="route")
    with pipeline.running("six", until(15)) as epoch:
        epoch.update("processing", events(spark, ("I", "14:50")), key="route")
        assert clock(epoch.state("event")) == [("C", None), ("D", "10:30")]
    assert written("processing") == [("C", None), ("H", "14:45"), ("I", "14:50")]


@pytest.mark.soak  # rows end above; test_updates.py compacts
def test_a_compaction_drops_rows_that_have_ended_for_its_checkpoint(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K6, K7
    with pipeline.running("one", until(11)) as epoch:
        some = events(spark, ("A", "08:00"), ("B", "11:45"), ("C", None))
        for name, ttl in LIVES.items():
            epoch.snapshot(name, some, key="route", ttl=ttl)
    with pipeline.running("two", until(12)) as epoch:
        epoch.advance_watermark(moment("10:00"))
        for name in LIVES:
            epoch.update(name, events(spark, ("B", "08:30"), ("D", "10:30"), ("E", "11:30")), key="route")
    assert {each.outcome for each in compact(spark, pipeline.storage, pipeline.job)} == {"compacted"}
    for name, left in {"event": "CDE", "processing": "CE"}.items():
        found = stored(pipeline, "chk-0000000001/state/routes/0-", name)
        assert [route for route, _ in found] == list(left)
    with pipeline.running("three", until(13)) as epoch:
        assert clock(epoch.state("event")) == [("C", None), ("D", "10:30"), ("E", "11:30")]
        assert routes(epoch.state("processing")) == "C"
    assert compact(spark, pipeline.storage, pipeline.job) == [], "both are adopted, so there are no runs"


@pytest.mark.soak  # as above
def test_a_compaction_keeps_rows_that_are_alive_for_an_older_checkpoint(
    spark: SparkSession, at: At
) -> None:  # semantics K6, K7
    """The newest checkpoint has moved the watermark on, and left the state: the one before it names the same files."""
    pipeline = at(retained=3)
    with pipeline.running("one") as epoch:
        some = events(spark, ("A", "11:30"), ("B", "11:45"))
        epoch.snapshot("event", some, key="route", ttl=StateTtl(timedelta(minutes=1), "time"))
    with pipeline.running("two") as epoch:
        epoch.advance_watermark(moment("10:00"))
        epoch.update("event", events(spark, ("D", "11:50")), key="route")
    pipeline.run("three", lambda epoch: epoch.advance_watermark(moment("12:00")))
    pipeline.run("four", lambda epoch: None)
    [done] = compact(spark, pipeline.storage, pipeline.job, "routes", "event")
    assert done.outcome == "compacted"
    pipeline.coordinator.rewind(pipeline.coordinator.head().completed[-3].id)
    alive = pipeline.run("three again", lambda epoch: clock(epoch.state("event")))
    assert alive == [("A", "11:30"), ("B", "11:45"), ("D", "11:50")]


def test_a_small_state_that_is_written_whole_drops_rows_that_have_ended(
    spark: SparkSession, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K3, K6
    """Rows are dropped after the update: the older row of a key whose new one has ended does not come back."""
    monkeypatch.setattr(merges, "WHOLE_BYTES", 1 << 20)
    with pipeline.running("one") as epoch:
        epoch.advance_watermark(moment("10:00"))
        some = events(spark, ("A", "08:00"), ("B", "11:00"), ("C", None))
        epoch.snapshot("event", some, key="route", ttl=BY_EVENT)
    pipeline.run("two", lambda epoch: epoch.update("event", events(spark, ("B", "08:30"), ("D", "10:30")), key="route"))
    [written] = pipeline.parquet("chk-0000000002/")
    assert "/state.event/" in written, "it is written whole"
    assert stored(pipeline, "chk-0000000002/", "event") == [("C", None), ("D", "10:30")]


def test_what_cannot_be_is_refused(spark: SparkSession, pipeline: Pipeline) -> None:
    some, null = events(spark, ("A", "10:00")), events(spark, ("A", None))
    wall, first_day = (
        events(spark, ("A", "10:00"), kind="TIMESTAMP_NTZ"),
        spark.sql("SELECT DATE '-5877641-06-23' AS day"),
    )
    odd: Any = "10 minutes"
    with pipeline.running("one") as epoch:
        timers = epoch.timers("windows", "route")
        refused: list[tuple[str, Callable[[], object]]] = [
            (r"column that the DataFrame does not have.*column=`when`", lambda: epoch.watermark(some, "when")),
            ("needs a column of timestamps, and route is of the type string", lambda: epoch.watermark(some, "route")),
            ("needs a column of timestamps, and day is of the type date", lambda: epoch.watermark(first_day, "day")),
            ("the delay of a watermark must be a timedelta", lambda: epoch.watermark(some, "time", delay=odd)),
            ("the watermark needs a Spark DataFrame and got a str", lambda: epoch.watermark(odd, "time")),
            ("a number of epochs, at least 1, and is 0", lambda: epoch.watermark(some, "time", idle_after=0)),
            ("a watermark must be a datetime.*and is None", lambda: epoch.advance_watermark(None)),  # type: ignore[arg-type]
            ("a watermark must be a datetime.*and is '10 minutes'", lambda: epoch.advance_watermark(odd)),
            ("'clean' is not an upstream", lambda: epoch.read("clean")),
            (
                "this epoch has no time of its own: its run has no d",
                lambda: epoch.snapshot("state", some, ttl=BY_EPOCH),
            ),
            (
                "time to live of the state 'state' needs a column of timestamps",
                lambda: epoch.snapshot("state", some, ttl=StateTtl(DELAY, "route")),
            ),
            ("no time '10 minutes' to judge", lambda: StateTtl(DELAY, "time", odd)),
            ("longer than nothing", lambda: StateTtl(timedelta(0), "time")),
            (r"null in 'time'", lambda: timers.set(null)),
            ("need the column 'time', which the DataFrame does not", lambda: timers.set(some.select("route"))),
            ("at least one key column", lambda: epoch.timers("other", ())),
        ]
        for text, call in refused:
            with pytest.raises(InvalidStateError, match=text):
                call()
        with raises_code("invalid_name"):
            epoch.watermark(some, "time", source="a/b")
        for name in ("_cairn_watermark", "_cairn_timers.windows"):
            with raises_code("invalid_name", match="reserved for Cairn's own"):
                epoch.put(name, 1)
            with raises_code("invalid_name", match="reserved for Cairn's own"):
                epoch.snapshot(name, some)
        for late in ("timestamp_micros(253402300800000000L)", "TIMESTAMP_NTZ '+10000-01-01 00:00:00'"):
            beyond = spark.sql(f"SELECT 'A' AS route, {late} AS time")
            told = r"watermark has a moment later.*moment=`\+10000-01-01 00:00:00`"
            with pytest.raises(InvalidStateError, match=told):
                epoch.watermark(beyond, "time", source=late.partition(" ")[0].partition("(")[0])
            with pytest.raises(InvalidStateError, match=r"the timers 'far' has a moment later than the year 9999"):
                epoch.timers("far", "route").set(beyond)
        timers.set(some)
        with pytest.raises(InvalidStateError, match=r"'time' of the timers 'windows' has another type"):
            timers.set(wall)
        with pytest.raises(InvalidStateError, match=r"with another key.*set_with=`route`.*key=`time`"):
            epoch.timers("windows", "time", time="route")
        epoch.watermark(some, "time", delay=DELAY)
        assert epoch.current_watermark == moment("09:50")
        with pytest.raises(InvalidStateError, match="was given before in this epoch"):
            epoch.watermark(some, "time", source="main")
        with pytest.raises(InvalidStateError, match="asked for before this input was read"):
            epoch.watermark(some, "time", source="more")
    with pipeline.running("two") as epoch:
        with pytest.raises(InvalidStateError, match=r"with another key.*set_with=`route` set_with_time=`time`"):
            epoch.timers("windows", ["route", "airline"])
        with pytest.raises(InvalidStateError, match="a watermark never goes back"):
            epoch.advance_watermark(moment("09:00"))


def test_an_update_that_failed_gives_its_state_no_time_to_live(spark: SparkSession, pipeline: Pipeline) -> None:
    pipeline.run("one", lambda epoch: epoch.update("seen", events(spark, ("A", "08:00")), "route"))
    with pipeline.running("two") as epoch:
        epoch.advance_watermark(moment("10:00"))
        twice = events(spark, ("B", "10:30"), ("B", "10:45"))
        with pytest.raises(InvalidStateError, match="once"):
            epoch.update("seen", twice, key="route", ttl=BY_EVENT)
    assert pipeline.run("three", lambda epoch: clock(epoch.state("seen"))) == [("A", "08:00")]
