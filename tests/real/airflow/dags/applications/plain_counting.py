"""Does what counting.py does, and knows nothing of Cairn: its arguments name the places.

plain_counting.py GATES GATE BEFORE AFTER ALL: the run's name is in the gate, `<job>/<run>/<attempt>/written`.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from pyspark.sql import SparkSession

ROWS = 100
PARTITIONS = 2

if __name__ == "__main__":
    gates, gate, before, after, everything = sys.argv[1:]
    first = int(gate.split("/")[1].removeprefix("e")) * 1000
    spark = SparkSession.builder.getOrCreate()
    today = spark.range(first, first + ROWS, numPartitions=PARTITIONS)
    spark.read.parquet(before).union(today).write.parquet(after)
    spark.read.parquet(after).write.parquet(everything)
    reached = Path(gates, "reached", gate)
    reached.parent.mkdir(parents=True, exist_ok=True)
    reached.with_suffix(".new").write_text(str(os.getppid()))  # the JVM's
    reached.with_suffix(".new").rename(reached)
    pause = threading.Event()
    while Path(gates, "hold", gate).exists():
        pause.wait(0.05)
