"""Adds a day's flights to a total per route, which is kept by key."""

from airflow_cairn.spark import Epoch

with Epoch.current() as epoch:
    assert epoch.slice.start is not None
    day = int(epoch.slice.start[8:10])
    today = epoch.spark.range(day * 100, day * 100 + 100).selectExpr(
        "concat('route ', id % 7) AS route", "id AS flights"
    )
    totals = epoch.state("totals")
    every = today if totals is None else totals.unionByName(today)
    epoch.snapshot("totals", every.groupBy("route").sum("flights").toDF("route", "flights"), key="route")
