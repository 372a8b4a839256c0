"""The Spark session of the benchmarks that compare ways to write: its JVM compiles as on a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
_STORES = "org.apache.spark.sql.execution.streaming.state"


@contextmanager
def session(more: Mapping[str, str]) -> Iterator[SparkSession]:
    """Yield a local session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("cairn-bench")
    conf = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": f"{_STORES}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    spark = builder.config(map={**conf, **more}).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
