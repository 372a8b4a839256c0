"""Stands for a topic of Kafka: its client, as `kafka-python` has it, and Spark's reader of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Partition(NamedTuple):
    """A partition, as the client names it."""

    topic: str
    partition: int


class Topic:
    """A topic, which is also its client: one object for the tests that write and the code that reads.

    Args:
        monkeypatch: has `import kafka` give this.
        name: the topic's.
    """

    TopicPartition = Partition

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.name = name
        self.ends: dict[int, int] = {}
        monkeypatch.setitem(sys.modules, "kafka", self)

    def KafkaConsumer(self, *, bootstrap_servers: str) -> Topic:
        """Connect."""
        assert bootstrap_servers
        return self

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Give the numbers of the partitions."""
        assert topic == self.name
        return set(self.ends)

    def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Give the oldest offsets."""
        return dict.fromkeys(partitions, 0)

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Give the offsets of the next messages."""
        return {each: self.ends[each.partition] for each in partitions}

    def close(self) -> None:
        """Disconnect."""


class SparkWithKafka:
    """A session whose reader knows the format `kafka`; all else is the session's own."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.read_ranges: list[list[list[int]]] = []
        """Of each DataFrame that was loaded: partition, first offset, and the offset after the last."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    @property
    def read(self) -> Any:
        """Give a reader."""
        return _Reader(self, self._spark)


class _Reader:
    def __init__(self, session: SparkWithKafka, spark: SparkSession) -> None:
        self._session = session
        self._spark = spark
        self._options: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark.read, name)

    def format(self, source: str) -> _Reader:
        assert source == "kafka"
        return self

    def option(self, name: str, value: str) -> _Reader:
        self._options[name] = value
        return self

    def load(self) -> DataFrame:
        """Give a row for each message, once the options are what Spark's own reader takes."""
        ((topic, partitions),) = json.loads(self._options["assign"]).items()
        start, end = (json.loads(self._options[f"{which}Offsets"])[topic] for which in ("starting", "ending"))
        assert sorted(start) == sorted(end) == [str(each) for each in partitions], "each partition, and no other"
        ranges = [[each, start[str(each)], end[str(each)]] for each in partitions]
        self._session.read_ranges.append(ranges)
        rows = [(each, offset) for each, first, after in ranges for offset in range(first, after)]
        return self._spark.createDataFrame(rows, "partition int, offset bigint")
