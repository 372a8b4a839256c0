"""The ways in which plain Spark keeps the newest row of each key, for `bench.state`."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Changed = Callable[[int], "DataFrame"]
"""Returns the rows that an epoch changes, one for each of its keys."""


class Rival(ABC):
    """One way, with a folder of its own."""

    name: ClassVar[str]

    def __init__(self, spark: SparkSession, folder: str, changed: Changed, columns: Sequence[str]) -> None:
        self._spark, self._folder, self._changed, self._columns = spark, folder, changed, columns

    @abstractmethod
    def begin(self, rows: DataFrame) -> None:
        """Write the first state."""

    @abstractmethod
    def merge(self, first: int, last: int) -> None:
        """Take in the changes of some epochs; the measured epochs are one each."""

    @abstractmethod
    def rows(self) -> DataFrame:
        """Return the state."""

    @abstractmethod
    def forget(self, number: int) -> None:
        """Delete what an epoch alone needs, on local files."""


class _Whole(Rival):
    """Each epoch reads the state and writes all of it into a new folder."""

    def begin(self, rows: DataFrame) -> None:
        self._schema = rows.schema
        self._write(rows, 0)

    def merge(self, first: int, last: int) -> None:
        self._write(self._merged(self.rows(), first, last), last)

    def rows(self) -> DataFrame:
        return self._spark.read.schema(self._schema).parquet(self.folder)

    @abstractmethod
    def _merged(self, before: DataFrame, first: int, last: int) -> DataFrame:
        """Return the state after some epochs."""

    def _write(self, rows: DataFrame, number: int) -> None:
        self.folder = f"{self._folder}/{number}"
        rows.write.parquet(self.folder)

    def forget(self, number: int) -> None:
        where = urlsplit(f"{self._folder}/{number}")
        if where.scheme == "file":
            shutil.rmtree(Path(where.path), ignore_errors=True)


class MaxBy(_Whole):
    """Takes the newest row of each key by `max_by` of every column."""

    name = "max_by"

    def _merged(self, before: DataFrame, first: int, last: int) -> DataFrame:
        return newest(before, self._changed, self._columns, first, last)


class AntiJoin(_Whole):
    """Keeps the rows whose key did not change, and adds the changed ones: the cheaper way to write all."""

    name = "anti_join"

    def _merged(self, before: DataFrame, first: int, last: int) -> DataFrame:
        for number in range(first, last + 1):
            changed = self._changed(number)
            before = before.join(changed, "key", "left_anti").unionByName(changed)
            if (number - first) % 10 == 9:  # a plan of 60 joins would not end
                before = before.localCheckpoint()
        return before


class Log(Rival):
    """Each epoch writes only the rows that it changes, without compaction; a reader takes the newest row of a key."""

    name = "log"

    def begin(self, rows: DataFrame) -> None:
        self._schema = rows.schema
        rows.write.parquet(f"{self._folder}/base")

    def merge(self, first: int, last: int) -> None:
        for number in range(first, last + 1):
            self._changed(number).write.parquet(f"{self._folder}/log/epoch={number}")

    def rows(self) -> DataFrame:
        from pyspark.sql import functions as F

        log = self._spark.read.schema(f"{self._schema.toDDL()}, epoch int").parquet(f"{self._folder}/log")
        columns = ("key", *self._columns)
        newest_row = F.max_by(F.struct(*columns), "epoch").alias("row")
        late = log.groupBy("key").agg(newest_row).select("row.*").select(*columns)
        base = self._spark.read.schema(self._schema).parquet(f"{self._folder}/base").select(*columns)
        return base.join(late, "key", "left_anti").unionByName(late)

    def forget(self, number: int) -> None:
        """Delete nothing: each folder is part of the state."""


RIVALS: tuple[type[Rival], ...] = (AntiJoin, MaxBy, Log)


def newest(before: DataFrame, changed: Changed, columns: Sequence[str], first: int, last: int) -> DataFrame:
    """Return the newest row of each key among rows and the changes of some epochs."""
    from pyspark.sql import functions as F

    rows = before.withColumn("epoch", F.lit(0))
    for number in range(first, last + 1):
        rows = rows.unionByName(changed(number).withColumn("epoch", F.lit(number)))
    return rows.groupBy("key").agg(*(F.max_by(each, "epoch").alias(each) for each in columns))
