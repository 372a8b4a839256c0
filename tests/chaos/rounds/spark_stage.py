"""A stage of the chaos pipeline on real Spark: sums by key, the list of the runs that it has read, and a table of both.

spark_stage.py GATES UPSTREAM…: a stage without upstreams reads its run's rows, any other what its upstreams wrote. It
waits at the gate as `submit.py` does, and keeps what the drivers without Spark keep, in Spark's own files.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from inputs import rows  # type: ignore[import-not-found]  # lies beside this file where it is submitted
from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch

if __name__ == "__main__":
    gates, upstreams = Path(sys.argv[1]), sys.argv[2:]
    with Epoch.current() as epoch:
        where = f"{epoch.job}/{epoch.run_id}/{epoch.stage}"
        reached = gates / "reached" / where
        reached.parent.mkdir(parents=True, exist_ok=True)
        reached.with_suffix(".new").write_text(str(os.getppid()))  # the JVM's
        reached.with_suffix(".new").rename(reached)
        pause = threading.Event()
        while (gates / "hold" / where).exists():
            pause.wait(0.1)
        # All upstreams pass the same rows on.
        read = (
            epoch.read(upstreams[0])
            if upstreams
            else epoch.spark.createDataFrame(rows(epoch.job, epoch.epoch), "key string, amount long")
        )
        before, log = epoch.state("totals"), epoch.list_state("log")
        both = read if before is None else before.union(read)
        sums = both.groupBy("key").agg(F.sum("amount").alias("amount")).cache()
        runs = [*(run for part in log or () for run in part), epoch.epoch]
        epoch.write(read)
        epoch.snapshot("totals", sums, key=["key"])
        epoch.snapshot_list("log", [runs])
        epoch.put("runs", runs)
        epoch.publish(epoch.stage, sums)
