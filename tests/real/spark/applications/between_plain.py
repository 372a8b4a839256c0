"""Stages with an epoch's block before and after programs without one."""

import sys

from airflow_cairn import Epoch

with Epoch.current() as epoch:
    if sys.argv[1] == "flights":
        rows = [("BER", 5), ("BER", 7), ("MUC", 1), ("MUC", None)]
        epoch.write(epoch.spark.createDataFrame(rows, "airport string, delay int"))
    else:
        days = [tuple(row) for row in epoch.read("clean").select("day", "airport").distinct().collect()]
        totals = epoch.read("totals", "totals", kind="state").collect()
        league = epoch.read("totals", "league", kind="table").collect()
        print("FOUND", sorted(days), sorted(map(tuple, totals)), sorted(map(tuple, league)))
