"""A stage as a client of a Spark Connect server, where only Airflow's side is asked; what `reader.py` is without Spark.

Its state is a list of the runs that it has read, in order. It can be held at the point of its stage's name before it
has done anything, and fails, without a word, where there is `fail/<job>/<run>/<stage>`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from clients import note_client  # type: ignore[import-not-found]  # Python finds it in this folder
from counting import stop_at  # type: ignore[import-not-found]

from airflow_cairn.spark import Epoch

if __name__ == "__main__":
    gates = os.environ["CAIRN_TEST_GATES"]
    with Epoch.current() as epoch:
        client = note_client(epoch, gates)
        stop_at(gates, f"{epoch.job}/{epoch.run_id}/{epoch.attempt}/{epoch.stage}", client)
        if Path(gates, "fail", epoch.job, epoch.run_id, epoch.stage).exists():
            sys.exit(1)
        epoch.put("folded", [*epoch.get("folded", []), epoch.run_id])
