"""The example DAGs in one warm Spark: a driver is killed after each of its writes, and what comes out is exact."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.answers import Ready, Submit
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark import DataCheckError, Epoch, state, table
from airflow_cairn.spark.stored.outputs import of_checkpoint
from airflow_cairn.testing import assert_exactly_once
from airflow_cairn.testing.epochs import LocalJob
from airflow_cairn.testing.exactly_once import plan_of
from scripts.setup.base import ROOT
from tests.real.spark.pipeline import rows, session_builder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = ROOT / "dags" / "examples"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = session_builder().config("spark.sql.shuffle.partitions", "1").getOrCreate()
    yield session
    session.stop()


class Example:
    """An example whose `s3a://lake` is a folder, and the epochs of its job."""

    def __init__(self, name: str, spark: SparkSession, folder: Path, killed: bool) -> None:
        from airflow.dag_processing.dagbag import DagBag

        self.killed = killed
        self.spark, self.lake, self.folder = spark, folder / "lake", folder / "job"
        file = folder / f"{name}.py"
        file.write_text((EXAMPLES / file.name).read_text().replace("s3a://lake", f"file://{self.lake}"))
        bag = DagBag(dag_folder=file, safe_mode=False)
        assert bag.import_errors == {}
        self.dag = bag.dags[name]

    def arrives(self, kind: str, schema: str, *values: str) -> None:
        """Write the input of all days, without Python workers."""
        frame = self.spark.sql(f"SELECT * FROM VALUES {', '.join(values)} AS t({schema})").coalesce(1)
        frame.write.parquet(f"file://{self.lake}/{kind}")

    def run(self, days: int, *, kill: str | None = None, drained: bool = False) -> None:
        """Run an epoch for each day from 1 January on.

        With `kill` the first two come before that, once for each write of this stage, whose driver dies after it: in
        `make soak`, because it takes a minute or three.
        """
        windows = [(day(number), day(number + 1)) for number in range(1, days + 1)]
        if kill is not None and self.killed:
            assert assert_exactly_once(self.dag, kill=[kill], windows=windows[:2], spark=self.spark) > 1
        plan = plan_of(self.dag, windows, self.spark)
        self.job = job = LocalJob(self.folder, config=plan.config)
        for number, window in enumerate(plan.slices, 1):
            run = f"day__{number}"
            job.trigger(run, [stage.spec for stage in plan.stages], window)
            for stage in plan.stages:
                stage.run(self._epoch(run, stage.spec.uid, draining=drained and number == days))
            assert isinstance(job.coordinator.progress(epoch_name(run)), Ready)
            job.complete(run)

    def _epoch(self, run: str, stage: str, *, draining: bool) -> Epoch:
        answer = self.job.claim(run, stage)
        assert isinstance(answer, Submit), answer
        return Epoch(self.spark, self.job.store, replace(answer.handover, draining=draining), self.job.runtime)

    def table(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        return shown(table(self.spark, f"file://{self.folder}", "local", name), columns)

    def state(self, stage: str, name: str, *columns: str) -> list[tuple[Any, ...]]:
        return shown(state(self.spark, f"file://{self.folder}", "local", stage, name), columns)

    def file(self, stage: str, name: str) -> bytes:
        """Give the one raw file that the newest checkpoint holds by this name."""
        files = self.job.coordinator.files
        newest = self.job.coordinator.head().completed[-1].metadata
        [contents] = of_checkpoint(files, newest, lambda uid: uid == stage)
        [stored] = [each for each in contents.outputs.values() if each.output.name == name]
        [file] = stored.files
        return files.get(file.handle.path, max_bytes=10_000).data


def day(number: int) -> datetime:
    return datetime(2026, 1, number, tzinfo=UTC)


def shown(frame: DataFrame, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Give rows sorted, with moments as `day hour:minute`."""
    times = {field.name for field in frame.schema if field.dataType.typeName() == "timestamp"}
    return rows(frame.selectExpr(*(f"date_format({each}, 'd HH:mm')" if each in times else each for each in columns)))


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.soak)], ids=["calm", "killed"])
def example(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Example]:
    return lambda name: Example(name, spark, tmp_path, request.param)


def at(text: str) -> str:
    """Give `2 09:30`, a day of January and a time, as SQL."""
    number, time = text.split()
    return f"TIMESTAMP '2026-01-0{number} {time}'"


@pytest.mark.soak  # an example; late rows and a drain are in test_event_time.py
def test_each_hour_is_published_once(example: Callable[[str], Example]) -> None:
    """The drain lets the last hours out; late clicks are in no hour."""
    pages = example("windowed_events")
    seen = [
        ("'home'", at("1 09:10"), at("1 09:11")),
        ("'home'", at("1 09:50"), at("1 10:30")),  # late by 40 minutes, and in time
        ("'docs'", at("1 23:20"), at("1 23:21")),  # the watermark is 22:20 now
        ("'docs'", at("1 23:40"), at("2 00:05")),  # in an hour that is open over midnight
        ("'home'", at("1 09:20"), at("2 00:06")),  # its hour is over
        ("'home'", "NULL", at("2 00:07")),
        ("'home'", at("2 12:00"), at("2 12:01")),
        ("'home'", at("2 12:59"), at("3 01:00")),
        ("'docs'", at("3 08:00"), at("3 08:01")),
    ]
    pages.arrives("views", "page, at, arrived", *(f"({', '.join(each)})" for each in seen))
    pages.run(3, kill="hours", drained=True)
    assert pages.table("hourly_views", "page", "end", "views") == [
        ("docs", "2 00:00", 2),
        ("docs", "3 09:00", 1),
        ("home", "1 10:00", 2),
        ("home", "2 13:00", 2),
    ]
    assert pages.table("late_views", "page", "coalesce(date_format(at, 'd HH:mm'), 'never') AS at") == [
        ("home", "1 09:20"),
        ("home", "never"),
    ]
    assert pages.state("hours", "open", "page") == []


@pytest.mark.soak  # an example; timers are in test_event_time.py
def test_a_session_ends_once_after_its_last_click(example: Callable[[str], Example]) -> None:
    """A session may last over midnight. Clicks come in any order, also in two sessions of one visitor on one day."""
    site = example("session_counting")
    clicked = [
        ("'ada'", at("1 10:25"), at("1 10:26")),
        ("'ada'", at("1 10:00"), at("1 10:30")),
        ("'ada'", at("1 10:55"), at("1 10:56")),  # 30 minutes after: another session
        ("'bob'", at("1 23:50"), at("1 23:51")),
        ("'bob'", at("2 00:10"), at("2 00:11")),  # the same session, in the next run
        ("'bob'", at("2 00:35"), at("2 00:36")),
        ("'ada'", at("1 23:30"), at("2 00:40")),  # late: the watermark was 23:40
        ("'eve'", at("2 23:59"), at("2 23:59")),
        ("'eve'", at("3 00:01"), at("3 00:02")),
    ]
    site.arrives("clicks", "visitor, at, arrived", *(f"({', '.join(each)})" for each in clicked))
    site.run(3, kill="sessions")
    assert site.table("sessions", "visitor", "start", "clicks") == [
        ("ada", "1 10:00", 2),
        ("ada", "1 10:55", 1),
        ("bob", "1 23:50", 3),
    ]
    assert site.table("late_clicks", "visitor", "at") == [("ada", "1 23:30")]
    assert site.state("sessions", "open", "visitor", "start", "end", "clicks") == [("eve", "2 23:59", "3 00:31", 2)]


def test_an_order_is_in_the_table_once(example: Callable[[str], Example]) -> None:
    shop = example("deduplication")
    delivered = [
        (1, at("1 10:00"), 5, at("1 10:01")),
        (1, at("1 10:00"), 5, at("1 10:02")),  # again on the same day
        (2, at("1 11:00"), 7, at("1 11:01")),
        (2, at("1 11:00"), 7, at("2 09:00")),  # and on the next
        (3, at("2 12:00"), 1, at("2 12:01")),
        (3, at("2 12:00"), 1, at("3 12:01")),
        (4, "TIMESTAMP '2025-12-24 10:00'", 9, at("3 12:02")),  # older than seven days: it may have been there
        (5, "TIMESTAMP '2025-12-27 10:00'", 2, at("3 12:03")),
    ]
    shop.arrives("orders", "id, at, amount, arrived", *(f"({', '.join(map(str, each))})" for each in delivered))
    shop.run(3, kill="orders")
    assert shop.table("orders", "id", "amount") == [(1, 5), (2, 7), (3, 1), (5, 2)]
    assert shop.table("old_orders", "id") == [(4,)]
    assert shop.state("orders", "seen", "id") == [(1,), (2,), (3,), (5,)]


CHANGES = "customer, city, at, arrived"


@pytest.mark.soak  # an example; what an update writes is in test_updates.py
def test_a_dimension_has_each_version_once(example: Callable[[str], Example]) -> None:
    shop = example("slowly_changing_dimension")
    changed = [
        ("'ada'", "'Rome'", at("1 08:00"), at("1 09:00")),
        ("'ada'", "'Oslo'", at("1 12:00"), at("1 12:01")),  # twice in one run
        ("'bob'", "'Bern'", at("1 08:00"), at("1 08:01")),
        ("'ada'", "'Oslo'", at("2 08:00"), at("2 08:01")),  # no change
        ("'bob'", "NULL", at("2 09:00"), at("2 09:01")),
        ("'bob'", "'Bern'", at("3 09:00"), at("3 09:01")),
    ]
    shop.arrives("customers", CHANGES, *(f"({', '.join(each)})" for each in changed))
    shop.run(3, kill="customers")
    city = "coalesce(city, '') AS city"
    assert shop.table("ended", "customer", city, "since", "until") == [
        ("ada", "Rome", "1 08:00", "1 12:00"),
        ("bob", "", "2 09:00", "3 09:00"),
        ("bob", "Bern", "1 08:00", "2 09:00"),
    ]
    assert shop.state("customers", "valid", "customer", city, "since") == [
        ("ada", "Oslo", "1 12:00"),
        ("bob", "Bern", "3 09:00"),
    ]


@pytest.mark.soak  # an example; checks that decline: test_local_epoch.py
def test_a_change_that_is_not_newer_than_what_it_ends_is_refused(example: Callable[[str], Example]) -> None:
    shop = example("slowly_changing_dimension")
    changed = [
        ("'ada'", "'Rome'", at("1 08:00"), at("1 09:00")),
        ("'ada'", "'Oslo'", at("1 07:00"), at("2 09:00")),
        ("'ada'", "'Bern'", at("1 08:00"), at("2 09:01")),
    ]
    shop.arrives("customers", CHANGES, *(f"({', '.join(each)})" for each in changed))
    with pytest.raises(DataCheckError, match="'a change is newer than the version that it ends' failed: 2 rows"):
        shop.run(2)


def test_a_model_learns_from_each_ride_once(example: Callable[[str], Example]) -> None:
    rides = [(3, 2.0, 9.0, 1), (1, 1.0, 6.5, 1), (2, 4.0, 15.0, 1), (4, 3.0, 12.5, 2), (5, 0.5, 4.0, 3)]
    taxis = example("model_training")
    given = [f"({number}, {km}D, {minutes}D, {at(f'{on} 10:00')})" for number, km, minutes, on in rides]
    taxis.arrives("rides", "id, km, minutes, arrived", *given, f"(6, NULL, 3D, {at('1 10:00')})")
    taxis.run(3, kill="train")
    expected = {"rides": 0, "per_km": 0.0, "at_least": 0.0}
    for _, km, minutes, _ in sorted(rides):
        error = minutes - (expected["at_least"] + expected["per_km"] * km)
        expected["per_km"] += 0.01 * error * km
        expected["at_least"] += 0.01 * error
        expected["rides"] += 1
    assert json.loads(taxis.file("train", "model")) == expected
