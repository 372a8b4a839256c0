"""Two drivers that are replaced while they write to S3: the first is left to notice it, the second is to be killed.

Says `FENCED` and why when the first has cleaned up after itself, and goes on when it is told a line.
"""

from __future__ import annotations

import json
import sys

from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.spark.execution import fence
from airflow_cairn.storage import S3Options
from tests.real.spark.pipeline import Pipeline, session_builder

ROWS = 9000
"""Of each of the two tasks: the first one's take no time, the second one's some minutes."""

storage, endpoint, region, conf = sys.argv[1:]
fence.LOOK_EVERY_MS = 100
spark = session_builder().config(map=json.loads(conf)).getOrCreate()
pipeline = Pipeline(storage, spark, s3=S3Options(endpoint_url=endpoint, region=region))
slow_second = f"java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 20000000L * int(id >= {ROWS}))"
for run_id in ("one", "two"):
    pipeline.trigger(run_id)
    try:
        with pipeline.epoch(run_id) as epoch:
            epoch.snapshot("minutes", spark.range(0, 2 * ROWS, 1, 2).selectExpr("id", f"{slow_second} AS x"))
    except FencedError as error:
        print("FENCED", error.message, flush=True)
    sys.stdin.readline()
