"""Measures an append of a day to a table, against the table's number of days, and against Spark's own append.

Run it as `.venv/bin/python -m bench.append [--json] [--rounds N] [--days N] [--rows N] [--stay]`. Two jobs on local
files have tables of 10 and of 1,000 days; a plain folder of Parquet has 10. The drivers of the earlier epochs wrote one
small file each and merged small files as Spark would, without starting Spark. With `--stay` no file counts as small, so
that the table has a file of each day. Then a day is appended to each table in turn.

A day has 2 million rows, in a file of 45 MB for each of two cores: larger than Cairn's small files (8 MiB), and not
larger than the input of one Spark task (128 MiB).

The figures are medians over the rounds of the ratio within a round; each `…_spread` is the smallest and the largest.

- `append_growth`: seconds of `epoch.append` and of leaving the block, long history to short; `cpu_growth`: its CPU
  seconds, with those of the JVM.
- `bytes_growth`: bytes that an epoch leaves in the store, long to short, with data; `metadata_growth`: without.
- `plain_ratio`: the seconds of a block that appends to the short history, to those of `df.write.mode("append")`;
  `plain_cpu_ratio`: CPU seconds.
- `epoch_growth`: seconds of the whole epoch, with the trigger's verification and the cleaning.
- `metadata_bytes`, `metadata_bytes_long`: mean bytes per epoch of acknowledgement, metadata, manifests and list.
- `merged`: rounds of both histories in which an epoch also merged small files. `seconds`, `cpu`: medians.
- `manifests`, `files`: of the long table at the end. `rounds`, `load`, `cores`.
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cairn.checkpoint.documents import layout
from airflow_cairn.checkpoint.documents.acknowledgement import (
    AckDocument,
    Appended,
    Output,
    StateHandle,
    SubtaskAck,
    TableDocument,
)
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.checkpoint.store.job_files import JobFiles
from airflow_cairn.spark.stored import growing_table
from airflow_cairn.spark.stored.outputs import of_checkpoint
from airflow_cairn.storage import Written
from tests.real.spark.pipeline import Pipeline

from .measuring.results import machine, tell
from .measuring.spark_cost import Spent, measured, ratio
from .measuring.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "daily"


@dataclass
class Append(Spent):
    """The cost of one append."""

    epoch: float = 0.0
    """Seconds of the whole epoch."""
    size_bytes: int = 0
    metadata_bytes: int = 0
    merged: bool = False
    """True if the append also merged small files."""


def _history(pipeline: Pipeline, days: int, data: bytes) -> None:
    for number in range(days):
        run_id = f"day {number}"
        pipeline.trigger(run_id)
        handover = pipeline.begin(run_id).handover
        pipeline.coordinator.acknowledge(_written(pipeline, handover, data))
        pipeline.complete(run_id)


def _written(pipeline: Pipeline, at: Handover, data: bytes) -> AckDocument:
    files, run = pipeline.coordinator.files, "0" * 16
    before = None
    if at.restore is not None:
        [mine] = of_checkpoint(files, at.restore.metadata, lambda _: True)
        before = mine.outputs.get(f"table.{_NAME}")
    folder = layout.output_folder(at.checkpoint, at.stage, at.attempt, at.token, run, f"table.{_NAME}")
    schema = before.output.schema if before else '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}},{"name":"value","type":"double","nullable":true,"metadata":{}},{"name":"text","type":"string","nullable":true,"metadata":{}}]}'  # fmt: skip  # noqa: E501

    def put(path: str, data: bytes) -> StateHandle:
        answer = files.create_bytes(path, data)
        assert isinstance(answer, Written)
        return StateHandle(f"table.{_NAME}", path, len(data), answer.etag)

    new = put(f"{folder}part-00000-x.parquet", data)
    output = Output("table", _NAME, folder, schema)
    listing = growing_table.Listing(files, output)
    draft = listing.draft(growing_table.before(files, before), [new])
    small, others = growing_table.alike_files(draft.older)
    merged = [put(f"{folder}part-00001-x.parquet", _as_one(files, small))] if small else []
    listed, count, size = listing.write(draft, [*others, *merged])
    output = Output("table", _NAME, folder, schema, appended=Appended(count, size))
    return AckDocument(
        at.checkpoint, at.epoch, at.attempt, at.token, at.job, at.stage, run, 1, (output,),
        subtasks=(SubtaskAck(0, (listed, new, *merged)),),
    )  # fmt: skip


def _as_one(files: JobFiles, small: Sequence[StateHandle]) -> bytes:
    from pyarrow import BufferReader, concat_tables, parquet

    tables = [parquet.read_table(BufferReader(files.get(each.path, max_bytes=1 << 24).data)) for each in small]
    sink = io.BytesIO()
    parquet.write_table(concat_tables(tables), sink)
    return sink.getvalue()


def _append(pipeline: Pipeline, run_id: str, df: DataFrame) -> Append:
    assert pipeline.spark is not None
    there = {found.key for found in pipeline.store.list(f"{pipeline.job}/")}
    began = time.perf_counter()
    pipeline.trigger(run_id)
    epoch = pipeline.epoch(run_id)

    def block() -> None:
        with epoch:
            epoch.append(_NAME, df)

    spent = measured(pipeline.spark, block)
    pipeline.complete(run_id)
    whole = time.perf_counter() - began
    new = [found for found in pipeline.store.list(f"{pipeline.job}/") if found.key not in there]
    metadata_bytes = sum(found.size_bytes for found in new if not found.key.endswith(".parquet"))
    merged = any("/small." in found.key for found in new)
    return Append(spent.seconds, spent.cpu, whole, sum(found.size_bytes for found in new), metadata_bytes, merged)


def measure(rounds: int, days: int, rows: int) -> dict[str, object]:
    """Append to a short history, to a long one and to a plain folder in turn; return the figures."""
    with tempfile.TemporaryDirectory(prefix="cairn-append-") as folder, session({}) as spark:
        return _measure(spark, folder, rounds, days, rows)


def _measure(spark: SparkSession, folder: str, rounds: int, days: int, rows: int) -> dict[str, object]:
    day = spark.range(0, rows, 1, 2).selectExpr("id", "rand(7) AS value", "md5(CAST(id AS STRING)) AS text")
    small = f"{folder}/small"
    day.limit(10).coalesce(1).write.parquet(f"file://{small}")
    [data] = [each.read_bytes() for each in Path(small).glob("*.parquet")]
    short = Pipeline(f"file://{folder}/short", spark)
    long = Pipeline(f"file://{folder}/long", spark)
    _history(short, min(10, days), data)
    _history(long, days, data)
    plain = f"file://{folder}/plain"
    for _ in range(10):
        day.limit(10).coalesce(1).write.mode("append").parquet(plain)

    spent: dict[str, list[Spent]] = {"short": [], "long": [], "plain": []}
    for number in range(rounds + 1):
        turns = list(spent) if number % 2 else list(reversed(spent))
        for which in turns:
            if which == "plain":
                found = measured(spark, lambda: day.write.mode("append").parquet(plain))
            else:
                found = _append(short if which == "short" else long, f"round {number}", day)
            if number:  # the first round warms up
                spent[which].append(found)

    def of(which: str, name: str) -> list[float]:
        return [float(getattr(each, name)) for each in spent[which]]

    head = long.coordinator.head().completed[-1]
    listed, _ = long.coordinator.files.read(TableDocument, layout.table_list(head.tables[_NAME]))
    return {
        **ratio("append_growth", of("long", "seconds"), of("short", "seconds")),
        **ratio("cpu_growth", of("long", "cpu"), of("short", "cpu")),
        **ratio("bytes_growth", of("long", "size_bytes"), of("short", "size_bytes")),
        **ratio("metadata_growth", of("long", "metadata_bytes"), of("short", "metadata_bytes")),
        **ratio("plain_ratio", of("short", "seconds"), of("plain", "seconds")),
        **ratio("plain_cpu_ratio", of("short", "cpu"), of("plain", "cpu")),
        **ratio("epoch_growth", of("long", "epoch"), of("short", "epoch")),
        "metadata_bytes": round(statistics.mean(of("short", "metadata_bytes"))),
        "metadata_bytes_long": round(statistics.mean(of("long", "metadata_bytes"))),
        "merged": int(sum(of("short", "merged") + of("long", "merged"))),
        "seconds": {which: round(statistics.median(of(which, "seconds")), 3) for which in spent},
        "cpu": {which: round(statistics.median(of(which, "cpu")), 3) for which in spent},
        "days": days,
        "rows": rows,
        "manifests": len(listed.manifests),
        "files": listed.files,
        "rounds": rounds,
        **machine(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--days", type=int, default=1000, help="days of the long history")
    parser.add_argument("--rows", type=int, default=2_000_000, help="rows of a day")
    parser.add_argument("--stay", action="store_true", help="merge no files: each day's stays")
    options = parser.parse_args()
    if options.stay:
        growing_table.SMALL_BYTES = 0
    tell(measure(options.rounds, options.days, options.rows), as_json=options.json)


if __name__ == "__main__":
    main()
