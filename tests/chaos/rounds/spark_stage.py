"""A stage of the chaos pipeline on real Spark: sums by key, the runs that it has read, a table, and states that grow.

spark_stage.py GATES UPSTREAM…: a stage without upstreams reads its run's rows, any other what its upstreams wrote. It
waits at the gate as `submit.py` does, and keeps what the drivers without Spark keep, in Spark's own files.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from inputs import changed_keys, rows  # type: ignore[import-not-found]  # lies beside this file where it is submitted
from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch
from airflow_cairn.spark.stored import merges

if __name__ == "__main__":
    merges.WHOLE_BYTES = 0  # so that states of a few rows grow by runs, and a compaction has some to merge
    gates, upstreams = Path(sys.argv[1]), sys.argv[2:]
    with Epoch.current() as epoch:
        where = f"{epoch.job}/{epoch.run_id}/{epoch.stage}"
        reached = gates / "reached" / where
        reached.parent.mkdir(parents=True, exist_ok=True)
        is_client = "connect" in type(epoch.spark).__module__
        reached.with_suffix(".new").write_text(str(os.getpid() if is_client else os.getppid()))  # else the JVM's
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
        so_far = [run for part in log or () for run in part]
        changed, runs = changed_keys(so_far, [epoch.epoch]), [*so_far, epoch.epoch]
        epoch.write(read)
        epoch.snapshot("totals", sums, key=["key"])
        epoch.snapshot_list("log", [runs])
        epoch.put("runs", runs)
        of_frame = epoch.spark.createDataFrame
        deletes = of_frame([(key,) for key, value in changed.items() if value is None], "k string")
        set_now = of_frame([each for each in changed.items() if each[1] is not None], "k string, v string")
        epoch.update("newest", set_now, key="k", deletes=deletes)
        epoch.aggregate("count", of_frame([("all", 1)], "k string, v long"), key="k", merge={"v": "sum"})
        epoch.publish(epoch.stage, sums)
