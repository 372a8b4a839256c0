"""Counts rows into a state, and stops when they are written for as long as the test wants it to.

counting.py GATES: below that folder the file `hold/<job>/<run>/<attempt>/written` makes this application wait; it says
that it has arrived by `reached/<job>/<run>/<attempt>/written`, which holds the process id of the JVM.
The runs are named e1, e2, …; each has rows of its own.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from airflow_cairn.spark import Epoch

ROWS = 100
PARTITIONS = 2


def stop_at(gates: str, where: str, jvm: int) -> None:
    """Wait at a point while the test holds it."""
    reached = Path(gates, "reached", where)
    reached.parent.mkdir(parents=True, exist_ok=True)
    reached.with_suffix(".new").write_text(str(jvm))
    reached.with_suffix(".new").rename(reached)
    pause = threading.Event()
    while Path(gates, "hold", where).exists():
        pause.wait(0.05)


if __name__ == "__main__":
    gates = sys.argv[1]
    epoch = Epoch.current()
    with epoch:
        jvm = int(epoch.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        point = f"{epoch.job}/{epoch.run_id}/{epoch.attempt}"
        first = int(epoch.run_id.removeprefix("e")) * 1000
        today = epoch.spark.range(first, first + ROWS, numPartitions=PARTITIONS)
        before = epoch.state("seen")
        epoch.snapshot("seen", today if before is None else before.union(today), key=["id"])
        epoch.publish("recent", epoch.spark.range(first, first + ROWS))
        epoch.put("epochs", epoch.get("epochs", 0) + 1)
        stop_at(gates, f"{point}/written", jvm)
