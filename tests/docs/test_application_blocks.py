"""The documentation's applications run, in one Spark session: first without state, then with what they have left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_cairn.checkpoint.answers import Ready
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from scripts.doc_blocks import DocBlock, Kind, doc_blocks
from scripts.setup.base import ROOT
from tests.real.spark.pipeline import Pipeline, session_builder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BLOCKS = [each for each in doc_blocks(ROOT) if each.kind is Kind.APPLICATION]
STAGES = (StageSpec("clean"), StageSpec("routes", upstream=("clean",)))
_RESTORES = re.compile(r"epoch\.(?:state|list_state|restore_files|get)\(")
INPUT = """
SELECT * FROM VALUES
  (1, 'AMS', 'LHR', 90, DATE '2026-01-01', TIMESTAMP '2026-01-01 10:30:00'),
  (2, 'AMS', 'JFK', 5, DATE '2026-01-02', TIMESTAMP '2026-01-02 12:10:00'),
  (3, 'LHR', 'AMS', 61, DATE '2026-01-03', TIMESTAMP '2026-01-03 23:50:00')
AS t(id, origin, destination, delay, day, departed)
"""


class Lake:
    """What the blocks find: the pages' `s3://lake` in a folder, a job that has published, and an upstream's output."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.input = spark.sql(INPUT).coalesce(1)
        self.input.write.parquet(f"file://{folder}/raw")
        self.input.write.parquet(f"file://{folder}/history/totals")
        (folder / "landing").mkdir()
        (folder / "landing" / "one.csv").write_text("AMS,3\n")
        self.published = Pipeline(f"file://{folder}/cairn", spark)
        self.published.trigger("r1")
        with self.published.epoch("r1") as epoch:
            epoch.publish("league", self.input)
            epoch.append("daily", self.input)
            epoch.snapshot("totals", self.input, key=["origin"])
        self.published.complete("r1")
        self.published.forget()

    def code_of(self, block: DocBlock) -> Any:
        """Give a block's code, with its addresses in this folder."""
        text = block.text
        for address in ("s3a://lake", "s3://lake"):
            text = text.replace(address, f"file://{self.folder}")
        return compile(text, block.where, "exec", dont_inherit=True)

    def names(self, text: str) -> dict[str, Any]:
        """Give what the pages say stands for the reader's own: a session, a storage, a job, a table.

        And what a block above has found: the newest checkpoint, and the files of the table that grows.
        """
        storage = f"file://{self.folder}/cairn"
        head = self.published.coordinator.head()
        league = head.completed[-1].tables["league"]
        return {
            "spark": self.spark,
            "storage": storage,
            "folder": str(self.folder / "cairn"),
            "job": "flights",
            "name": "daily" if "all.json" in text else "league",
            "url": f"{storage}/flights/{league}",
            "newest": json.loads((self.folder / "cairn" / "flights" / "head.json").read_text())["completed"][-1],
            "files": sorted((self.folder / "cairn").glob("flights/*/state/*/*/*/table.daily/*.parquet")),
        }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    session = session_builder().config("spark.sql.shuffle.partitions", "1").getOrCreate()
    yield Lake(session, tmp_path_factory.mktemp("lake"))
    session.stop()


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_every_application_in_the_documentation_runs(block: DocBlock, lake: Lake) -> None:
    code = lake.code_of(block)
    if "Epoch.current()" not in block.text:
        exec(code, lake.names(block.text))
        return
    job = f"docs-{BLOCKS.index(block)}"
    pipeline = Pipeline(f"file://{lake.folder}/epochs", lake.spark, STAGES, job=job)
    for day in (1, 2) if _RESTORES.search(block.text) else (1,):
        run = f"r{day}"
        pipeline.trigger(run, Slice(f"2026-01-0{day}T00:00:00+00:00", f"2026-01-0{day + 1}T00:00:00+00:00"))
        with pipeline.epoch(run, "clean") as epoch:
            if "epoch.read(" in block.text:
                epoch.write(lake.input)
        submit = pipeline.begin(run)
        pipeline.submitted(submit)
        try:
            exec(code, lake.names(block.text))
        finally:
            pipeline.forget()
        assert isinstance(pipeline.coordinator.progress(epoch_name(run)), Ready), "the stage has acknowledged"
        pipeline.complete(run)


def test_there_are_applications() -> None:
    assert sum("Epoch.current()" in block.text for block in BLOCKS) >= 8
