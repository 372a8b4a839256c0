"""Reads and rewrites its whole state; prints how long each took. Its argument is the number of rows."""

import json
import sys
import time

from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch

with Epoch.current() as epoch:
    begun = time.monotonic()
    before = epoch.state("totals")
    if before is not None:
        before.agg(*(F.max(name) for name in before.columns)).first()
    restored = time.monotonic()
    rows = epoch.spark.range(int(sys.argv[1])).select(
        F.col("id").alias("key"), F.xxhash64("id").alias("n"), F.sha1(F.col("id").cast("string")).alias("text")
    )
    epoch.snapshot("totals", rows, key="key")
    written = time.monotonic()
print("SPENT", json.dumps({"restore": restored - begun, "snapshot": written - restored}))
