"""Runs an application of the flights pipeline without Cairn: the same file, with an epoch that is plain Spark.

plain_application.py FACTS APPLICATION [ARGUMENTS…]: FACTS is a JSON object with `folder` (of the pipeline's files),
`number` (of the epoch, from 0 on), `stage`, `start` and `end` (of the slice). What it writes, it writes as a plain
pipeline would: `df.write.parquet(folder)`, without a fence, a digest, key groups or a second try.
"""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Slice:
    """The input of one epoch."""

    start: str
    end: str


class Epoch:
    """What the applications use of Cairn's epoch."""

    told: dict[str, Any]

    def __init__(self) -> None:
        self.spark = SparkSession.builder.getOrCreate()
        self.slice = Slice(self.told["start"], self.told["end"])

    @classmethod
    def current(cls) -> Epoch:
        """Give the epoch of this process."""
        return cls()

    def __enter__(self) -> Epoch:
        """Give the epoch."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no coordinator to tell."""

    def _path(self, name: str, number: int) -> str:
        return f"{self.told['folder']}/{number}/{name}"

    def write(self, df: DataFrame) -> None:
        """Hand rows on to the stages after this one."""
        df.write.parquet(self._path(self.told["stage"], self.told["number"]))

    def read(self, stage: str, state: str | None = None) -> DataFrame:
        """Read what a stage has written in this epoch."""
        return self.spark.read.parquet(self._path(state or stage, self.told["number"]))

    def state(self, name: str) -> DataFrame | None:
        """Read the state as the epoch before has left it."""
        number: int = self.told["number"]
        return None if number == 0 else self.spark.read.parquet(self._path(name, number - 1))

    def snapshot(self, name: str, df: DataFrame, key: object) -> None:  # noqa: ARG002 - plain files have no key
        """Write the state."""
        df.write.parquet(self._path(name, self.told["number"]))

    def publish(self, name: str, df: DataFrame) -> None:
        """Write a table."""
        df.write.parquet(self._path(name, self.told["number"]))

    def get(self, name: str, default: object) -> object:
        """Read a small value as the epoch before has left it."""
        file = Path(self._path(name, self.told["number"] - 1)).with_suffix(".json")
        return json.loads(file.read_text()) if file.exists() else default

    def put(self, name: str, value: object) -> None:
        """Write a small value."""
        Path(self._path(name, self.told["number"])).with_suffix(".json").write_text(json.dumps(value))


if __name__ == "__main__":
    Epoch.told = json.loads(sys.argv[1])
    plain = ModuleType("airflow_cairn.spark")
    plain.Epoch = Epoch  # type: ignore[attr-defined]
    sys.modules.update({"airflow_cairn": ModuleType("airflow_cairn"), "airflow_cairn.spark": plain})
    sys.argv = sys.argv[2:]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        SparkSession.builder.getOrCreate().stop()
