"""The documentation's applications run, in one Spark session: first without state, then with what they have left.

One writes to a database: it runs with PostgreSQL, its JDBC driver and the listener of its page. One reads from Kafka:
it runs with the source of its page, on a stand-in for a topic.
"""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from airflow.sdk import DAG

from airflow_cairn.checkpoint import FileSource, Offsets
from airflow_cairn.checkpoint.answers import Ready
from airflow_cairn.checkpoint.documents.attempt import Slice, StageSpec
from airflow_cairn.checkpoint.documents.layout import epoch_name
from airflow_cairn.cli import main as cli
from airflow_cairn.spark import table
from airflow_cairn.spark.epoch import as_current
from airflow_cairn.spark.stored import deltas, merges
from scripts.doc_blocks import DocBlock, Kind, doc_blocks
from scripts.harness.postgres_server import PostgresServer
from scripts.setup.base import ROOT
from tests.docs.test_shell_blocks import CAIRN, ON_SPARK, verb
from tests.real.spark.pipeline import Pipeline, session_builder
from tests.support.covering import covering
from tests.support.documented import documented
from tests.support.kafka_stand_in import SparkWithKafka, Topic
from tests.support.world.parties import Ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DATABASE = "jdbc:postgresql:shop"
APPLICATIONS = [each for each in doc_blocks(ROOT) if each.kind is Kind.APPLICATION]
KAFKA = 'format("kafka")'
TABLE = "epoch.table("
"""Needs tables that the DAG names: tests/real/spark/test_lake_tables.py has such a stage."""
BRANCH = "epoch.branch("
"""Needs Iceberg's runtime in its Spark: tests/matrix/applications/branches.py."""
BLOCKS = [each for each in APPLICATIONS if not any(part in each.text for part in (DATABASE, KAFKA, TABLE, BRANCH))]
STAGES = (StageSpec("clean"), StageSpec("routes", upstream=("clean",)))
_RESTORES = re.compile(r"epoch\.(?:state|aggregate|update|list_state|restore_files|get)\(")
INPUT = """
SELECT *, departed AS placed_at FROM VALUES
  (1, 'AMS', 'LHR', 90, DATE '2026-01-01', TIMESTAMP '2026-01-01 10:30:00', 'ann', 20),
  (2, 'AMS', 'JFK', 5, DATE '2026-01-02', TIMESTAMP '2026-01-02 12:10:00', 'bob', 30),
  (3, 'LHR', 'AMS', 61, DATE '2026-01-03', TIMESTAMP '2026-01-03 23:50:00', 'ann', 40)
AS t(id, origin, destination, delay, day, departed, customer, amount)
"""


class Model:
    """Stands for that of the reader's library: it counts the rows that it has seen."""

    rows = 0

    def fit(self, frame: Any) -> None:
        self.rows += frame.count()

    def save(self, folder: str) -> None:
        Path(folder).mkdir(exist_ok=True)
        Path(folder, "rows").write_text(str(self.rows))

    @classmethod
    def load(cls, folder: str) -> Model:
        model = cls()
        model.rows = int(Path(folder, "rows").read_text())
        return model


class Lake:
    """World of the blocks: the pages' `s3://lake` in a folder, a job that has published, and an upstream's output."""

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
        text = text.replace('"/tmp/', f'"{self.folder}/')
        return compile(text, block.where, "exec", dont_inherit=True)

    def files_of_state(self) -> list[str]:
        """Give the files that `cairn state --json` prints."""
        printed = io.StringIO()
        with redirect_stdout(printed):
            asked = ("flights", "routes", "totals", "--storage", f"file://{self.folder}/cairn", "--json")
            assert cli.main(["state", *asked]) == 0
        document = json.loads(printed.getvalue())
        assert document["deltas"] == 0
        return list(document["files"])

    def names(self, text: str) -> dict[str, Any]:
        """Give what the pages say stands for the reader's own: a session, a storage, a job, a table.

        And what a block above has found: the newest checkpoint, and the files of the table that grows.
        """
        storage = f"file://{self.folder}/cairn"
        head = self.published.coordinator.head()
        league = head.completed[-1].tables["league"]
        if "totals = spark.read.parquet" in text:
            return {"spark": self.spark, "files": self.files_of_state()}
        return {
            "spark": self.spark,
            "storage": storage,
            "folder": str(self.folder / "cairn"),
            "job": "flights",
            "name": "daily" if "all.json" in text else "league",
            "url": f"{storage}/flights/{league}",
            "new_model": Model,
            "load": Model.load,
            "newest": json.loads((self.folder / "cairn" / "flights" / "head.json").read_text())["completed"][-1],
            "files": sorted((self.folder / "cairn").glob("flights/*/state/*/*/*/table.daily/*.parquet")),
        }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    session = session_builder().config("spark.sql.shuffle.partitions", "1").getOrCreate()
    yield Lake(session, tmp_path_factory.mktemp("lake"))
    session.stop()


def _calls(block: DocBlock) -> set[str]:
    return {*re.findall(r"\b(?:epoch|spark)\.\w+(?=\()", block.text)}


@pytest.mark.parametrize("block", covering(BLOCKS, _calls), ids=lambda block: block.where)
def test_every_application_in_the_documentation_runs(
    block: DocBlock, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["clean.py", "--region", "eu"])
    code = lake.code_of(block)
    if "Epoch.current()" not in block.text:
        exec(code, lake.names(block.text))
        return
    pipeline = Pipeline(f"file://{lake.folder}/epochs", lake.spark, STAGES, job=f"docs-{BLOCKS.index(block)}")
    for day in (1, 2) if _RESTORES.search(block.text) else (1,):
        run = f"r{day}"
        if "epoch.files()" in block.text:
            pipeline.trigger(run, sources=(FileSource(f"file://{lake.folder}/raw", "**/*.parquet"),))
        else:
            window = Slice(f"2026-01-0{day}T00:00:00+00:00", f"2026-01-0{day + 1}T00:00:00+00:00")
            pipeline.trigger(run, window, hooks=(Ids("order-ids"),) if "epoch.hook(" in block.text else ())
        run_stages(pipeline, run, block, lake, lambda: exec(code, lake.names(block.text)))
    if "model.fit(" in block.text:
        assert (lake.folder / "after" / "rows").read_text() == "6", "the second day goes on where the first has ended"


def test_the_pipeline_of_new_files_goes_through_a_day_without_any(lake: Lake, tmp_path: Path) -> None:
    """semantics B6: `clean` writes nothing, and `routes` reads an empty frame."""
    clean, routes = [each for each in BLOCKS if each.where.startswith("docs/how-to/sources.md")]
    pipeline = Pipeline(f"file://{tmp_path}/lake", lake.spark, STAGES)
    pipeline.trigger("quiet", sources=(FileSource(f"file://{lake.folder}/raw", "*.none"),))
    for uid, block in (("clean", clean), ("routes", routes)):
        pipeline.submitted(pipeline.begin("quiet", uid))
        exec(lake.code_of(block), {})
    pipeline.complete("quiet")
    pipeline.forget()
    found = table(lake.spark, pipeline.storage, "flights", "routes")
    assert (found.columns, found.count()) == (["origin", "count"], 0)


def test_the_application_that_writes_to_a_database_runs_with_its_listener(lake: Lake) -> None:
    [block] = [each for each in APPLICATIONS if DATABASE in each.text]
    with PostgresServer(for_java=True) as server:
        code = compile(block.text.replace(DATABASE, server.jdbc_url), block.where, "exec", dont_inherit=True)
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE TABLE staged_orders (staging text, epoch text, customer text, amount int)")
            connection.execute("CREATE TABLE orders (customer text, amount int)")
        pipeline = Pipeline(f"file://{lake.folder}/epochs", lake.spark, STAGES, job="docs-database")
        pipeline.trigger("r1", listeners=("orders",))
        run_stages(pipeline, "r1", block, lake, lambda: exec(code, {}))
        pipeline.coordinator.deliver([documented("how-to/two-phase-sinks.md", "OrdersSink")(server.dsn)])
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT * FROM orders ORDER BY 2").fetchall() == [
                ("ann", 20),
                ("bob", 30),
                ("ann", 40),
            ]
            assert connection.execute("SELECT * FROM staged_orders").fetchall() == []


def test_the_application_that_reads_from_kafka_goes_on_where_it_ended(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:  # semantics W11, T8
    [block] = [each for each in APPLICATIONS if KAFKA in each.text]
    topic, spark = Topic(monkeypatch, "orders"), SparkWithKafka(lake.spark)
    with DAG("docs"):
        source = Offsets(documented("how-to/sources.md", "new_orders"))
    pipeline = Pipeline(f"file://{lake.folder}/epochs", lake.spark, (StageSpec("clean"),), job="docs-kafka")
    for run, topic.ends in (("r1", {0: 10, 1: 10}), ("r2", {0: 12, 1: 15})):
        pipeline.trigger(run, sources=(source,))
        epoch = pipeline.epoch(run, "clean")
        monkeypatch.setattr(epoch, "spark", spark)
        with as_current(epoch):
            exec(compile(block.text, block.where, "exec", dont_inherit=True), {})
        pipeline.complete(run)
    assert spark.read_ranges == [[[0, 0, 10], [1, 0, 10]], [[0, 10, 12], [1, 10, 15]]]


def test_the_commands_that_compact_run(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command runs on a job of the names that it gives, whose state has deltas."""
    for what, value in ((merges, {"WHOLE_BYTES": 0}), (deltas, {"FAN_IN": 100, "MAX_EPOCHS": 100, "MAX_SHARE": 1e9})):
        for name, bound in value.items():
            monkeypatch.setattr(what, name, bound)
    lines = [line for _, line in CAIRN if verb(line) in ON_SPARK]
    assert lines
    for number, line in enumerate(lines):
        pipeline = Pipeline(f"file://{tmp_path}/{number}", lake.spark)
        for run in ("r1", "r2"):
            pipeline.trigger(run)
            with pipeline.epoch(run) as epoch:
                epoch.update("totals", lake.input.groupBy("origin").count(), key="origin")
            pipeline.complete(run)
        pipeline.forget()
        assert cli.main(shlex.split(line.replace("file:///lake/cairn", pipeline.storage))[1:]) == 0
        assert ": compacted; " in capsys.readouterr().out, line


def run_stages(pipeline: Pipeline, run: str, block: DocBlock, lake: Lake, application: Callable[[], None]) -> None:
    """Run both stages of an epoch, the second by a page's application, and complete it."""
    with pipeline.epoch(run, "clean") as epoch:
        if "epoch.read(" in block.text:
            epoch.write(lake.input)
    pipeline.submitted(pipeline.begin(run))
    try:
        application()
    finally:
        pipeline.forget()
    assert isinstance(pipeline.coordinator.progress(epoch_name(run)), Ready), "the stage has acknowledged"
    pipeline.complete(run)


def test_there_are_applications() -> None:
    assert sum("Epoch.current()" in block.text for block in BLOCKS) >= 8
