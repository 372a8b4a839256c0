"""Writes forty ids of its epoch on a Spark Connect server.

ids_on_server.py GATES: while there is `hold/<job>/<run>/<attempt>/<stage>` below it, each id takes a minute; the
process of the stage is then in `reached/…`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cairn.spark import Epoch

IDS = 40
MINUTE = "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 60000000000L * (id - id + 1))"


def unless_held(epoch: Epoch, gates: str, rows: DataFrame) -> DataFrame:
    """Give the rows; those of a stage that is held take so long that it stays in the middle of its write."""
    where = f"{epoch.job}/{epoch.run_id}/{epoch.attempt}/{epoch.stage}"
    if not Path(gates, "hold", where).exists():
        return rows
    reached = Path(gates, "reached", where)
    reached.parent.mkdir(parents=True, exist_ok=True)
    new = reached.with_name(f"{reached.name}.new")
    new.write_text(str(os.getpid()))
    new.rename(reached)
    # Spark leaves out a column that nothing asks for.
    return rows.withColumn("waited", F.expr(MINUTE)).where("coalesce(waited, '') <> 'never'").select("id")


if __name__ == "__main__":
    with Epoch.current() as epoch:
        first = int(epoch.run_id.removeprefix("e")) * 1000
        rows = epoch.spark.range(first, first + IDS, numPartitions=2)
        epoch.write(unless_held(epoch, sys.argv[1], rows))
