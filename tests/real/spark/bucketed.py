"""An Iceberg table that is partitioned by buckets and truncated values, written by drivers of other processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, TruncateTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from airflow_cairn.checkpoint.answers import Submit
from airflow_cairn.tables.declared import IcebergTable
from airflow_cairn.tables.sink import TableSink
from tests.real.spark.pipeline import Pipeline

APPLICATION = Path(__file__).parent / "applications" / "bucketed.py"
_NAMES = ("id", "name", "n", "price", "raw", "at", "day")
_KINDS = (LongType(), StringType(), IntegerType(), DecimalType(38, 2), BinaryType(), TimestamptzType(), DateType())
_BY: tuple[tuple[int, Any], ...] = (*((at, BucketTransform(2)) for at in range(1, 7)), (0, TruncateTransform(10)))


def check_buckets(folder: Path, pipeline: Pipeline, submit: Callable[..., object]) -> None:
    """Append rows in one epoch and overwrite partitions in the next.

    Args:
        folder: for the catalog and the table.
        pipeline: of a job with the stage `routes`.
        submit: runs the application to its end: what was begun, and the application's arguments.

    Raises:
        AssertionError: a file is in another partition than the format's library would put it, or a row is not there.
    """
    properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    sink = TableSink("bucketed", IcebergTable("lake.sales.bucketed", "c"), lambda _: {"type": "sql", **properties})
    with SqlCatalog("lake", **properties) as catalog:
        catalog.create_namespace("sales")
        columns = (NestedField(at, *each) for at, each in enumerate(zip(_NAMES, _KINDS, strict=True), 1))
        fields = (PartitionField(at + 1, 1000 + number, how, f"p{number}") for number, (at, how) in enumerate(_BY))
        catalog.create_table("sales.bucketed", Schema(*columns), partition_spec=PartitionSpec(*fields))
        before = _rows(catalog)
        for method, ids in (("append", range(24)), ("overwrite_partitions", range(28, 30))):
            pipeline.trigger(method, hooks=(sink,), listeners=(sink.name,))
            begun: Submit = pipeline.begin(method)
            submit(begun, method, str(ids.start), str(ids.stop))
            pipeline.complete(method)
            pipeline.coordinator.deliver((sink,))
            now = _rows(catalog)
            taken = {now[each] for each in ids}
            assert {*now} == {*ids, *(each for each, partition in before.items() if partition not in taken)}
            before = now
        assert 2 < len(now) < 26, "the overwrite has taken some"


def _rows(catalog: Catalog) -> dict[int, tuple[Any, ...]]:
    """Give the ids with their partitions, by the library; each file has the one that all its rows have."""
    found: dict[int, tuple[Any, ...]] = {}
    for file in catalog.load_table("sales.bucketed").inspect.files().to_pylist():
        of_file = {
            row["id"]: tuple(how.transform(_KINDS[at])(row[_NAMES[at]]) for at, how in _BY)
            for row in pq.read_table(file["file_path"].removeprefix("file://")).to_pylist()
        }
        assert {*of_file.values()} == {tuple(file["partition"].values())}
        found |= of_file
    return found
