"""A month of flights goes to an own table, Iceberg, Delta and PostgreSQL, each row once (semantics C4, R5).

Real servers, one Spark that stays up, a process that dies in each third epoch, others that write, and a rewind.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pandas  # type: ignore[import-untyped]
import polars
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy
from pyiceberg.catalog.sql import SqlCatalog

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.spark.handover.conf import s3a_conf
from airflow_cairn.spark.remote.submission import VARIABLE, Submission, session_id
from airflow_cairn.storage import S3Options, open_store
from airflow_cairn.tables.declared import DeltaTable, IcebergTable, PostgresTable
from airflow_cairn.tables.delta import OpenDelta
from airflow_cairn.tables.iceberg import OpenIceberg
from airflow_cairn.tables.postgres import OpenPostgres
from airflow_cairn.tables.sink import TableSink
from bench.measuring.table_formats import EXCLUDES, PACKAGES, S3A_PACKAGES
from scripts.demo.flights_input import FIRST_DAY, write_flights
from scripts.demo.lake import ROWS
from scripts.harness.postgres_server import USER, PostgresServer
from scripts.harness.s3_server import S3Server
from scripts.harness.spark.connect_server import ConnectServer
from scripts.maven_jars import JarSet
from scripts.postgres_jar import postgres_jar
from scripts.s3a_jars import EXCLUDES as S3A_EXCLUDES
from scripts.s3a_jars import s3a_jars
from tests.matrix.cells import ICEBERGS
from tests.matrix.environments import programs_of
from tests.matrix.submitter import Submitter, said
from tests.real.spark.pipeline import Pipeline
from tests.support.documented import marked
from tests.support.lake import OF_ICEBERG, way_to

pytestmark = [pytest.mark.s3, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(5400)]

DAYS, BACK = 30, 5
APPLICATIONS = Path(__file__).parent / "applications"
TABLES = ("iceberg", "delta", "postgres")
KINDS: dict[str, Any] = {"table.iceberg": OpenIceberg, "table.delta": OpenDelta, "table.postgres": OpenPostgres}
DEATHS = [("driver", ""), *((name, when) for name in KINDS for when in ("before", "after"))]
"""Deaths: of the driver once all is staged, or of the task that commits, before a table's commit or after it."""


@dataclass
class Lake:
    """The tables, and the ways to them; another process makes its own."""

    s3: dict[str, str]
    options: S3Options
    dsn: str
    port: int

    @property
    def catalog(self) -> SqlCatalog:
        return SqlCatalog("lake", **self._catalog)

    @property
    def _catalog(self) -> dict[str, str]:
        uri = f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/postgres"
        return {"uri": uri, "warehouse": "s3://lake/warehouse", **{key: self.s3[of] for key, of in OF_ICEBERG.items()}}

    @property
    def delta(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable("s3://lake/delta", storage_options=self.s3)

    @property
    def database(self) -> sqlalchemy.Engine:
        return sqlalchemy.create_engine(self._catalog["uri"])

    def create(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            connection.execute("CREATE TABLE flights (date timestamp, delay bigint, origin text, destination text)")
        self.catalog.create_namespace("flights")
        self.catalog.create_table("flights.days", ROWS)
        schema = deltalake.Schema.from_arrow(ROWS)
        deltalake.DeltaTable.create("s3://lake/delta", schema, storage_options=self.s3)

    def sinks(self) -> tuple[TableSink, ...]:
        settings = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(self.dsn).items()}
        settings |= {f"staging.{name}": value for name, value in self.s3.items()}
        catalog = {"type": "sql", **self._catalog}
        return (
            TableSink("iceberg", IcebergTable("lake.flights.days", conn_id="catalog"), lambda _: catalog),
            TableSink("delta", DeltaTable("s3://lake/delta", conn_id="s3"), lambda _: self.s3),
            TableSink("postgres", PostgresTable("public.flights", "dwh", "s3://lake/staging"), lambda _: settings),
        )

    def write(self, day: int) -> None:
        """Add a row to each table, as somebody else."""
        moment = FIRST_DAY + timedelta(days=day, hours=12)
        row = {"date": moment, "delay": 0, "origin": "XXX", "destination": "XXX"}
        rows = pa.Table.from_pylist([row], ROWS)
        self.catalog.load_table("flights.days").append(rows)
        deltalake.write_deltalake(self.delta, rows, mode="append")
        with psycopg.connect(self.dsn) as connection:
            connection.execute("INSERT INTO flights VALUES (%(date)s, %(delay)s, %(origin)s, %(destination)s)", row)

    def counts(self) -> list[int]:
        """Give the rows of each table that has others' rows too."""
        with psycopg.connect(self.dsn) as connection:
            [(postgres,)] = connection.execute("SELECT count(*) FROM flights")
        return [self.catalog.load_table("flights.days").scan().count(), self.delta.count(), postgres]

    def deliver(self, name: str = "", when: str = "") -> None:
        """Commit what is owed; die before or after the commit of a table."""
        if name:
            commit = KINDS[name].commit

            def dying(*given: Any) -> None:
                if when == "after":
                    assert commit(*given)
                os.kill(os.getpid(), signal.SIGKILL)

            KINDS[name].commit = dying
        Coordinator(open_store("s3://lake/cairn", s3=self.options), "flights").deliver(self.sinks())


@pytest.fixture
def lake() -> Iterator[tuple[Lake, S3Server, PostgresServer]]:
    with S3Server(keep_alive=False) as s3, PostgresServer(for_java=True) as postgres:
        s3.create_bucket("lake")
        port = psycopg.conninfo.conninfo_to_dict(postgres.dsn)["port"]
        made = Lake(way_to(s3), s3.options, postgres.dsn, int(str(port)))
        made.create()
        yield made, s3, postgres


class Month:
    """Runs epochs as Airflow's tasks do; the stage is a client of the Spark that stays up."""

    def __init__(self, lake: Lake, spark: ConnectServer, env: dict[str, str], flights: Path) -> None:
        self.lake, self.spark, self.flights = lake, spark, flights
        self.env = {**os.environ, **env}
        self.pipeline = Pipeline("s3://lake/cairn", None, (StageSpec("days"),), retained=BACK + 2, s3=lake.options)
        self.deaths = cycle(DEATHS)
        self.died: list[tuple[str, str]] = []

    def run(self, day: int, *, dies: bool, others: bool) -> None:
        first, after = ((FIRST_DAY + timedelta(days=each)).isoformat() + "+00:00" for each in (day, day + 1))
        run_id, sinks = f"day {day}", self.lake.sinks()
        names = tuple(each.name for each in sinks)
        self.pipeline.trigger(run_id, Slice(first, after), hooks=sinks, listeners=names)
        who, when = next(self.deaths) if dies else ("", "")
        if who == "driver":
            assert self.stage(run_id, "kill").returncode == -signal.SIGKILL
        done = self.stage(run_id)
        assert done.returncode == 0, done.stderr[-4000:]
        if others:
            self.lake.write(day)
        self.pipeline.complete(run_id)
        if who in KINDS:
            process = multiprocessing.get_context("spawn").Process(target=self.lake.deliver, args=(who, when))
            process.start()
            process.join()
            assert process.exitcode == -signal.SIGKILL
        self.died += [(who, when)] if who else []
        self.lake.deliver()

    def stage(self, run_id: str, what: str = "") -> subprocess.CompletedProcess[str]:
        submit = self.pipeline.begin(run_id, "days")
        submission = Submission(
            str(APPLICATIONS / "month_day.py"),
            session_id(submit.handover.token),
            self.pipeline.conf(submit),
            {"host": "localhost", "port": self.spark.port},
            (str(self.flights), what),
        )
        command = [sys.executable, "-m", "airflow_cairn.spark.remote.client"]
        env = {**self.env, VARIABLE: submission.to_json()}
        return subprocess.run(
            command, env=env, cwd=self.flights.parent, capture_output=True, text=True, check=False, timeout=600
        )


def groups(rows: pa.Table) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Count and sum, but for what the foreign writer has added."""
    rows = rows.select(ROWS.names).cast(ROWS).drop_null()
    rows = rows.filter(pc.not_equal(rows["origin"], "XXX"))
    rows = rows.set_column(0, "date", rows["date"].cast(pa.date32()))
    by = ["date", "origin", "destination"]
    found = rows.group_by(by).aggregate([("delay", "count"), ("delay", "sum")]).to_pylist()
    return {tuple(each[name] for name in by): (each["delay_count"], each["delay_sum"]) for each in found}


def read(lake: Lake) -> Iterator[tuple[str, pa.Table]]:
    """Read each table by what people have."""
    iceberg, delta = lake.catalog.load_table("flights.days"), lake.delta
    yield "iceberg, pyiceberg", iceberg.scan().to_arrow()
    yield "iceberg, pandas", pa.Table.from_pandas(iceberg.scan().to_pandas())
    yield "iceberg, polars", polars.scan_iceberg(iceberg).collect().to_arrow()
    yield "iceberg, DuckDB", iceberg.scan().to_duckdb("days").sql("FROM days").to_arrow_table()
    yield "delta, deltalake", delta.to_pyarrow_table()
    yield "delta, pandas", pa.Table.from_pandas(delta.to_pandas())
    yield "delta, polars", polars.scan_delta("s3://lake/delta", storage_options=lake.s3).collect().to_arrow()
    yield "delta, DuckDB", duckdb.from_arrow(delta.to_pyarrow_dataset()).to_arrow_table()
    query = "SELECT * FROM flights"
    yield "postgres, pandas", pa.Table.from_pandas(pandas.read_sql(query, lake.database))
    yield "postgres, polars", polars.read_database(query, lake.database).to_arrow()
    scope: dict[str, Any] = {"storage": "s3://lake/cairn", "job": "flights", "name": "days"}
    exec(marked("reference/tables.md", "pyarrow, a table that grows"), scope)
    yield "own, pyarrow", scope["daily"]
    yield "own, pandas", pa.Table.from_pandas(scope["frame"])
    yield "own, DuckDB", duckdb.from_arrow(scope["daily"]).to_arrow_table()
    yield "own, polars", polars.from_arrow(scope["daily"]).to_arrow()


def test_four_tables_advance_for_a_month(
    lake: tuple[Lake, S3Server, PostgresServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, s3, postgres = lake
    flights = tmp_path / "flights.parquet"
    write_flights(flights, DAYS)
    jars = ",".join(map(str, s3a_jars()))
    with ConnectServer({"spark.jars": jars, **s3a_conf(s3.options)}, env=s3.env) as spark:
        month = Month(at, spark, s3.env, flights)
        others = range(3, DAYS - BACK, 4)
        for day in range(DAYS):
            month.run(day, dies=day % 3 == 2, others=day in others)
        month.pipeline.coordinator.rewind(month.pipeline.coordinator.head().completed[-1 - BACK].id)
        for day in range(DAYS - BACK, DAYS):
            month.run(day, dies=day % 3 == 2, others=False)
    assert {*month.died} == {*DEATHS}
    plain = groups(pq.read_table(flights))
    count = sum(each for each, _ in plain.values())
    assert at.counts() == [count + len(others)] * 3
    for name, value in at.s3.items():
        monkeypatch.setenv(name, value)
    for name, rows in read(at):
        assert groups(rows) == plain, name
    found = by_spark(flights, s3, postgres, at, tmp_path)
    assert found == {"own": [count, 0], **{name: [count + len(others), 0] for name in TABLES}}


def by_spark(flights: Path, s3: S3Server, postgres: PostgresServer, at: Lake, folder: Path) -> Any:
    """Read them by a Spark for which both formats have jars."""
    [cell] = ICEBERGS
    programs = programs_of(cell.name, cell.python, (f"pyspark=={cell.pyspark}",))
    jars = [*JarSet("peers", PACKAGES, EXCLUDES).jars(), *JarSet("s3a-peers", S3A_PACKAGES, S3A_EXCLUDES).jars()]
    catalog = "spark.sql.catalog.lake"
    conf = {
        "spark.jars": ",".join(map(str, [*jars, postgres_jar()])),
        **s3a_conf(s3.options),
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.session.timeZone": "UTC",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": postgres.jdbc_url,
        f"{catalog}.warehouse": "s3://lake/warehouse",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    }
    own = marked("reference/tables.md", "plain Spark, a table that grows")
    arguments = (str(flights), "s3a://lake", postgres.jdbc_url, own)
    submitter = Submitter(programs, folder, bare=False)
    done = submitter.submit(APPLICATIONS / "month_read.py", conf, *arguments, env=s3.env)
    assert done.returncode == 0, said(done)
    [line] = [each for each in done.stdout.splitlines() if each.startswith("FOUND ")]
    return json.loads(line.removeprefix("FOUND "))
