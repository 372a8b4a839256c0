"""One stage of a pipeline whose rows count how often they were folded in; the tests stop it at named points.

region.py GATES UPSTREAM…: a stage without upstreams reads its epoch's rows, any other what its upstreams wrote. Each
row is an id and the number of ways on which it came here, so that nothing can be lost or doubled without being seen. As
for `counting.py`, below GATES the file `hold/<job>/<run>/<attempt>/<stage>.<point>` makes the stage wait at the point;
`fail/<job>/<run>/<stage>` makes it fail of what no other try cures, and `grow/<job>` has its state grow by deltas. By
spark-submit it is a driver, on a Spark Connect server a client.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

from clients import is_client, note_client  # type: ignore[import-not-found]  # Spark finds it in this folder
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cairn.checkpoint.errors import FencedError
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.stored import merges

ROWS = 100


def stop_at(gates: str, where: str, driver: int) -> None:
    """Wait at a point while the test holds it."""
    reached = Path(gates, "reached", where)
    reached.parent.mkdir(parents=True, exist_ok=True)
    new = reached.with_name(f"{reached.name}.new")
    new.write_text(str(driver))
    new.rename(reached)
    pause = threading.Event()
    while Path(gates, "hold", where).exists():
        pause.wait(0.05)


def jvm_of(epoch: Epoch) -> int:
    """Give the process that a test kills where this one is a driver."""
    return int(epoch.spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]


@contextlib.contextmanager
def noting_the_fence(epoch: Epoch, gates: str) -> Iterator[None]:
    """Write down what an application is told whose execution was replaced: its task's log may be gone by then."""
    try:
        yield
    except FencedError as told:
        answer = Path(gates, "told", epoch.job, epoch.run_id, str(epoch.attempt), epoch.stage)
        answer.parent.mkdir(parents=True, exist_ok=True)
        answer.write_text(str(told))
        raise


def own_rows(epoch: Epoch) -> DataFrame:
    """Make the epoch's input: the run e2 has the ids from 2000 on."""
    first = int(epoch.run_id.removeprefix("e")) * 1000
    return epoch.spark.range(first, first + ROWS, numPartitions=1).select("id", F.lit(1).cast("long").alias("ways"))


def stopping_halfway(rows: DataFrame, gates: str, where: str, driver: int) -> DataFrame:
    """Pass the rows on; the writer of the middle one stops there. It takes Python workers, so only if asked."""

    def slowly(number: int) -> int:
        if number % 1000 == ROWS // 2:
            stop_at(gates, where, driver)
        return number

    return rows.select(F.udf(slowly, "long")("id").alias("id"), "ways")


if __name__ == "__main__":
    gates, upstreams = sys.argv[1], sys.argv[2:]
    epoch = Epoch.current()
    with noting_the_fence(epoch, gates), epoch:
        driver = note_client(epoch, gates) if is_client(epoch) else jvm_of(epoch)
        point = f"{epoch.job}/{epoch.run_id}/{epoch.attempt}/{epoch.stage}"
        stop_at(gates, f"{point}.started", driver)
        read = reduce(DataFrame.union, map(epoch.read, upstreams)) if upstreams else own_rows(epoch)
        today = read.groupBy("id").agg(F.sum("ways").alias("ways"))
        if Path(gates, "hold", f"{point}.writing").exists():
            today = stopping_halfway(today, gates, f"{point}.writing", driver)
        if Path(gates, "fail", epoch.job, epoch.run_id, epoch.stage).exists():
            # A client learns of it only when it asks the server what that is.
            _ = today.select("no_such_column").schema
        epoch.write(today)
        if Path(gates, "grow", epoch.job).exists():
            merges.WHOLE_BYTES = 0  # so that a state of a few rows grows by deltas, and a compaction has some to merge
            epoch.update("seen", today, key=["id"])
        else:
            before = epoch.state("seen")
            epoch.snapshot("seen", today if before is None else before.union(today), key=["id"])
        stop_at(gates, f"{point}.written", driver)
    stop_at(gates, f"{point}.acknowledged", driver)
