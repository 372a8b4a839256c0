"""The ways of `bench.tables` to append an epoch's rows to a table on S3: through Cairn, and without it."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from airflow_cairn.checkpoint import CheckpointConfig, Coordinator, Slice, StageSpec, TriggerRequest
from airflow_cairn.checkpoint.answers import Submit, Triggered
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.handover.conf import s3a_conf
from airflow_cairn.spark.output import committer
from airflow_cairn.storage import S3Options, open_store
from airflow_cairn.storage.clock import system_runtime
from airflow_cairn.tables.declared import DeltaTable, IcebergTable, PostgresTable
from airflow_cairn.tables.sink import TableSink

from . import table_history
from .spark_cost import Spent, measured

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGE = StageSpec("rows", (), 2, 128)
BUCKET = "lake"


@dataclass(frozen=True)
class Services:
    """Addresses of the S3 server and the PostgreSQL."""

    s3: Mapping[str, str]
    """The way to S3, by the names of an environment."""
    log: str
    """The file in which the S3 server writes a line for each request."""
    port: int
    """PostgreSQL's, on loopback."""
    jdbc_url: str

    @property
    def dsn(self) -> dict[str, Any]:
        """Psycopg's parameters."""
        return {"host": "127.0.0.1", "port": self.port, "user": "postgres", "dbname": "postgres"}

    @property
    def catalog(self) -> dict[str, str]:
        """Properties of Iceberg's catalog, a database."""
        return {
            "type": "sql",
            "uri": f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres",
            "warehouse": f"s3://{BUCKET}/warehouse",
            "s3.access-key-id": self.s3["AWS_ACCESS_KEY_ID"],
            "s3.secret-access-key": self.s3["AWS_SECRET_ACCESS_KEY"],
            "s3.region": self.s3["AWS_REGION"],
            "s3.endpoint": self.s3["AWS_ENDPOINT_URL"],
        }

    @property
    def options(self) -> S3Options:
        """The way of Cairn's store to S3."""
        s3 = self.s3
        return S3Options(s3["AWS_ENDPOINT_URL"], s3["AWS_REGION"], s3["AWS_ACCESS_KEY_ID"], s3["AWS_SECRET_ACCESS_KEY"])

    def requests(self) -> int:
        return requests_in(Path(self.log).read_text())


def requests_in(log: str) -> int:
    """Count the requests in a log of versitygw, which has lines of other kinds too."""
    return sum(" | vgw | " in line for line in log.splitlines())


@dataclass
class Append(Spent):
    """The cost of one append."""

    requests: int = 0
    commit_s: float = 0.0
    """Of the seconds, those from the acknowledgement to the commit of the table."""
    epoch_s: float = 0.0
    """Seconds with the trigger and with the cleaning."""
    epoch_requests: int = 0


class Plain:
    """An append without Cairn."""

    def __init__(self, spark: SparkSession, at: Services, write: Callable[[DataFrame], object]) -> None:
        self._spark, self._at, self._write = spark, at, write

    def append(self, df: DataFrame) -> Append:
        before = self._at.requests()
        spent = measured(self._spark, lambda: self._write(df))
        return Append(spent.seconds, spent.cpu, self._at.requests() - before)


class Cairn:
    """A job whose one stage appends to one table."""

    def __init__(self, spark: SparkSession, at: Services, name: str, sink: TableSink) -> None:
        self._spark, self._at, self.sink = spark, at, sink
        self._store = open_store(f"s3://{BUCKET}/cairn", options=at.options)
        self._coordinator = Coordinator(self._store, name)
        self._epochs = 0

    def append(self, df: DataFrame) -> Append:
        """Run an epoch, and measure what its stage does and what commits the table."""
        began, before = time.perf_counter(), self._at.requests()
        block = self.stage()
        asked = self._at.requests()
        spent = measured(self._spark, lambda: block(df))
        commit = measured(self._spark, self.commit)
        requests = self._at.requests() - asked
        self._coordinator.clean()
        seconds, cpu = spent.seconds + commit.seconds, spent.cpu + commit.cpu
        whole = time.perf_counter() - began
        return Append(seconds, cpu, requests, commit.seconds, whole, self._at.requests() - before)

    def stage(self) -> Callable[[DataFrame], None]:
        """Trigger the next epoch and claim its stage; give the application."""
        self._epochs += 1
        run, names = epoch_name(f"run {self._epochs}"), (self.sink.name,)
        request = TriggerRequest(run, Slice(), (STAGE,), CheckpointConfig(retained=1), listeners=names, hooks=names)
        triggered = self._coordinator.trigger(request)
        assert isinstance(triggered, Triggered), triggered
        self._coordinator.ask_hooks(triggered.pending, (self.sink,))
        claimed = self._coordinator.begin(run, STAGE.uid, "try-1")
        assert isinstance(claimed, Submit), claimed

        def block(df: DataFrame) -> None:
            with Epoch(self._spark, self._store, claimed.handover, system_runtime()) as epoch:
                epoch.table(self.sink.name.removeprefix("table.")).append(df)

        return block

    def complete(self) -> None:
        assert self._coordinator.complete_if_last(epoch_name(f"run {self._epochs}"), STAGE.uid) is not None

    def deliver(self) -> None:
        """Tell the table's sink, which commits."""
        assert self._coordinator.deliver((self.sink,)) == 1

    def commit(self) -> None:
        self.complete()
        self.deliver()


def conf(at: Services) -> dict[str, str]:
    """Give the session's conf for S3 with the magic committer, and for Iceberg's catalog with its own client of S3."""
    catalog, s3 = "spark.sql.catalog.lake", at.s3
    return {
        **s3a_conf(at.options),
        "spark.hadoop.fs.s3a.committer.name": "magic",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": at.jdbc_url,
        f"{catalog}.warehouse": f"s3://{BUCKET}/warehouse",
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.client.region": s3["AWS_REGION"],
        f"{catalog}.s3.endpoint": s3["AWS_ENDPOINT_URL"],
        f"{catalog}.s3.path-style-access": "true",
        f"{catalog}.s3.access-key-id": s3["AWS_ACCESS_KEY_ID"],
        f"{catalog}.s3.secret-access-key": s3["AWS_SECRET_ACCESS_KEY"],
    }


def arms(spark: SparkSession, at: Services, commits: int) -> dict[str, Plain | Cairn]:
    """Make the tables on S3, each with a history of ten commits or of so many, and the ways to append to one."""
    from pyarrow.fs import S3FileSystem, SubTreeFileSystem
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", **{name: each for name, each in at.catalog.items() if name != "type"})
    catalog.create_namespace("sales")
    s3 = S3FileSystem(
        access_key=at.s3["AWS_ACCESS_KEY_ID"],
        secret_key=at.s3["AWS_SECRET_ACCESS_KEY"],
        region=at.s3["AWS_REGION"],
        endpoint_override=at.s3["AWS_ENDPOINT_URL"],
        allow_delayed_open=True,  # else three requests for each small file
    )
    delta = f"s3://{BUCKET}/delta"
    for kind, count in (("cairn", 10), ("spark", 10), ("long", commits)):
        location = f"s3a://{BUCKET}/warehouse/sales/{kind}"  # a scheme that Spark knows too
        table_history.write_iceberg(catalog.create_table(f"sales.{kind}", table_history.SCHEMA, location), count)
        folder = SubTreeFileSystem(f"{BUCKET}/delta/{kind}", s3)
        table_history.write_delta(f"{delta}/{kind}", at.s3, folder, count)

    def iceberg(kind: str) -> Cairn:
        table = IcebergTable(f"lake.sales.{kind}", conn_id="catalog")
        return Cairn(spark, at, f"iceberg-{kind}", TableSink("rows", table, lambda _: at.catalog))

    def of_delta(kind: str) -> Cairn:
        table = DeltaTable(f"{delta}/{kind}", conn_id="lake")
        return Cairn(spark, at, f"delta-{kind}", TableSink("rows", table, lambda _: at.s3))

    def plain(df: DataFrame) -> None:
        url = f"s3a://{BUCKET}/plain"
        with committer.choose(spark, url).write() as options:
            df.write.mode("append").options(**options).parquet(url)

    with_delta = f"{delta.replace('s3:', 's3a:')}/spark"
    return {
        "iceberg": iceberg("cairn"),
        "iceberg_spark": Plain(spark, at, lambda df: df.writeTo("lake.sales.spark").append()),
        "delta": of_delta("cairn"),
        "delta_spark": Plain(spark, at, lambda df: df.write.format("delta").mode("append").save(with_delta)),
        "plain": Plain(spark, at, plain),
        "iceberg_long": iceberg("long"),
        "delta_long": of_delta("long"),
    }


def rows_of(spark: SparkSession, commits: int) -> dict[str, int]:
    """Count the rows of each table that are not of its history."""
    found = {"plain": spark.read.parquet(f"s3a://{BUCKET}/plain").count()}
    for kind, before in (("cairn", 10), ("spark", 10), ("long", commits)):
        found[f"iceberg {kind}"] = spark.table(f"lake.sales.{kind}").count() - before
        found[f"delta {kind}"] = spark.read.format("delta").load(f"s3a://{BUCKET}/delta/{kind}").count() - before
    return found


class Postgres:
    """Tables of PostgreSQL, and the ways to copy the same Parquet files into one."""

    def __init__(self, spark: SparkSession, at: Services) -> None:
        self._spark, self._at = spark, at
        with psycopg.connect(**at.dsn) as connection:
            for name in ("cairn", "by_hand", "text", "inserted"):
                query = sql.SQL("CREATE TABLE {} (id bigint, value double precision, text text)")
                connection.execute(query.format(sql.Identifier(name)))
        table = PostgresTable("public.cairn", "dwh", f"s3://{BUCKET}/staging")
        settings = {name: str(value) for name, value in at.dsn.items()}
        settings |= {f"staging.{name}": value for name, value in at.s3.items()}
        self._cairn = Cairn(spark, at, "postgres", TableSink("rows", table, lambda _: settings))

    def copies(self, df: DataFrame) -> dict[str, Callable[[], Spent]]:
        """Stage rows; give the ways to copy them."""
        from pyarrow.fs import FileSelector

        self._cairn.stage()(df)
        self._cairn.complete()
        s3 = self._cairn.sink.open().files.filesystem
        below = s3.get_file_info(FileSelector(f"{BUCKET}/staging/_cairn", recursive=True))
        staged = [each.path for each in below if "/data/" in each.path and each.path.endswith(".parquet")]
        copied = [f"{BUCKET}/by-hand/{number}.parquet" for number, _ in enumerate(staged)]
        for path, name in zip(staged, copied, strict=True):
            s3.copy_file(path, name)
        texts = list(self._texts(s3, copied))
        rows = [(row["id"], row["value"], row["text"]) for row in df.limit(df.count() // 10).toLocalIterator()]

        def inserts() -> Spent:
            tenth = measured(self._spark, lambda: self._insert(rows))
            return Spent(10 * tenth.seconds, 10 * tenth.cpu)

        return {
            "postgres": lambda: measured(self._spark, self._cairn.deliver),
            "postgres_copy": lambda: measured(self._spark, lambda: self._copy("by_hand", self._texts(s3, copied))),
            "postgres_text": lambda: measured(self._spark, lambda: self._copy("text", texts)),
            "postgres_inserts": inserts,
        }

    @staticmethod
    def _texts(filesystem: Any, paths: Sequence[str]) -> Any:
        import pyarrow.parquet as pq
        from pyarrow import csv

        for path in paths:
            for batch in pq.ParquetFile(path, filesystem=filesystem).iter_batches():  # the server copies meanwhile
                text = io.BytesIO()
                csv.write_csv(batch, text, csv.WriteOptions(include_header=False))
                yield text.getvalue()

    def _copy(self, table: str, texts: Any) -> None:
        with psycopg.connect(**self._at.dsn) as connection, connection.cursor() as cursor:
            query = sql.SQL("COPY {} FROM STDIN (FORMAT csv)").format(sql.Identifier(table))
            with cursor.copy(query) as into:
                for text in texts:
                    into.write(text)

    def _insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        with psycopg.connect(**self._at.dsn) as connection, connection.cursor() as cursor:
            cursor.executemany("INSERT INTO inserted VALUES (%s, %s, %s)", rows)

    def rows(self) -> dict[str, int]:
        found = {}
        with psycopg.connect(**self._at.dsn) as connection:
            for name in ("cairn", "by_hand", "text"):
                [(count,)] = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name)))
                found[name] = count
        return found
