"""An Iceberg table that a job writes by branches: pyiceberg's `append(branch=…)` stands for Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow_cairn.spark import Epoch
from airflow_cairn.tables.branches import BranchSink
from airflow_cairn.tables.declared import IcebergTable
from tests.real.spark.pipeline import Pipeline
from tests.support.branching_spark import BranchingSpark
from tests.support.lake import Iceberg, rows_of


class ByBranches(Iceberg):
    """The table, in whatever catalog."""

    def begin_job(self) -> None:
        """Have somebody else write a row, and a job begin."""
        self.foreign(1)
        self.pipeline = Pipeline(f"file://{self.folder}/cairn", None)

    def new_sink(self, **options: Any) -> BranchSink:
        table = IcebergTable("lake.sales.orders", conn_id="rest", branch=True, **options)
        return BranchSink("orders", table, lambda _: self.settings)

    def begin(self, run_id: str) -> None:
        self.deliver()
        self.pipeline.trigger(run_id, hooks=(self.sink,), listeners=(self.sink.name,))

    def run(self, run_id: str, *ids: int, spark: BranchingSpark | None = None, after: Callable[[], Any] = str) -> None:
        """Do what a try of the stage does: a snapshot for each row."""
        spark = spark or BranchingSpark(self.catalog)
        handover = self.pipeline.begin(run_id).handover
        with Epoch(spark, self.pipeline.store, handover) as epoch:  # type: ignore[arg-type]
            with epoch.branch("orders") as name:
                for each in ids:
                    spark.append(name, rows_of([each]))
            after()

    def deliver(self) -> None:
        self.pipeline.coordinator.deliver([self.new_sink()])

    def tidy(self) -> None:
        self.expire()

    def expire(self, *, by_age: bool = True) -> int:
        """Expire what no branch keeps, as many of its newest snapshots as it says; or all that end none, by number.

        Returns:
            Number of them.
        """
        table = self.table
        kept: set[int] = set()
        for each in table.metadata.refs.values():
            number: int | None = each.snapshot_id
            for _ in range((each.min_snapshots_to_keep or 1) if by_age else 1):
                snapshot = table.metadata.snapshot_by_id(number) if number else None
                if snapshot is not None:
                    kept.add(snapshot.snapshot_id)
                number = snapshot and snapshot.parent_snapshot_id
        if old := [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id not in kept]:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        return len(old)

    def branches(self) -> set[str]:
        return self._refs("branch") - {"main"}

    def tags(self) -> set[str]:
        return self._refs("tag")

    def _refs(self, kind: str) -> set[str]:
        refs = self.table.metadata.refs.items()
        return {name for name, each in refs if each.snapshot_ref_type == kind}

    def at(self, snapshot: int) -> None:
        self.table.manage_snapshots().set_current_snapshot(snapshot).commit()
