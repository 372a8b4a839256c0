"""A stage with a real file as its state, without a Spark session and without a JVM (tests/support/driver_stand_in.py).

Its state is a list of the runs that it has read, in order, each with enough beside it that the list does not fit into
the acknowledgement (semantics A4). It can be held as `reader.py` can, at the point of its stage's name before it has
read or written anything; further at `<stage>.writing`, when one of its two files is there, `<stage>.written`, and
`<stage>.acknowledged`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, cast

from counting import stop_at  # type: ignore[import-not-found]  # Python finds it in this folder

from airflow_cairn.checkpoint import Coordinator
from airflow_cairn.checkpoint.documents.attempt import Handover
from airflow_cairn.spark import Epoch
from airflow_cairn.spark.handover.conf import parse

FILLER = "x" * 30_000

if __name__ == "__main__":
    handed = parse(json.loads(os.environ["CAIRN_TEST_DRIVER_CONF"]).get)
    store = handed.open_store()
    handover, _ = Coordinator(store, handed.job).files.read(Handover, handed.handover_key)
    # No DataFrame is read or written, so nobody asks for the session.
    with Epoch(cast(Any, None), store, handover) as epoch:
        gates, point = sys.argv[1], f"{epoch.job}/{epoch.run_id}/{epoch.attempt}/{epoch.stage}"
        stop_at(gates, point, os.getpid())
        (before,) = epoch.list_state("filled") or [[]]
        epoch.snapshot_list("filled", [[*before, f"{epoch.run_id} {FILLER}"]])
        stop_at(gates, f"{point}.writing", os.getpid())
        epoch.snapshot_list("newest", [[f"{epoch.run_id} {FILLER}"]])
        epoch.put("folded", [*epoch.get("folded", []), epoch.run_id])
        stop_at(gates, f"{point}.written", os.getpid())
    stop_at(gates, f"{point}.acknowledged", os.getpid())
