"""Writes a state by two tasks, each of twenty rows; its argument says how many milliseconds a row takes."""

import sys

from airflow_cairn.spark import Epoch

ns_each = int(sys.argv[1]) * 1_000_000
try:
    with Epoch.current() as epoch:
        rows = epoch.spark.range(0, 40, 1, 2).selectExpr(
            "id", f"java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', {ns_each}L * (id - id + 1)) AS x"
        )
        print("WRITING", flush=True)
        epoch.snapshot("minutes", rows)
except SystemExit as ended:
    print("TOLD TO END AFTER", ended.__context__, flush=True)
    raise
