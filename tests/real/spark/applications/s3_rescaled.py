"""State on S3 by key group, for `s3_epochs.py`: rescaled by way of a savepoint, read in parts, made of DataFrames."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.checkpoint.rules.restored_state import key_groups_of
from airflow_cairn.checkpoint.savepoints.savepoint_request import SavepointRequest
from airflow_cairn.cli.main import main
from airflow_cairn.spark import Keyed, bootstrap_savepoint
from airflow_cairn.storage import S3Options, open_store
from tests.real.spark import row_groups
from tests.real.spark.pipeline import Pipeline, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 6_000


class Rescaled:
    """Jobs in one storage, each at a parallelism of its own.

    Args:
        spark: the session.
        storage: where the jobs are.
        s3: how S3 is reached.
    """

    def __init__(self, spark: SparkSession, storage: str, s3: S3Options) -> None:
        self.spark = spark
        self.storage = storage
        self.s3 = s3
        self.rows_read: list[tuple[int, int]] = []
        """Of each subtask of the last job that was started: rows that Spark read, and those of its row groups."""
        self.many = spark.range(0, ROWS, 1, 2).selectExpr("id", "sha2(string(id), 512) AS text")

    def found(self) -> dict[str, Any]:
        """Do all of it, and say what came of it."""
        two = self._job("two", 2)
        two.trigger("one")
        with two.epoch("one") as epoch, row_groups.small(self.spark):
            epoch.snapshot("totals", self.many, key="id")
        two.complete("one")
        target = f"{self.storage}-kept"
        taken = two.coordinator.savepoint(SavepointRequest(target, "x"), lambda uri: open_store(uri, s3=self.s3))
        made = bootstrap_savepoint(self.spark, {"routes": {"totals": Keyed(self.many, "id")}}, target, s3=self.s3)
        seven, history = self._job("seven", 7), self._job("history", 3)
        return {
            "rescaled": self._started(seven, taken.uri),
            "rows read": self.rows_read,
            "bootstrapped": self._started(history, made),
            "same rows": self._shown(seven),
        }

    def _job(self, name: str, parallelism: int) -> Pipeline:
        return Pipeline(self.storage, self.spark, (StageSpec("routes", (), parallelism),), job=name, s3=self.s3)

    def _started(self, job: Pipeline, savepoint: str) -> bool:
        """Start a job from a savepoint; tell whether its subtasks have each row once, and each its own."""
        job.coordinator.start_from(open_store(savepoint, s3=self.s3))
        footers = [
            pq.ParquetFile(io.BytesIO(job.store.get(f"{job.job}/{key}").data)).metadata
            for key in job.listing()
            if key.endswith(".parquet")
        ]
        parallelism = job.stages[0].parallelism or 0
        self.rows_read = []
        got: list[int] = []
        job.trigger("one")
        with job.epoch("one") as epoch:
            for subtask in range(parallelism):
                part = epoch.state("totals", subtask=subtask)
                assert part is not None
                mine = key_groups_of(subtask, parallelism, 128)
                owned = part.selectExpr("id", f"pmod(hash(id), 128) BETWEEN {mine[0]} AND {mine[-1]} AS mine")
                collected = owned.collect()
                assert all(row.mine for row in collected)
                got += [row.id for row in collected]
                self.rows_read.append((row_groups.scanned(owned), row_groups.rows_at_most(footers, 2, mine)))
        job.complete("one")
        return sorted(got) == list(range(ROWS))

    def _shown(self, job: Pipeline) -> bool:
        """Tell whether the command prints all rows, and Spark reads the same by the path that it prints."""
        words = ["state", job.job, "routes", "totals", "--storage", self.storage, "--head", f"{ROWS}", "--json"]
        out = io.StringIO()
        with redirect_stdout(out):
            status = main([*words, "--endpoint-url", f"{self.s3.endpoint_url}", "--region", f"{self.s3.region}"])
        assert status == 0
        answer = json.loads(out.getvalue())
        printed = sorted((row["id"], row["text"]) for row in answer["rows"])
        return printed == rows(self.spark.read.parquet(answer["url"]).select("id", "text")) == rows(self.many)
