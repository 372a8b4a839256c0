"""Watermarks, late rows, timers and the time to live of state, epoch after epoch on a real Spark (semantics K6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from tests.real.spark.pipeline import Pipeline, bounds, rows
from tests.support.errors import raises_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

At = Callable[..., Pipeline]
DELAY = timedelta(minutes=10)


@pytest.fixture
def at(spark: SparkSession, tmp_path: Path) -> Iterator[At]:
    """One stage, at the parallelism of a test's choice."""

    def choose(parallelism: int | None = None, *stages: StageSpec) -> Pipeline:
        made = stages or (StageSpec("routes", (), parallelism),)
        return Pipeline(f"file://{tmp_path}/lake", spark, made, retained=3)

    yield choose
    choose().forget()


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


def moment(time: str) -> datetime:
    return datetime.fromisoformat(f"2026-01-01T{time}:00+00:00")


class Run:
    """Runs epochs of one stage, one after the other."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __call__(self, run_id: str, body: Callable[[Epoch], Any], stage: str = "routes") -> Any:
        self.pipeline.trigger(run_id)
        with self.pipeline.epoch(run_id, stage) as epoch:
            found = body(epoch)
        self.pipeline.complete(run_id)
        return found


@pytest.mark.parametrize("kind", ["TIMESTAMP", pytest.param("TIMESTAMP_NTZ", marks=pytest.mark.soak)])
def test_the_watermark_moves_on_and_what_is_behind_it_is_late(spark: SparkSession, at: At, kind: str) -> None:
    """semantics K6"""
    run = Run(at())

    def body(*pairs: tuple[str, str | None]) -> Callable[[Epoch], Any]:
        def read(epoch: Epoch) -> Any:
            frame = events(spark, *pairs, kind=kind)
            epoch.watermark(frame, "time", delay=DELAY)
            both = (epoch.on_time(frame, "time"), epoch.late(frame, "time"))
            return epoch.current_watermark, *(rows(each.select("route")) for each in both)

        return read

    assert run("one", body()) == (None, [], [])
    found = run("two", body(("A", "10:00"), ("B", "09:00"), ("C", None)))
    assert found == (moment("09:50"), [("A",), ("B",)], [("C",)]), "no row is late before there is a watermark"
    found = run("three", body(("A", "09:50"), ("B", "09:49"), ("C", "10:05")))
    assert found == (moment("09:55"), [("A",), ("C",)], [("B",)]), "judged by the watermark that the epoch began with"
    assert run("four", body(("A", "09:00"))) == (moment("09:55"), [], [("A",)]), "it never goes back"
    assert run("five", body()) == (moment("09:55"), [], [])


def test_the_end_of_a_window_is_late_when_the_watermark_reaches_it(spark: SparkSession, at: At) -> None:
    """semantics K6"""
    run = Run(at())
    run("one", lambda epoch: epoch.advance_watermark("2026-01-01T10:00"))

    def body(epoch: Epoch) -> Any:
        ends = events(spark, ("A", "09:59"), ("B", "10:00"), ("C", "10:01"))
        return [
            rows(epoch.late(ends, "time", inclusive=inclusive).select("route")) for inclusive in (False, True)
        ], rows(epoch.on_time(ends, "time", inclusive=True).select("route"))

    assert run("two", body) == ([[("A",)], [("A",), ("B",)]], [("C",)])


def test_an_upstreams_watermark_comes_with_what_it_wrote(spark: SparkSession, at: At) -> None:  # semantics K6
    """The watermark passes a stage that does not know of event time, and the slower of two holds it back."""
    pipeline = at(
        None,
        StageSpec("fast"),
        StageSpec("slow"),
        StageSpec("between", ("fast",)),
        StageSpec("routes", ("between", "slow")),
    )

    def epoch(run_id: str, fast: str, slow: str) -> datetime | None:
        pipeline.trigger(run_id)
        for stage, time in (("fast", fast), ("slow", slow)):
            with pipeline.epoch(run_id, stage) as at_source:
                read = events(spark, ("A", time))
                at_source.watermark(read, "time")
                at_source.write(read)
        with pipeline.epoch(run_id, "between") as between:
            between.write(between.read("fast"))
        with pipeline.epoch(run_id, "routes") as routes:
            routes.read("between")
            routes.read("slow")
            found = routes.current_watermark
        pipeline.complete(run_id)
        return found

    assert epoch("one", "10:00", "09:00") == moment("09:00")
    assert epoch("two", "09:30", "11:00") == moment("10:00")


def test_a_timer_fires_once_when_the_watermark_reaches_it(spark: SparkSession, at: At) -> None:  # semantics K6
    run = Run(at())

    def body(until: str, *set_now: tuple[str, str]) -> Callable[[Epoch], Any]:
        def read(epoch: Epoch) -> Any:
            epoch.advance_watermark(moment(until))
            timers = epoch.timers("windows", "route")
            if set_now:
                timers.set(events(spark, *set_now, *set_now))
            return clock(timers.due())

        return read

    assert run("one", body("09:00", ("A", "10:00"), ("B", "10:00"), ("A", "11:00"), ("C", "08:00"))) == [
        ("C", "08:00")
    ], "one whose time has passed is due at once"
    first = at().listing()
    assert run("two", body("09:59")) == []
    assert [key for key in first if key.endswith(".parquet")] == [
        key for key in at().listing() if key.endswith(".parquet")
    ], "what did not change is not written again"
    assert run("three", body("10:00", ("A", "10:00"), ("B", "12:00"))) == [("A", "10:00"), ("B", "10:00")]
    assert run("four", body("10:30")) == []
    assert run("five", body("23:00")) == [("A", "11:00"), ("B", "12:00")]
    assert run("six", body("23:00")) == []


@pytest.mark.soak  # test_updates.py moves by a savepoint; a drain is below
def test_timers_travel_with_a_savepoint_into_another_job(
    spark: SparkSession, at: At, tmp_path: Path
) -> None:  # semantics K6, P1
    """Timers that are set come due once there, by the watermark that came along; earlier ones do not come again."""

    def body(until: str | None, *set_now: tuple[str, str]) -> Callable[[Epoch], Any]:
        def read(epoch: Epoch) -> Any:
            if until is not None:
                epoch.advance_watermark(moment(until))
            timers = epoch.timers("windows", "route")
            if set_now:
                timers.set(events(spark, *set_now))
            return epoch.current_watermark, clock(timers.due())

        return read

    first = at()
    found = Run(first)("one", body("09:00", ("A", "08:00"), ("A", "10:00"), ("B", "11:00")))
    assert found == (moment("09:00"), [("A", "08:00")])
    taken = first.coordinator.savepoint(SavepointRequest(f"file://{tmp_path}/kept", "s"), open_store)
    second = Pipeline(first.storage, spark, first.stages, job="other")
    second.coordinator.start_from(open_store(taken.uri))
    there = Run(second)
    assert there("one", body(None)) == (moment("09:00"), [])
    assert there("two", body("10:30")) == (moment("10:30"), [("A", "10:00")])
    assert there("three", body("11:00", ("C", "12:00"))) == (moment("11:00"), [("B", "11:00")])
    assert Run(first)("two", body("12:00")) == (moment("12:00"), [("A", "10:00"), ("B", "11:00")]), (
        "the first job has its own"
    )


@pytest.mark.soak  # timers fire above
def test_timers_that_are_not_asked_for_wait(spark: SparkSession, at: At) -> None:  # semantics K6
    run = Run(at())

    def set_and_leave(epoch: Epoch) -> None:
        epoch.advance_watermark(moment("12:00"))
        epoch.timers("windows", "route").set(events(spark, ("A", "10:00")))

    run("one", set_and_leave)
    run("two", lambda epoch: epoch.put("other", 1))

    def twice(epoch: Epoch) -> Any:
        timers = epoch.timers("windows", ["route"])
        assert epoch.timers("windows", "route") is timers
        found = [clock(timers.due()), clock(timers.due())]
        timers.set(events(spark, ("A", "11:00"), ("B", "13:00")))
        found.append(clock(timers.due()))
        timers.set(events(spark, ("A", "11:30")))
        return found

    assert run("three", twice) == [[("A", "10:00")], [], [("A", "11:00")]]
    assert run("four", lambda epoch: clock(epoch.timers("windows", "route").due())) == [("A", "11:30")]


def test_a_drain_gives_all_timers_and_keeps_the_watermark(spark: SparkSession, at: At) -> None:  # semantics K6, P2
    """A job that goes on from the drain's savepoint has the watermark that the rows gave."""
    Run(at())("one", lambda epoch: epoch.timers("windows", "route").set(events(spark, ("A", "10:00"), ("B", "23:00"))))
    pipeline = at()
    pipeline.trigger("two")
    submit = pipeline.begin("two")
    with Epoch(spark, pipeline.store, replace(submit.handover, draining=True)) as epoch:
        epoch.advance_watermark(moment("10:00"))
        assert epoch.current_watermark == datetime.max.replace(tzinfo=UTC)
        timers = epoch.timers("windows", "route")
        timers.set(events(spark, ("C", "22:00")))
        assert clock(timers.due()) == [("A", "10:00"), ("B", "23:00"), ("C", "22:00")]
        assert clock(epoch.on_time(events(spark, ("A", "01:00")), "time")) == [("A", "01:00")]
        epoch.snapshot("seen", events(spark, ("A", "09:30")), key="route", ttl=StateTtl(timedelta(hours=1), "time"))
    pipeline.complete("two")

    def after(epoch: Epoch) -> Any:
        return clock(epoch.state("seen")), epoch.current_watermark, clock(epoch.timers("windows", "route").due())

    assert Run(pipeline)("three", after) == ([("A", "09:30")], moment("10:00"), [])


def test_timers_are_deleted_by_key_and_time_or_by_key(spark: SparkSession, at: At) -> None:  # semantics K6
    run = Run(at())
    null_key = "SELECT CAST(NULL AS STRING) AS route, TIMESTAMP '2026-01-01 10:00' AS time"

    def some(epoch: Epoch) -> None:
        timers = epoch.timers("windows", "route")
        timers.delete(events(spark, ("A", "10:00")))
        assert timers.due() is None
        timers.set(events(spark, ("A", "10:00"), ("A", "11:00"), ("B", "10:00"), ("B", "11:00"), ("C", "10:00")))
        timers.set(spark.sql(null_key))
        timers.delete(events(spark, ("A", "10:00"), ("A", "10:30")))

    run("one", some)

    def rest(epoch: Epoch) -> Any:
        epoch.advance_watermark(moment("20:00"))
        timers = epoch.timers("windows", "route")
        timers.delete(events(spark, ("B", "00:00"), ("Z", "00:00")).select("route"))
        timers.delete(spark.sql(null_key))
        return clock(timers.due())

    assert run("two", rest) == [("A", "11:00"), ("C", "10:00")]


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
    Run(at(4))("one", lambda epoch: epoch.timers("windows", "route").set(events(spark, *many)))
    pipeline = at(3)
    pipeline.trigger("two")
    killed = pipeline.epoch("two").__enter__()
    assert body(killed) == sorted(many)
    with pipeline.epoch("two") as epoch:
        assert body(epoch) == sorted(many)
    pipeline.complete("two")
    assert Run(at(5))("three", body) == []
    assert Run(at(1))("four", lambda epoch: clock(epoch.state("_cairn_timers.windows"))) == [("N", "11:00")]


def test_a_failover_gives_them_again(spark: SparkSession, at: At) -> None:  # semantics K6, F2
    """The epoch's next attempt starts from the same checkpoint, and its watermark too."""
    pipeline = at()

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
    assert Run(pipeline)("two", lambda epoch: body(epoch, "11:00"))[1] == [("A", "10:00")]


def test_rows_live_as_long_as_they_are_told(spark: SparkSession, at: At) -> None:  # semantics K6
    """By event time and by the time of the epoch: dropped when written, left out when read, and null lives on."""
    hour = timedelta(hours=1)
    by_event, by_epoch = StateTtl(hour, "time"), StateTtl(hour, "time", "processing")
    some = events(spark, ("A", "09:00"), ("B", "10:00"), ("C", None))

    def write(epoch: Epoch) -> None:
        epoch.advance_watermark(moment("10:00"))
        epoch.snapshot("event", some, key="route", ttl=by_event)
        epoch.snapshot("processing", some, key="route", ttl=by_epoch)
        epoch.snapshot("forever", some, key="route")

    def read(epoch: Epoch) -> Any:
        names = ("event", "processing", "forever")
        return [[row[0] for row in rows(epoch.state(name))] for name in names]

    def at_hour(hour: int) -> Slice:
        return Slice(f"2026-01-01T{hour - 1:02d}:00:00+00:00", f"2026-01-01T{hour:02d}:00:00+00:00")

    def run(run_id: str, hour: int, body: Callable[[Epoch], Any]) -> Any:
        pipeline.trigger(run_id, at_hour(hour))
        with pipeline.epoch(run_id) as epoch:
            assert epoch.time == datetime(2026, 1, 1, hour, tzinfo=UTC)
            found = body(epoch)
        pipeline.complete(run_id)
        return found

    pipeline = at()
    run("one", 10, write)

    def carry_on(epoch: Epoch) -> Any:
        found = read(epoch)
        epoch.advance_watermark(moment("10:30"))
        with pytest.raises(InvalidStateError, match="'event' has a time to live, and partial aggregates would bring"):
            epoch.aggregate("event", some, key="route", merge={"time": "max"})
        epoch.update("event", events(spark, ("D", "10:20"), ("A", "09:15")), key="route")
        return found

    assert run("two", 11, carry_on) == [["B", "C"], ["C"], ["A", "B", "C"]]
    pipeline.trigger("three", at_hour(12))
    for _ in range(2):
        # The second one is its retry, at a later moment of the same epoch.
        epoch = pipeline.epoch("three").__enter__()
        assert read(epoch) == [["B", "C", "D"], ["C"], ["A", "B", "C"]]
        epoch.advance_watermark(moment("12:00"))
    epoch.__exit__(None, None, None)
    pipeline.complete("three")

    def without(epoch: Epoch) -> Any:
        found = read(epoch)
        epoch.snapshot("event", some, key="route")
        epoch.drop("processing")
        return found

    assert run("four", 13, without) == [["C"], ["C"], ["A", "B", "C"]]
    assert run("five", 14, lambda epoch: len(rows(epoch.state("event")))) == 3


@pytest.mark.soak  # the test above, and test_given_back.py
def test_a_state_that_is_only_updated_has_a_time_to_live(spark: SparkSession, at: At) -> None:  # semantics K2, K6
    """Given once it stays; rows of epochs before it end too, and none comes back by another one."""
    pipeline = at()
    hour = timedelta(hours=1)
    lives = StateTtl(hour, "time")

    run = pipeline.run

    def second(epoch: Epoch) -> None:
        epoch.advance_watermark(moment("10:00"))
        with pytest.raises(InvalidStateError, match="time to live of the state 'seen'"):
            epoch.update("seen", events(spark, ("B", "08:30")), key="route", ttl=StateTtl(hour, "route"))
        with pytest.raises(InvalidStateError, match="this epoch has no time of its own"):
            epoch.update("other", events(spark, ("B", None)), key="route", ttl=StateTtl(hour, "time", "processing"))
        epoch.update("seen", events(spark, ("B", "08:30"), ("D", "10:30")), key="route", ttl=lives)

    def third(epoch: Epoch) -> None:
        assert clock(epoch.state("seen")) == [("C", None), ("D", "10:30")], "B has not come back"
        with pytest.raises(InvalidStateError, match="rows could come back that have ended"):
            epoch.update("seen", events(spark, ("E", "09:30")), key="route", ttl=StateTtl(2 * hour, "time"))
        epoch.update("seen", events(spark, ("E", "09:30")), key="route")
        epoch.advance_watermark(moment("10:45"))

    def fourth(epoch: Epoch) -> None:
        assert clock(epoch.state("seen")) == [("C", None), ("D", "10:30")], "without a ttl it keeps the one that it has"
        epoch.update("seen", None, deletes=events(spark, ("D", None)), key="route", ttl=lives)

    run("one", lambda epoch: epoch.update("seen", events(spark, ("A", "08:00"), ("B", "11:00"), ("C", None)), "route"))
    run("two", second)
    run("three", third)
    run("four", fourth)
    found: list[Any] = []
    run("five", lambda epoch: found.extend(clock(epoch.state("seen"))))
    assert found == [("C", None)]


@pytest.mark.soak  # rows end above, and in test_given_back.py
def test_a_new_base_drops_rows_that_have_ended(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K3, K6
    """Rows that a read leaves out go. No older row of their key comes back; a run without a time drops none by it.

    A merged run keeps them: they hide the older rows of the base.
    """
    bounds(monkeypatch, 3)
    pipeline = at()
    hour = timedelta(hours=1)

    def run(run_id: str, body: Callable[[Epoch], Any], end: int | None) -> int:
        day = "2026-01-01T"
        window = Slice(f"{day}{end - 1}:00:00+00:00", f"{day}{end}:00:00+00:00") if end else Slice()
        return pipeline.run(run_id, body, window)

    def stored(checkpoint: int, name: str) -> list[tuple[str, str]]:
        """The rows in the files that the checkpoint wrote, of a base alone."""
        found = [each for each in pipeline.listing(f"chk-{checkpoint:010}/") if each.endswith(".parquet")]
        assert not [each for each in found if "/state." not in each], "the runs have become a base"
        files = [f"{pipeline.storage}/{pipeline.job}/{each}" for each in found if f"/state.{name}/" in each]
        return clock(spark.read.parquet(*files).drop("_cairn_key_group"))

    def first(epoch: Epoch) -> None:
        # Of B the older row would live longest: only one that hides it has ended.
        some = events(spark, ("A", "08:00"), ("B", "11:00"), ("C", None))
        epoch.snapshot("event", some, key="route", ttl=StateTtl(hour, "time"))
        epoch.snapshot("processing", some, key="route", ttl=StateTtl(hour, "time", "processing"))

    def second(epoch: Epoch) -> None:
        epoch.advance_watermark(moment("10:00"))
        for name in ("event", "processing"):
            epoch.update(name, events(spark, ("B", "08:30"), ("D", "10:30")), key="route")

    def third(epoch: Epoch) -> None:
        for name in ("event", "processing"):
            epoch.update(name, events(spark, ("E", "08:45"), ("F", "09:30")), key="route")

    def fourth(epoch: Epoch) -> None:
        assert clock(epoch.state("event")) == [("C", None), ("D", "10:30"), ("F", "09:30")], "B has not come back"
        # The watermark moves on in this epoch, after the update: a read and a new base go by that of its begin.
        for name in ("event", "processing"):
            epoch.update(name, events(spark, ("G", "09:45")), key="route")
        epoch.advance_watermark(moment("11:00"))

    run("one", first, 11)
    run("two", second, 12)
    merged = run("three", third, 13)
    files = [each for each in pipeline.listing(f"chk-{merged:010}/") if each.endswith(".parquet")]
    assert [each.split("/")[-2] for each in sorted(files)] == ["merged.event", "merged.processing"]
    checkpoint = run("four", fourth, None)
    there = [("B", "08:30"), ("C", None), ("D", "10:30"), ("E", "08:45"), ("F", "09:30"), ("G", "09:45")]
    assert stored(checkpoint, "event") == [each for each in there if each[0] in "CDFG"]
    assert stored(checkpoint, "processing") == there, "the run has no time of its own"

    monkeypatch.setattr(deltas, "MAX_EPOCHS", 2)

    def fifth(epoch: Epoch) -> None:
        epoch.update("processing", events(spark, ("H", "14:45")), key="route")

    def sixth(epoch: Epoch) -> None:
        epoch.update("processing", events(spark, ("I", "14:50")), key="route")
        assert clock(epoch.state("event")) == [("C", None), ("D", "10:30")]

    run("five", fifth, 14)
    checkpoint = run("six", sixth, 15)
    assert stored(checkpoint, "processing") == [("C", None), ("H", "14:45"), ("I", "14:50")]


@pytest.mark.soak  # rows end above; test_updates.py compacts
def test_a_compaction_drops_rows_that_have_ended_for_its_checkpoint(
    spark: SparkSession, at: At
) -> None:  # semantics K6, K7
    pipeline, hour = at(), timedelta(hours=1)

    def run(run_id: str, end: int, body: Callable[[Epoch], Any]) -> None:
        pipeline.run(run_id, body, Slice(f"2026-01-01T{end - 1}:00:00+00:00", f"2026-01-01T{end}:00:00+00:00"))

    def first(epoch: Epoch) -> None:
        some = events(spark, ("A", "08:00"), ("B", "11:45"), ("C", None))
        epoch.snapshot("event", some, key="route", ttl=StateTtl(hour, "time"))
        epoch.snapshot("processing", some, key="route", ttl=StateTtl(hour, "time", "processing"))

    def second(epoch: Epoch) -> None:
        epoch.advance_watermark(moment("10:00"))
        for name in ("event", "processing"):
            epoch.update(name, events(spark, ("B", "08:30"), ("D", "10:30"), ("E", "11:30")), key="route")

    def third(epoch: Epoch) -> None:
        assert clock(epoch.state("event")) == [("C", None), ("D", "10:30"), ("E", "11:30")]
        assert [route for route, _ in clock(epoch.state("processing"))] == ["C"]

    run("one", 11, first)
    run("two", 12, second)
    assert {each.outcome for each in compact(spark, pipeline.storage, pipeline.job)} == {"compacted"}
    written = [each for each in pipeline.listing("chk-0000000001/state/routes/") if "/routes/0-" in each]
    for name, left in {"event": "CDE", "processing": "CE"}.items():
        files = [f"{pipeline.storage}/{pipeline.job}/{each}" for each in written if f"/state.{name}/" in each]
        stored = spark.read.parquet(*files).drop("_cairn_key_group")
        assert [route for route, _ in clock(stored)] == list(left)
    run("three", 13, third)
    assert compact(spark, pipeline.storage, pipeline.job) == [], "both are adopted, so there are no runs"


@pytest.mark.soak  # as above
def test_a_compaction_keeps_rows_that_are_alive_for_an_older_checkpoint(
    spark: SparkSession, at: At
) -> None:  # semantics K6, K7
    """The newest checkpoint has moved the watermark on, and left the state: the one before it names the same files."""
    pipeline = at()

    run = pipeline.run

    def first(epoch: Epoch) -> None:
        some = events(spark, ("A", "11:30"), ("B", "11:45"))
        epoch.snapshot("event", some, key="route", ttl=StateTtl(timedelta(minutes=1), "time"))

    def second(epoch: Epoch) -> None:
        epoch.advance_watermark(moment("10:00"))
        epoch.update("event", events(spark, ("D", "11:50")), key="route")

    run("one", first)
    run("two", second)
    run("three", lambda epoch: epoch.advance_watermark(moment("12:00")))
    run("four", lambda epoch: None)
    [done] = compact(spark, pipeline.storage, pipeline.job, "routes", "event")
    assert done.outcome == "compacted"
    pipeline.coordinator.rewind(pipeline.coordinator.head().completed[-3].id)

    def again(epoch: Epoch) -> None:
        assert clock(epoch.state("event")) == [("A", "11:30"), ("B", "11:45"), ("D", "11:50")]

    run("three again", again)


def test_a_small_state_that_is_written_whole_drops_rows_that_have_ended(
    spark: SparkSession, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics K3, K6
    """Rows are dropped after the update: the older row of a key whose new one has ended does not come back."""
    monkeypatch.setattr(merges, "WHOLE_BYTES", 1 << 20)
    pipeline = at()

    run = pipeline.run

    def first(epoch: Epoch) -> None:
        some = events(spark, ("A", "08:00"), ("B", "11:00"), ("C", None))
        epoch.advance_watermark(moment("10:00"))
        epoch.snapshot("event", some, key="route", ttl=StateTtl(timedelta(hours=1), "time"))

    run("one", first)
    run("two", lambda epoch: epoch.update("event", events(spark, ("B", "08:30"), ("D", "10:30")), key="route"))
    [written] = [each for each in pipeline.listing("chk-0000000002/") if each.endswith(".parquet")]
    assert "/state.event/" in written, "it is written whole"
    stored = spark.read.parquet(f"{pipeline.storage}/{pipeline.job}/{written}")
    assert clock(stored) == [("C", None), ("D", "10:30")]


def test_what_cannot_be_is_refused(spark: SparkSession, at: At) -> None:  # semantics K6
    pipeline = at()
    pipeline.trigger("one")
    some = events(spark, ("A", "10:00"))
    with pipeline.epoch("one") as epoch:
        with pytest.raises(InvalidStateError, match=r"column that the DataFrame does not have.*column=`when`"):
            epoch.watermark(some, "when")
        with pytest.raises(InvalidStateError, match="needs a column of timestamps, and route is of the type string"):
            epoch.watermark(some, "route")
        with pytest.raises(InvalidStateError, match="needs a column of timestamps, and day is of the type date"):
            epoch.watermark(spark.sql("SELECT DATE '-5877641-06-23' AS day"), "day")
        with pytest.raises(InvalidStateError, match="the delay of a watermark must be a timedelta"):
            epoch.watermark(some, "time", delay="10 minutes")  # type: ignore[arg-type]
        with pytest.raises(InvalidStateError, match="the watermark needs a Spark DataFrame and got a list"):
            epoch.watermark([], "time")  # type: ignore[arg-type]
        with pytest.raises(InvalidStateError, match="idle_after must be a number of epochs, at least 1, and is 0"):
            epoch.watermark(some, "time", idle_after=0)
        with raises_code("invalid_name"):
            epoch.watermark(some, "time", source="a/b")
        for odd in (None, "soon"):
            with pytest.raises(InvalidStateError, match=f"a watermark must be a datetime.*and is {odd!r}"):
                epoch.advance_watermark(odd)  # type: ignore[arg-type]
        with pytest.raises(InvalidStateError, match="'clean' is not an upstream"):
            epoch.read("clean")
        for name in ("_cairn_watermark", "_cairn_timers.windows"):
            with raises_code("invalid_name", match="reserved for Cairn's own"):
                epoch.put(name, 1)
            with raises_code("invalid_name", match="reserved for Cairn's own"):
                epoch.snapshot(name, some)
        with pytest.raises(InvalidStateError, match="this epoch has no time of its own: its run has no data interval"):
            epoch.snapshot("state", some, ttl=StateTtl(DELAY, "time", "processing"))
        with pytest.raises(InvalidStateError, match="time to live of the state 'state' needs a column of timestamps"):
            epoch.snapshot("state", some, ttl=StateTtl(DELAY, "route"))
        with pytest.raises(InvalidStateError, match="no time 'wall' to judge"):
            StateTtl(DELAY, "time", "wall")  # type: ignore[arg-type]
        with pytest.raises(InvalidStateError, match="longer than nothing"):
            StateTtl(timedelta(0), "time")
        timers = epoch.timers("windows", "route")
        with pytest.raises(InvalidStateError, match=r"null in 'time'"):
            timers.set(events(spark, ("A", None)))
        with pytest.raises(InvalidStateError, match=r"need the column 'time', which the DataFrame does not have"):
            timers.set(some.select("route"))
        micros = "timestamp_micros(253402300800000000L)"
        for late in (micros, "TIMESTAMP_NTZ '+10000-01-01 00:00:00'"):
            beyond = spark.sql(f"SELECT 'A' AS route, {late} AS time")
            with pytest.raises(
                InvalidStateError, match=r"watermark has a moment later.*moment=`\+10000-01-01 00:00:00`"
            ):
                epoch.watermark(beyond, "time", source=late.partition(" ")[0].partition("(")[0])
            with pytest.raises(InvalidStateError, match=r"the timers 'far' has a moment later than the year 9999"):
                epoch.timers("far", "route").set(beyond)
        timers.set(some)
        with pytest.raises(InvalidStateError, match=r"'time' of the timers 'windows' has another type"):
            timers.set(events(spark, ("A", "10:00"), kind="TIMESTAMP_NTZ"))
        with pytest.raises(InvalidStateError, match=r"with another key.*set_with=`route`.*key=`time`"):
            epoch.timers("windows", "time", time="route")
        with pytest.raises(InvalidStateError, match="at least one key column"):
            epoch.timers("other", ())
        epoch.watermark(some, "time", delay=DELAY)
        assert epoch.current_watermark == moment("09:50")
        with pytest.raises(InvalidStateError, match="was given before in this epoch"):
            epoch.watermark(some, "time", source="main")
        with pytest.raises(InvalidStateError, match="asked for before this input was read"):
            epoch.watermark(some, "time", source="more")
    pipeline.complete("one")
    pipeline.trigger("two")
    with pipeline.epoch("two") as epoch:
        with pytest.raises(InvalidStateError, match=r"with another key.*set_with=`route` set_with_time=`time`"):
            epoch.timers("windows", ["route", "airline"])
        with pytest.raises(InvalidStateError, match="a watermark never goes back"):
            epoch.advance_watermark(moment("09:00"))


def test_an_update_that_failed_gives_its_state_no_time_to_live(
    spark: SparkSession, pipeline: Pipeline
) -> None:  # semantics K6
    run = pipeline.run

    def second(epoch: Epoch) -> None:
        epoch.advance_watermark(moment("10:00"))
        twice = events(spark, ("B", "10:30"), ("B", "10:45"))
        with pytest.raises(InvalidStateError, match="once"):
            epoch.update("seen", twice, key="route", ttl=StateTtl(timedelta(hours=1), "time"))

    run("one", lambda epoch: epoch.update("seen", events(spark, ("A", "08:00")), "route"))
    run("two", second)
    found: list[Any] = []
    run("three", lambda epoch: found.extend(clock(epoch.state("seen"))))
    assert found == [("A", "08:00")]
