"""A keyed pipeline: adds the epoch's flights to a total per route. With `kill` it dies before it acknowledges."""

import json
import os
import signal
import sys
from importlib.util import find_spec

import airflow_cairn
from airflow_cairn.spark import Epoch, table

with Epoch.current() as epoch:
    begin, end = int(epoch.slice.detail["begin"]), int(epoch.slice.detail["end"])
    today = epoch.spark.range(begin, end).selectExpr("concat('route ', id % 7) AS route", "id AS flights")
    totals = epoch.state("totals")
    merged = (today if totals is None else totals.unionByName(today)).groupBy("route").sum("flights")
    epoch.snapshot("totals", merged.toDF("route", "flights"), key="route")
    exact = today.selectExpr("route", "CAST(flights AS DECIMAL(20,2)) AS flights")
    after = {
        "updated": epoch.update("updated", merged.toDF("route", "flights"), key="route"),
        "aggregated": epoch.aggregate("aggregated", exact, key="route", merge={"flights": "sum"}),
    }
    for name, given in after.items():
        if merged.toDF("route", "flights").exceptAll(given.selectExpr("route", "CAST(flights AS BIGINT)")).count():
            raise ValueError(f"the state {name} is not given back as it has to be")
        state = epoch.state(name)
        if (state is None) != (totals is None):
            raise ValueError(f"the state {name} is not there when it has to be")
        if (
            state is not None
            and totals is not None
            and state.selectExpr("route", "CAST(flights AS BIGINT)").exceptAll(totals).count()
        ):
            raise ValueError(f"the state {name} is not what it has to be")
    epoch.publish("league", merged.toDF("route", "flights"))
    epoch.put("runs", epoch.get("runs", 0) + 1)
    if "fail" in sys.argv:
        raise ValueError("this day is broken")
    if "kill" in sys.argv:
        os.kill(os.getppid(), signal.SIGKILL)  # the JVM
        os.kill(os.getpid(), signal.SIGKILL)
    found = {
        "spark": epoch.spark.version,
        "python": ".".join(map(str, sys.version_info[:2])),
        "there": [name for name in ("airflow", "boto3") if find_spec(name)],
        "cairn": airflow_cairn.__file__,
        "runs": epoch.get("runs"),
    }
if epoch.restored_from is not None:
    storage = epoch.spark.conf.get("spark.cairn.storage") or ""
    found["league"] = {row.route: row.flights for row in table(epoch.spark, storage, epoch.job, "league").collect()}
print("FOUND", json.dumps(found))
epoch.spark.stop()
