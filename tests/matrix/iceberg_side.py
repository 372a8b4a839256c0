"""A Spark with Iceberg's runtime: MERGE, DELETE and a dbt model on a branch, which the checkpoint makes `main`.

The catalog is a database of a real PostgreSQL, used by Iceberg's JDBC catalog in Spark and by pyiceberg's in the sink.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg.conninfo
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType

from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.checkpoint.errors import CallbackError
from airflow_cairn.tables.branches import BranchSink
from airflow_cairn.tables.declared import IcebergTable
from bench.measuring.table_formats import EXCLUDES, PACKAGES
from scripts.harness.postgres_server import USER, PostgresServer
from scripts.maven_jars import JarSet
from scripts.postgres_jar import postgres_jar
from tests.matrix.cells import DBT, ICEBERG, IcebergCell
from tests.matrix.environments import programs_of
from tests.matrix.submitter import Submitter, said
from tests.real.spark.pipeline import Pipeline

APPLICATIONS = Path(__file__).parent / "applications"
_CATALOG = "spark.sql.catalog.lake"


class Lake:
    """The table, the job that writes it, and the Spark that does."""

    def __init__(self, submitter: Submitter, server: PostgresServer, folder: Path) -> None:
        port = psycopg.conninfo.conninfo_to_dict(server.dsn)["port"]
        self.properties = {
            "type": "sql",
            "uri": f"postgresql+psycopg://{USER}@127.0.0.1:{port}/postgres",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.catalog = SqlCatalog("lake", **{name: each for name, each in self.properties.items() if name != "type"})
        self.catalog.create_namespace("sales")
        by = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket"))
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
        self.catalog.create_table("sales.orders", schema, partition_spec=by)
        self.pipeline = Pipeline(f"file://{folder}/cairn", None, retained=3)
        table = IcebergTable("lake.sales.orders", conn_id="c", branch=True)
        self.sink = BranchSink("orders", table, lambda _: self.properties)
        self.submitter = submitter
        jars = [*JarSet("peers", PACKAGES, EXCLUDES).jars(), postgres_jar()]
        self.conf = {
            "spark.jars": ",".join(str(each) for each in jars if "delta" not in each.name),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
            f"{_CATALOG}.type": "jdbc",
            f"{_CATALOG}.uri": server.jdbc_url,
            f"{_CATALOG}.warehouse": self.properties["warehouse"],
            "spark.sql.defaultCatalog": "lake",  # dbt's names have no catalog
        }

    def trigger(self, run_id: str) -> None:
        self.deliver()
        self.pipeline.trigger(run_id, hooks=(self.sink,), listeners=(self.sink.name,))

    def run(self, run_id: str, number: int, what: str = "nothing", **conf: str) -> Any:
        """Do what the operator does: each call is a new try."""
        handed = self.pipeline.conf(self.pipeline.begin(run_id))
        application = APPLICATIONS / ("merge_by_dbt.py" if what == "dbt" else "branches.py")
        return self.submitter.submit(application, {**self.conf, **handed, **conf}, str(number), what)

    def advance(self, run_id: str, number: int, what: str = "nothing") -> None:
        done = self.run(run_id, number, what)
        assert done.returncode == 0, said(done)
        before = self.rows()
        self.pipeline.complete(run_id)
        assert self.rows() == before, "nothing is visible before the commit"
        for _ in range(2):
            self.deliver()

    def deliver(self) -> None:
        self.pipeline.coordinator.deliver([self.sink])

    def rows(self) -> dict[int, str]:
        found = self.catalog.load_table("sales.orders").scan().to_arrow().to_pylist()
        assert len({row["id"] for row in found}) == len(found), found
        return {row["id"]: row["note"] for row in found}

    def branches(self) -> set[str]:
        refs = self.catalog.load_table("sales.orders").metadata.refs.items()
        return {name for name, each in refs if each.snapshot_ref_type == "branch"} - {"main"}

    def run_again(self, run_id: str) -> tuple[str, ...]:
        return self.pipeline.coordinator.run_again(epoch_name(run_id), [self.sink])


def check(cell: IcebergCell, folder: Path) -> None:
    """Make a cell's environment and run epochs in it: dead, failed, overtaken, and whole."""
    assert any(each.endswith(f":{ICEBERG}") for each in PACKAGES), "what the page says"
    programs = programs_of(cell.name, cell.python, (f"pyspark=={cell.pyspark}", *DBT))
    with PostgresServer(for_java=True) as server:
        lake = Lake(Submitter(programs, folder, bare=False), server, folder)
        lake.trigger("a")
        for what, why in (("kill", ""), ("fail", "the author's")):
            done = lake.run("a", 1, what)
            assert done.returncode and why in done.stdout + done.stderr, said(done)
        assert len(lake.branches()) == 1, "the failed driver has dropped its branch"
        lake.advance("a", 1)
        assert (lake.rows(), lake.branches()) == ({1: "epoch 1", 2: "epoch 1"}, set())
        lake.trigger("b")
        done = lake.run("b", 2, "others")
        assert "its next try begins with what is there now" in done.stdout + done.stderr, said(done)
        lake.advance("b", 2)
        expected = {2: "seen again", 3: "epoch 2", 102: "others"}
        assert (lake.rows(), lake.branches()) == (expected, set())
        snapshot = lake.catalog.load_table("sales.orders").current_snapshot()
        assert snapshot and snapshot.summary, "the branch's snapshots say whose they are"
        assert snapshot.summary["cairn.checkpoint"] == str(lake.pipeline.coordinator.head().completed[-1].id)
        lake.trigger("c")
        assert lake.run("c", 3).returncode == 0
        lake.catalog.load_table("sales.orders").delete("id = 102")
        assert lake.run_again("c") == ("routes",), "others have moved main since the acknowledgement"
        assert lake.run("c", 3).returncode == 0
        table = lake.catalog.load_table("sales.orders")
        base = table.metadata.current_snapshot_id
        assert base
        table.delete("id = 3")
        assert lake.run_again("c") == (), "the second time a person is told"
        lake.pipeline.complete("c")
        try:
            lake.deliver()
        except CallbackError as error:
            assert f"main has moved from snapshot {base} to" in str(error), error
        else:
            raise AssertionError("what others have committed to main was overwritten")
        lake.catalog.load_table("sales.orders").manage_snapshots().set_current_snapshot(base).commit()
        lake.deliver()
        merged = {3: "seen again", 4: "epoch 3"}
        assert (lake.rows(), lake.branches()) == (merged, set())
        with lake.catalog.load_table("sales.orders").transaction() as change:
            change.set_properties({"write.wap.enabled": "true"})
        checkpoint = lake.pipeline.coordinator.head().completed[-1].id
        for run_id in ("dbt", "dbt again"):
            lake.trigger(run_id)
            assert lake.rows() == merged, "a rewind takes back what dbt has made"
            lake.advance(run_id, 4, "dbt")
            assert (lake.rows(), lake.branches()) == ({3: "seen again", 4: "dbt 4", 5: "dbt 4"}, set())
            if run_id == "dbt":
                lake.pipeline.coordinator.rewind(checkpoint)
        by_dbt, checkpoint = lake.rows(), lake.pipeline.coordinator.head().completed[-1].id
        lake.trigger("emptied")
        lake.advance("emptied", 9, "empty")
        assert lake.rows() == {9: "anew"}
        snapshots = lake.catalog.load_table("sales.orders").snapshots()
        unnamed = [each for each in snapshots if each.summary and not each.summary["cairn.job"]]
        assert "delete" in [each.summary.operation.value for each in unnamed if each.summary], (
            "Spark names no job there"
        )
        lake.pipeline.coordinator.rewind(checkpoint)
        lake.trigger("d")
        assert lake.rows() == by_dbt, "a rewind takes back all of a branch"
        for why in ("its next try begins with what is there now", "did so before in this epoch"):
            done = lake.run("d", 4, "others")
            assert why in done.stdout + done.stderr, said(done)
