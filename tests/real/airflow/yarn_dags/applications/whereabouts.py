"""Counts rows into a state, and says in which container and by which Python and which `airflow_cairn` it does so.

whereabouts.py GATES: while the file `hold-<run>-<attempt>` is below that folder it waits inside of its epoch, before
it writes, after `reached-<run>-<attempt>` has told its process id.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from pyspark.sql import functions as F

import airflow_cairn
from airflow_cairn.spark import Epoch

ROWS = 100

if __name__ == "__main__":
    gates = Path(sys.argv[1])
    with Epoch.current() as epoch:
        point = f"{epoch.run_id}-{epoch.attempt}"
        (gates / f"reached-{point}.new").write_text(str(os.getpid()))
        (gates / f"reached-{point}.new").rename(gates / f"reached-{point}")
        pause = threading.Event()
        while (gates / f"hold-{point}").exists():
            pause.wait(0.05)
        first = int(epoch.run_id.removeprefix("e")) * 1000
        # In Python, so that the executor's Python is used as well as the driver's.
        worker = F.udf(lambda number: number if "CONTAINER_ID" in os.environ else -1, "long")
        today = epoch.spark.range(first, first + ROWS, numPartitions=1).select(worker("id").alias("id"))
        before = epoch.state("seen")
        epoch.snapshot("seen", today if before is None else before.union(today), key=["id"])
        epoch.put("containers", [*epoch.get("containers", []), os.environ["CONTAINER_ID"]])
        epoch.put("python", os.path.realpath(sys.executable))
        epoch.put("runtime", airflow_cairn.__file__)
