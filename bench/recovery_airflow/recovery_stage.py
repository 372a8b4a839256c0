"""One stage of `bench.recovery`: reads rows, computes on them, writes an exchange, and keeps totals.

recovery_stage.py FACTS: a JSON object with `stage`, `upstream` (None for the first), `keys` (of the totals), `plain`
(the folder of a pipeline without Cairn; None with Cairn) and `dies` (a file that does not exist yet: the driver creates
it, and is killed after all its writes and before its acknowledgement; None to live).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch

ROWS = 400_000
ROUNDS = 6
"""Rounds of hashing each row. A stage on two cores then takes a few seconds, about half of them for Spark's start."""


def computed(spark: SparkSession, before: DataFrame | None) -> DataFrame:
    """Compute the stage's rows: an id, and a digest of the upstream's row."""
    rows = spark.range(ROWS, numPartitions=2).withColumn("digest", F.lit("")) if before is None else before
    digest = F.concat_ws("-", "id", "digest")
    for _ in range(ROUNDS):
        digest = F.sha2(digest, 256)
    return rows.select("id", digest.alias("digest")).cache()  # the output and the totals both compute it


def totals(rows: DataFrame, keys: int) -> DataFrame:
    """Compute one row per key."""
    return rows.groupBy((F.col("id") % keys).alias("key")).agg(F.count("*").alias("rows"), F.max("digest").alias("top"))


def die_once(spark: SparkSession, told: str | None) -> None:
    """Kill this driver by SIGKILL, if it is to die and no driver before it has died."""
    if told is None or Path(told).exists():
        return
    Path(told).touch()
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    for process in (jvm, os.getpid()):
        os.kill(process, signal.SIGKILL)


def in_epoch(facts: dict[str, Any]) -> None:
    """Run with Cairn."""
    with Epoch.current() as epoch:
        rows = computed(epoch.spark, epoch.read(facts["upstream"]) if facts["upstream"] else None)
        epoch.write(rows)
        epoch.snapshot("totals", totals(rows, facts["keys"]), key=["key"])
        die_once(epoch.spark, facts["dies"])


def plainly(facts: dict[str, Any]) -> None:
    """Run without Cairn, as plain pipelines are written: the output is overwritten, the table is appended to."""
    spark = SparkSession.builder.getOrCreate()
    folder, upstream = facts["plain"], facts["upstream"]
    rows = computed(spark, spark.read.parquet(f"{folder}/{upstream}") if upstream else None)
    rows.write.mode("overwrite").parquet(f"{folder}/{facts['stage']}")
    totals(rows, facts["keys"]).write.mode("append").parquet(f"{folder}/totals-{facts['stage']}")
    die_once(spark, facts["dies"])


if __name__ == "__main__":
    told: dict[str, Any] = json.loads(sys.argv[1])
    if told["plain"] is None:
        in_epoch(told)
    else:
        plainly(told)
