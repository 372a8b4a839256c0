"""One stage of `bench.last_ack`: counts its epochs."""

from __future__ import annotations

from airflow_cairn.spark import Epoch

with Epoch.current() as epoch:
    epoch.put("epochs", (epoch.get("epochs") or 0) + 1)
