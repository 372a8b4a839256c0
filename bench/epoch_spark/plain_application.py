"""Runs an application of the flights pipeline without Cairn: the same file, with an epoch that is plain Spark.

plain_application.py FACTS APPLICATION [ARGUMENTS…]: FACTS is a JSON object with `folder` (of the pipeline's files),
`number` (of the epoch, from 0 on), `stage`, `start` and `end` (of the slice). Its writes are a plain pipeline's:
`df.write.parquet(folder)`, without a fence, a digest, key groups or a retry. Its reads name their schema, so that Spark
does not look for it, and over Spark Connect it loads PySpark as Cairn's client does.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

if "SPARK_REMOTE" in os.environ:
    import gc

    from airflow_cairn.spark.remote.deferred_pandas import pandas_when_used

    gc.disable()
    with pandas_when_used():
        import pyspark.sql.connect.session  # noqa: F401 - what `import_client` loads
    gc.freeze()
    gc.enable()

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Slice:
    """The input of one epoch."""

    start: str
    end: str

    def dates(self, _zone: str) -> tuple[str, str]:
        """Return the first day and the day after the last; the bench's days are UTC days."""
        return self.start[:10], self.end[:10]


class Epoch:
    """The parts of Cairn's epoch that the applications use."""

    told: dict[str, Any]

    def __init__(self) -> None:
        self.spark = SparkSession.builder.getOrCreate()
        self.slice = Slice(self.told["start"], self.told["end"])

    @classmethod
    def current(cls) -> Epoch:
        return cls()

    def __enter__(self) -> Epoch:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no coordinator to tell."""

    def _path(self, name: str, number: int) -> str:
        return f"{self.told['folder']}/{number}/{name}"

    def write(self, df: DataFrame) -> None:
        self._write(self.told["stage"], df)

    def _write(self, name: str, df: DataFrame) -> None:
        schema = self._schema(name)
        if not schema.exists():  # in the first epoch; an author knows it
            schema.write_text(df.schema.json())
        df.write.parquet(self._path(name, self.told["number"]))

    def _read(self, name: str, number: int) -> DataFrame:
        schema = StructType.fromJson(json.loads(self._schema(name).read_text()))
        return self.spark.read.schema(schema).parquet(self._path(name, number))

    def _schema(self, name: str) -> Path:
        return Path(self.told["folder"], f"{name}.schema.json")

    def read(self, stage: str, state: str | None = None) -> DataFrame:
        return self._read(state or stage, self.told["number"])

    def state(self, name: str, keys: object = None) -> DataFrame | None:  # noqa: ARG002 - plain files have no index
        number: int = self.told["number"]
        return None if number == 0 else self._read(name, number - 1)

    def update(self, name: str, changed: DataFrame, key: Sequence[str]) -> None:
        """Write the whole state: unchanged rows and changed ones."""
        before = self.state(name)
        if before is not None:
            changed = before.join(changed, list(key), "left_anti").unionByName(changed)
        self._write(name, changed)

    def aggregate(self, name: str, partials: DataFrame, key: Sequence[str], merge: Mapping[str, str]) -> None:
        """Write the whole state: the sums so far and the epoch's, by one aggregation."""
        before = self.state(name)
        if before is not None:
            sums = {"sum": F.sum, "each(sum)": _sum_of_arrays}
            values = [sums[how](F.col(column)).alias(column) for column, how in merge.items()]
            partials = before.unionByName(partials).groupBy(*key).agg(*values)
        self._write(name, partials)

    def append(self, name: str, df: DataFrame) -> None:
        df.write.mode("append").parquet(f"{self.told['folder']}/{name}")

    def get(self, name: str, default: object) -> object:
        file = Path(self._path(name, self.told["number"] - 1)).with_suffix(".json")
        return json.loads(file.read_text()) if file.exists() else default

    def put(self, name: str, value: object) -> None:
        Path(self._path(name, self.told["number"])).with_suffix(".json").write_text(json.dumps(value))


def _sum_of_arrays(arrays: Column) -> Column:
    """Sum arrays of equal length, of one day and of the days before it."""
    parts = F.collect_list(arrays)
    return F.when(F.size(parts) == 1, parts[0]).otherwise(F.zip_with(parts[0], parts[1], lambda one, two: one + two))


if __name__ == "__main__":
    Epoch.told = json.loads(sys.argv[1])
    plain = ModuleType("airflow_cairn")
    plain.Epoch = Epoch  # type: ignore[attr-defined]
    sys.modules["airflow_cairn"] = plain
    sys.argv = sys.argv[2:]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        SparkSession.builder.getOrCreate().stop()
