"""A real spark-submit of what is no Python file with an epoch's block: a function, a plain script, a jar with SQL.

Of a function, its source and Cairn's zip are all that the driver has; a program without a block has nothing of Cairn.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow.dataset
import pyspark
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG

from airflow_cairn.checkpoint.documents.attempt import Handover, Slice, StageSpec
from airflow_cairn.checkpoint.store import acks
from airflow_cairn.operators import NewState, Output, Publish, Read, SliceStart, SparkEpochOperator, State
from airflow_cairn.operators.stage.function import spark_epoch_task
from airflow_cairn.operators.stage.outcome import StageFailedError
from scripts.harness.spark.start import small_conf
from scripts.harness.wait import wait_until
from scripts.setup.base import ROOT
from tests.real.spark.pipeline import Pipeline, rows
from tests.support.airflow_fixtures import Said
from tests.support.airflow_stage import Job, Ti, context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

APPLICATIONS = Path(__file__).parent / "applications"
RUN = "manual__2001-01-01T00:00:00+00:00"


def routes(epoch: Any, airports: list[str], *, most: int) -> None:
    """Keep the airports, and say where from."""
    from airflow_cairn import spark

    rows = epoch.spark.createDataFrame([(each,) for each in airports], "airport string").limit(most)
    epoch.snapshot("airports", rows, key="airport")
    print("FOUND", airports, most, spark.__file__)


@pytest.fixture
def conf(connections: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    connections("spark_here", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", **small_conf()}


def test_a_function_is_a_stage(job: Job, conf: dict[str, str], said: Said) -> None:
    with DAG("flights"):
        decorated: Any = spark_epoch_task(routes, storage=job.storage, conn_id="spark_here", conf=conf)
        made = decorated(["BER", "FRA"], most=1)
    job.trigger(RUN)
    result = made.operator.execute(context(Ti(run_id=RUN)))
    assert result == {"checkpoint": 1, "epoch": result["epoch"], "attempt": 1, "stage": "routes"}
    assert re.search(r"FOUND \['BER', 'FRA'\] 1 \S+\.zip/", said.text), "Cairn comes from the zip"
    assert [each.id for each in job.coordinator.head().completed] == [1]


@pytest.mark.soak  # four JVMs; tests/unit/operators/stage/test_programs.py, and their places in test_plain_tasks.py
def test_programs_without_a_block(spark: SparkSession, job: Job, conf: dict[str, str], said: Said) -> None:
    """decision 0058: a script and a jar that runs SQL, between two stages with a block; each reads the one before."""
    jars = Path(pyspark.__file__).parent / "jars"
    variables = {
        "clean": Read("clean"),
        "before": State("totals", schema="airport STRING, n BIGINT"),
        "totals": NewState("totals"),
        "league": Publish("league", format="csv", options={"header": "true"}),
    }
    programs: dict[str, dict[str, Any]] = {
        "clean": {
            "application": str(APPLICATIONS / "plain_clean.py"),
            "application_args": [SliceStart("%Y-%m-%d"), Read("flights"), Output("clean")],
        },
        "totals": {
            "application": str(next(jars.glob("spark-hive-thriftserver_*.jar"))),
            "java_class": "org.apache.spark.sql.hive.thriftserver.SparkSQLCLIDriver",
            "application_args": [
                *("-f", str(APPLICATIONS / "plain_totals.sql")),
                *(each for name, place in variables.items() for each in ("--hivevar", f"{name}=" + place)),
            ],
        },
    }
    upstream = {"flights": (), "clean": ("flights",), "totals": ("clean",), "report": ("clean", "totals")}
    reads = Slice(start="2026-01-01T00:00:00+00:00", end="2026-01-02T00:00:00+00:00")
    checkpoint = job.trigger(RUN, *(StageSpec(*each) for each in upstream.items()), reads=reads)
    blocks = Pipeline(job.storage, spark, job=job.name)
    with blocks.epoch(RUN, "flights") as epoch:
        flights = [("BER", 5), ("BER", 7), ("MUC", 1), ("MUC", None)]
        epoch.write(spark.createDataFrame(flights, "airport string, delay int"))
    for uid, options in programs.items():
        given = {"storage": job.storage, "job": job.name, "conn_id": "spark_here", "conf": conf, **options}
        operator = SparkEpochOperator(task_id=uid, **given)
        assert operator.execute(context(Ti(run_id=RUN, task_id=uid))) is not None
    with blocks.epoch(RUN, "report") as epoch:
        days = epoch.read("clean").select("day", "airport").distinct()
        assert rows(days) == [("2026-01-01", "BER"), ("2026-01-01", "MUC")]
        assert rows(epoch.read("totals", "totals", kind="state")) == [("BER", 2), ("MUC", 1)]
        assert rows(epoch.read("totals", "league", kind="table")) == [("BER", "2"), ("MUC", "1")]
    blocks.forget()
    assert blocks.complete(RUN) == checkpoint
    assert all(each.whole for each in job.coordinator.verify(deep=True))


@pytest.mark.soak  # seven JVMs; programs that fail, die and keep state: tests/unit/operators/stage/test_programs.py
def test_three_ordinary_scripts_of_which_one_is_killed_while_it_writes(
    tmp_path: Path, connections: Callable[[str, str], None], conf: dict[str, str]
) -> None:
    """The example of docs/how-to/examples.md, by its own DAG file: two days, and the totals are exact."""
    connections("spark_default", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    job, lake = Job(tmp_path / "cairn", "three_scripts"), tmp_path / "lake"
    (tmp_path / "dags").mkdir()
    shutil.copytree(ROOT / "dags" / "applications", tmp_path / "applications")
    text = (ROOT / "dags" / "examples" / "three_scripts.py").read_text()
    file = tmp_path / "dags" / "three_scripts.py"
    file.write_text(text.replace("s3://lake/cairn", job.storage).replace("s3a://lake", f"file://{lake}"))
    bag = DagBag(dag_folder=file, safe_mode=False)
    assert bag.import_errors == {}
    expected = sell(lake)

    def run(day: int, uid: str, number: int = 1) -> Handover:
        task: Any = copy(bag.dags["three_scripts"].task_dict[f"epoch.{uid}"])  # a task runs once in a process
        task.conf = conf
        ti = Ti("three_scripts", f"scheduled__2026-01-0{day}", f"epoch.{uid}", try_number=number, max_tries=3)
        assert task.execute(context(ti))["attempt"] == number
        handover: Handover = task._run.handover
        return handover

    stages = [StageSpec("ingest"), StageSpec("join", ("ingest",)), StageSpec("total", ("join",))]
    for day in (1, 2):
        window = Slice(start=f"2026-01-0{day}T00:00:00+00:00", end=f"2026-01-0{day + 1}T00:00:00+00:00")
        job.trigger(f"scheduled__2026-01-0{day}", *stages, reads=window)
        for uid in ("ingest", "join"):
            run(day, uid)
        if day == 2:
            with ThreadPoolExecutor(1) as pool:
                killed = pool.submit(kill_writer, job.folder)
                with pytest.raises(StageFailedError, match="signal 9"):
                    run(day, "total")
                killed.result()
        done = run(day, "total", day)
    written = acks.read_ack(job.coordinator.files, "total", done.execution).subtasks[0].handles
    paths = [str(job.folder / "three_scripts" / each.path) for each in written if "/country=" in each.path]
    found = pyarrow.dataset.dataset(paths, partitioning="hive").to_table().to_pylist()
    assert {(row["country"], row["store"]): (row["amount"], row["sales"]) for row in found} == expected
    assert [each.id for each in job.coordinator.head().completed][-1] == 3
    assert all(each.whole for each in job.coordinator.verify(deep=True))


def sell(lake: Path) -> dict[tuple[str, str], tuple[Decimal, int]]:
    """Write the input of two days, with sales that come twice or have no amount; gives what the table has to hold."""
    countries = {"b1": "DE", "m1": "DE", "p1": "FR"}
    (lake / "sales").mkdir(parents=True)
    (lake / "stores.csv").write_text("\n".join(["store,country", *map(",".join, countries.items())]))
    totals: dict[tuple[str, str], tuple[Decimal, int]] = {}
    for day in (1, 2):
        sales = [(number, list(countries)[number % 3], Decimal(number * day) / 4) for number in range(60)]
        lines = [f"{number},{store},{amount:.2f}" for number, store, amount in sales]
        (lake / "sales" / f"2026-01-0{day}.csv").write_text("\n".join(["id,store,amount", *lines, lines[7], "99,b1,"]))
        for _, store, amount in sales:
            before, count = totals.get((countries[store], store), (Decimal(0), 0))
            totals[countries[store], store] = before + amount, count + 1
    return totals


def kill_writer(folder: Path) -> None:
    """Kill the JVM of the driver, once it has begun to write."""
    driver = wait_until(driver_of_totals, 120, "the driver")
    wait_until(lambda: next(folder.glob("**/_temporary"), None), 120, "a driver that writes", interval=0.01)
    driver.kill()


def driver_of_totals() -> psutil.Process | None:
    """Find the driver's JVM: not that of this process, in which later modules have their sessions."""
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            words = each.cmdline() if each.name() == "java" else []
            if any("total_sales.py" in word for word in words) and "org.apache.spark.launcher.Main" not in words:
                return each
    return None
