"""`airflow_cairn.testing` on a real Spark: the examples' own applications, epoch after epoch, without Airflow."""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_cairn.checkpoint import InvalidConfigError, InvalidStateError
from airflow_cairn.spark import DataCheckError, Epoch, Keyed
from airflow_cairn.testing import FakeClock, by_hand, local_epoch, run_application, run_by_hand
from airflow_cairn.testing.epochs import LocalJob
from scripts.harness.spark.start import small_conf
from scripts.markdown import parse
from scripts.setup.base import ROOT
from tests.real.spark.pipeline import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

APPLICATIONS = ROOT / "dags" / "applications"


def flights(spark: SparkSession, *flown: tuple[str, str, int]) -> DataFrame:
    values = ", ".join(f"('{origin}', '{destination}', {delay})" for origin, destination, delay in flown)
    return spark.sql(f"SELECT * FROM VALUES {values} AS t(origin, destination, delay)").coalesce(1)


@pytest.mark.soak  # test_epochs_follow_each_other below goes on from state
def test_an_example_counts_on_from_its_state(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.sql("SELECT 'AMS' AS airport, 5L AS departures, 1L AS arrivals")
    written = run_application(
        spark,
        APPLICATIONS / "airports.py",
        inputs={"clean": flights(spark, ("AMS", "LHR", 3), ("LHR", "AMS", 0))},
        state={"traffic": Keyed(before, "airport")},
        parallelism=2,
        folder=tmp_path,
    )
    assert rows(written.states["traffic"]) == [("AMS", 6, 2), ("LHR", 1, 1)]
    assert (written.tables, written.outputs) == ({}, {})


def test_an_example_reads_its_slice(spark: SparkSession, tmp_path: Path) -> None:
    """The example runs with its arguments and without state: no row of another day, and none that cannot be counted."""
    spark.sql(
        "SELECT * FROM VALUES (TIMESTAMP_NTZ'2026-01-01 23:59:59', 1, 'AMS', 'LHR'),"
        " (TIMESTAMP_NTZ'2026-01-02 00:00:00', 2, 'AMS', 'LHR'), (TIMESTAMP_NTZ'2026-01-02 09:00:00', NULL, 'A', 'B')"
        " AS t(date, delay, origin, destination)"
    ).write.parquet(f"file://{tmp_path}/flights")
    written = run_application(
        spark,
        APPLICATIONS / "clean.py",
        f"file://{tmp_path}/flights",
        start="2026-01-02T00:00:00+00:00",
        end="2026-01-03T00:00:00+00:00",
    )
    assert [row[1:] for row in rows(written.outputs["main"])] == [(2, "AMS", "LHR")]


def test_an_example_reads_two_upstreams(spark: SparkSession) -> None:
    routes = spark.sql("SELECT 'AMS' AS origin, 'LHR' AS destination, 4L AS flights, 10L AS delay_sum")
    airports = spark.sql("SELECT 'AMS' AS airport, 4L AS departures, 1L AS arrivals")
    written = run_application(
        spark,
        APPLICATIONS / "report.py",
        inputs={"routes": {"totals": routes}, "airports": {"traffic": airports}},
        values={"days": 6},
        start="2026-01-02T00:00:00+00:00",
        end="2026-01-03T00:00:00+00:00",
    )
    assert rows(written.tables["league"]) == [("AMS", 5, 4, 1, 2.5, date(2026, 1, 2))]
    assert written.values == {"days": 7}


@pytest.mark.parametrize("application", ["clean.py", "report.py"])
def test_an_example_takes_no_day_of_another_time_zone_for_its_own(
    spark: SparkSession, tmp_path: Path, application: str
) -> None:
    """A day of Berlin begins on the day before in UTC."""
    spark.sql("SELECT TIMESTAMP_NTZ'2026-01-02 09:00:00' AS date").write.parquet(f"file://{tmp_path}/flights")
    routes = spark.sql("SELECT 'AMS' AS origin, 'LHR' AS destination, 4L AS flights, 10L AS delay_sum")
    airports = spark.sql("SELECT 'AMS' AS airport, 4L AS departures, 1L AS arrivals")
    with pytest.raises(InvalidStateError, match="the slice does not consist of whole days in UTC"):
        run_application(
            spark,
            APPLICATIONS / application,
            f"file://{tmp_path}/flights",
            inputs={"routes": {"totals": routes}, "airports": {"traffic": airports}},
            start="2026-01-01T23:00:00+00:00",
            end="2026-01-02T23:00:00+00:00",
        )


def test_epochs_follow_each_other(spark: SparkSession, tmp_path: Path) -> None:
    """All kinds of state; what an epoch does not write again is in it all the same"""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"1")
    clock = FakeClock()
    with local_epoch(spark, lists={"offsets": [[1], [2]]}, folder=tmp_path / "job", clock=clock) as first:
        assert first.list_state("offsets") == [[1], [2]]
        assert first.state("totals") is None
        with pytest.raises(InvalidStateError, match="after its block"):
            _ = first.written
        first.snapshot("totals", flights(spark, ("AMS", "LHR", 3)))
        first.snapshot_files("model", tmp_path / "model")
        first.commit_on_complete("order", {"id": 7})
        first.put("long", "x" * 30_000)
    assert first.written.lists == {"offsets": [[1], [2]]}
    assert first.written.files == {"model": ["weights"]}
    assert first.written.committables == {"order": {"id": 7}}
    assert first.written.values == {"long": "x" * 30_000}
    clock.advance(timedelta(days=1))
    data = tmp_path / "one.csv"
    data.write_text("1\n")
    with first.next(files=[data], detail={"region": "eu"}) as second:
        assert second.files() == [f"file://{data}"]
        assert second.slice.detail == {"region": "eu"}
        assert rows(second.state("totals")) == [("AMS", "LHR", 3)]
        second.drop("model")
    assert rows(second.written.states["totals"]) == [("AMS", "LHR", 3)]
    assert second.written.files == {}


def test_what_grows_is_given_back_whole(spark: SparkSession, tmp_path: Path) -> None:
    """A table that is appended to, and a state that is updated: as a reader finds them, not what the epoch added"""
    with local_epoch(spark, folder=tmp_path) as first:
        first.append("log", flights(spark, ("AMS", "LHR", 1)))
        first.update("last", flights(spark, ("AMS", "LHR", 1), ("LHR", "AMS", 2)), key="origin")
    with first.next() as second:
        second.append("log", flights(spark, ("LHR", "AMS", 2)))
        second.update("last", flights(spark, ("AMS", "JFK", 3)), key="origin")
    assert rows(second.written.tables["log"]) == [("AMS", "LHR", 1), ("LHR", "AMS", 2)]
    assert rows(second.written.states["last"]) == [("AMS", "JFK", 3), ("LHR", "AMS", 2)]


def test_the_clock_is_the_epochs(spark: SparkSession, tmp_path: Path) -> None:
    """All of the checkpoint's time may be over when the stage acknowledges: it completes then (D2)."""
    clock = FakeClock()
    with local_epoch(spark, folder=tmp_path, clock=clock) as epoch:
        epoch.put("days", 1)
        clock.advance(timedelta(hours=7))
    assert epoch.written.values == {"days": 1}
    [entry] = LocalJob(tmp_path).coordinator.head().completed
    assert (entry.triggered_at_ms, entry.completed_at_ms) == (clock() - 7 * 3_600_000, clock())


def test_an_application_that_fails_says_why(spark: SparkSession, tmp_path: Path) -> None:
    failing, silent, leaving = tmp_path / "failing.py", tmp_path / "silent.py", tmp_path / "leaving.py"
    opened = "import sys\nfrom airflow_cairn.spark import Epoch\nwith Epoch.current() as epoch:\n    "
    failing.write_text(f"{opened}raise OSError('no such host')")
    silent.write_text("pass")
    leaving.write_text(f"{opened}epoch.put('arguments', sys.argv[1:])\nsys.exit(int(sys.argv[1]))")
    with pytest.raises(OSError, match="no such host"):
        run_application(spark, failing)
    with pytest.raises(InvalidStateError, match=r"without opening an epoch.*silent\.py"):
        run_application(spark, silent)
    assert run_application(spark, leaving, "0", "b").values == {"arguments": ["0", "b"]}
    with pytest.raises(SystemExit):
        run_application(spark, leaving, "3")
    with pytest.raises(InvalidConfigError, match=r"no such application file.*nowhere\.py"):
        run_application(spark, tmp_path / "nowhere.py")
    with pytest.raises(InvalidConfigError, match="not submitted by SparkEpochOperator"):
        Epoch.current(spark)


def test_a_check_that_fails_declines(spark: SparkSession, tmp_path: Path) -> None:
    flown = flights(spark, ("AMS", "LHR", 3), ("AMS", "JFK", -1), ("LHR", "AMS", -2), ("A", "B", -3), ("B", "A", -4))
    epoch = local_epoch(spark, folder=tmp_path)
    with pytest.raises(DataCheckError) as failed, epoch:  # noqa: PT012 - the block's end raises
        with suppress(DataCheckError):
            epoch.check("no negative delay", "delay >= 0", flown)
        epoch.put("days", 1)
    text = "the check 'no negative delay' failed: 4 rows break it, such as (origin=AMS, destination=JFK, delay=-1); "
    assert text in str(failed.value)
    assert str(failed.value).count("(origin=") == 3
    with pytest.raises(InvalidStateError, match="has not acknowledged"):
        _ = epoch.written
    decline = next(path for path in tmp_path.rglob("*") if path.is_file() and "/declines/" in str(path))
    assert '"incurable":true' in decline.read_text().replace(" ", "")


def test_what_a_check_takes(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    from pyspark.sql import functions as F

    flown = flights(spark, ("AMS", "LHR", 3), ("AMS", "JFK", -1)).withColumn("api_token", F.lit("s3cret"))
    unknown = flown.withColumn("delay", F.lit(None).cast("int")).limit(1)
    with local_epoch(spark) as epoch:
        assert epoch.check("a column", F.col("origin") == "AMS", flown)
        assert epoch.check("a truth value", flown.count() > 0)
        assert not epoch.check("only noted", "delay >= 0", flown, warn=True)
        assert not epoch.check("null is not true", "delay >= 0", unknown, warn=True)
        assert not epoch.check("nothing", condition=False, warn=True)
        for wrong in ({"condition": "delay >= 0"}, {"condition": True, "df": flown}, {"condition": 1, "df": None}):
            with pytest.raises(InvalidStateError, match=r"takes a condition and the DataFrame"):
                epoch.check("wrong", **wrong)
        with pytest.raises(InvalidStateError, match="a check has a name"):
            epoch.check(" ", condition=True)
        epoch.put("days", 1)
    assert epoch.written.values == {"days": 1}
    [noted, null, nothing] = [each.getMessage() for each in caplog.records if "goes on" in each.getMessage()]
    assert (
        "'only noted' failed, and the stage goes on: 1 row breaks it, such as (origin=AMS, destination=JFK, de" in noted
    )
    assert "api_token=***" in noted
    assert "s3cret" not in noted
    assert "delay=None" in null
    assert nothing.endswith("its condition is false")


def test_an_application_is_run_by_hand(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "flights[1].csv").write_text("origin,destination,delay\nAMS,LHR,3\n")
    (tmp_path / "flights1.csv").write_text("origin,destination,delay\nLHR,LHR,9\n")
    (tmp_path / "before.json").write_text('{"airport": "AMS", "departures": 5, "arrivals": 1}\n')
    words = [str(APPLICATIONS / "airports.py"), "--input", f"clean={tmp_path}/flights[1].csv"]
    words += ["--state", f"traffic={tmp_path}/before.json", "--key", "traffic=airport", "--value", "days=2"]
    assert run_by_hand(*words, spark=spark) == 0
    shown = capsys.readouterr().out
    assert "state traffic: 2 rows" in shown
    assert "|AMS    |1       |6         |" in shown, shown
    assert "value days: 2" in shown
    assert run_by_hand(*words, "--input", "clean=nothing.parquet", spark=spark) == 2
    assert "there is no such file or folder [path=`nothing.parquet`]" in capsys.readouterr().err


@pytest.mark.soak  # the test above runs an application
def test_an_example_runs_itself(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flights.json").write_text('{"origin": "AMS", "destination": "LHR", "delay": 3}\n' * 2)
    file = APPLICATIONS / "routes.py"
    monkeypatch.setattr(by_hand, "_session", lambda: spark)
    monkeypatch.setattr("sys.argv", [str(file), "--local", "--input", f"clean={tmp_path}/flights.json"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(file), run_name="__main__")
    shown = capsys.readouterr().out
    assert left.value.code == 0, shown
    assert "state totals: 1 rows" in shown
    assert "|AMS   |LHR        |2      |6        |" in shown, shown


def test_the_command_of_the_page_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's application runs, with files of the names that it gives."""
    blocks = parse((ROOT / "docs" / "how-to" / "test-a-pipeline.md").read_text()).blocks
    [application] = [each.text for each in blocks if each.text.startswith("# totals.py")]
    prompt = "$ python -m airflow_cairn.testing "
    [typed] = [each.text.removeprefix(prompt) for each in blocks if each.text.startswith(prompt)]
    monkeypatch.chdir(tmp_path)
    Path("totals.py").write_text(application)
    flights(spark, ("AMS", "LHR", 3), ("LHR", "AMS", 0)).write.parquet(f"file://{tmp_path}/flights.parquet")
    spark.sql("SELECT 'AMS' AS origin, 5L AS count").write.parquet(f"file://{tmp_path}/before.parquet")
    assert run_by_hand(*shlex.split(typed), spark=spark) == 0
    assert "|AMS   |6    |" in capsys.readouterr().out


@pytest.mark.soak  # a suite within the suite, with a Spark of its own; its application runs in tests/docs/
@pytest.mark.timeout(1800)
def test_the_page_about_tests_runs_as_it_is_written(tmp_path: Path) -> None:
    """Each block is a file, whose name it begins with"""
    page = ROOT / "docs" / "how-to" / "test-a-pipeline.md"
    blocks = [block.text for block in parse(page.read_text()).blocks if block.language == "python"]
    for text in blocks:
        (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    assert {path.name for path in tmp_path.iterdir()} >= {"totals.py", "conftest.py", "test_totals.py"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    words = " ".join(f"--conf {shlex.quote(f'{name}={value}')}" for name, value in small_conf().items())
    env = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{words} pyspark-shell"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
