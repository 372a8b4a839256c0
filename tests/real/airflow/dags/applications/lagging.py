"""Two stages: `read` writes what comes in, `count` folds it into a state, and stops where the test wants it to lag.

lagging.py GATES: the gates are those of `counting.py`. The runs are named e1, e2, …; each has rows of its own.
"""

from __future__ import annotations

import os
import sys

from counting import stop_at  # type: ignore[import-not-found]  # Spark finds it in this folder

from airflow_cairn.spark import Epoch

ROWS = 10

if __name__ == "__main__":
    with Epoch.current() as epoch:
        if epoch.stage == "read":
            first = int(epoch.run_id.removeprefix("e")) * 1000
            epoch.write(epoch.spark.range(first, first + ROWS))
        else:
            stop_at(sys.argv[1], f"{epoch.job}/{epoch.run_id}/{epoch.attempt}/{epoch.stage}", os.getpid())
            rows, before = epoch.read("read"), epoch.state("seen")
            epoch.snapshot("seen", rows if before is None else before.union(rows), key=["id"])
            epoch.put("slices", len(epoch.slices))
