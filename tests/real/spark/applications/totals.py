"""A small application: counts its runs, keeps a state, publishes a table, and says what it found."""

import importlib.util
import json
import sys

import airflow_cairn
from airflow_cairn.spark import Epoch, table

with Epoch.current() as epoch:
    before = epoch.state("totals")
    seen = [] if before is None else [row.flights for row in before.collect()]
    totals = epoch.spark.range(3).selectExpr("id", f"id + {len(seen)} as flights").repartition(2)
    epoch.snapshot("totals", totals, key="id")
    epoch.publish("league", totals)
    epoch.put("runs", epoch.get("runs", 0) + 1)
    if "fail" in sys.argv:
        raise ValueError("this day is broken")
    found = {
        "spark": epoch.spark.version,
        "python": sys.version_info[:2],
        "airflow": importlib.util.find_spec("airflow") is not None,
        "boto3": importlib.util.find_spec("boto3") is not None,
        "cairn": airflow_cairn.__file__,
        "runs": epoch.get("runs"),
        "seen": sorted(seen),
        "slice": [epoch.slice.start, epoch.slice.end],
    }
if epoch.restored_from is not None:
    storage = epoch.spark.conf.get("spark.cairn.storage") or ""
    found["league"] = sorted(row.flights for row in table(epoch.spark, storage, epoch.job, "league").collect())
print("FOUND", json.dumps(found))
epoch.spark.stop()
