"""Reads the totals, and counts its days. On the second day its first try dies after its write, unacknowledged."""

import os
import signal
import sys
from pathlib import Path

from airflow_cairn.spark import Epoch

marker = Path(sys.argv[1])
with Epoch.current() as epoch:
    assert epoch.slice.start is not None
    epoch.snapshot("league", epoch.read("routes", "totals").orderBy("flights"))
    epoch.put("days", epoch.get("days", 0) + 1)
    if epoch.slice.start.startswith("2026-01-02") and not marker.exists():
        marker.touch()
        os.kill(os.getppid(), signal.SIGKILL)  # the JVM
        os.kill(os.getpid(), signal.SIGKILL)
