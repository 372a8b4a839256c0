"""Pipelines of several stages, one DAG a scenario; what dies in each is up to the test of its name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

APPLICATION = Path(__file__).parent / "applications" / "region.py"
STORAGE = os.environ["CAIRN_TEST_STORAGE"]
GATES = os.environ["CAIRN_TEST_GATES"]
CONF = json.loads(os.environ["CAIRN_TEST_SPARK_CONF"])

FAILOVER = "failover"
"""The tag of each DAG that `test_failover.py` runs."""

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}


def pipeline(
    dag_id: str, reads: Mapping[str, Sequence[str]], pipelined: Sequence[tuple[str, str]] = (), **group: Any
) -> None:
    """Make a DAG of one checkpointed group.

    Args:
        dag_id: of the DAG, and the job's name.
        reads: the stages, each with those that it reads from.
        pipelined: edges whose exchange is pipelined; all others are blocking.
        **group: what else the group is given.
    """
    with (
        DAG(dag_id, schedule=None, max_active_runs=1, tags=[FAILOVER]),
        CheckpointedTaskGroup("epoch", storage=STORAGE, config=CheckpointConfig(retained=2), **group),
    ):
        made: dict[str, SparkEpochOperator] = {}
        for uid, upstreams in reads.items():
            made[uid] = SparkEpochOperator(
                task_id=uid,
                application=str(APPLICATION),
                application_args=[GATES, *upstreams],
                conf=CONF,
                retries=2,
                retry_delay=timedelta(seconds=1),
            )
            for each in upstreams:
                if (each, uid) in pipelined:
                    made[each] >> Pipelined() >> made[uid]
                else:
                    made[each] >> made[uid]


# The numbers are those of the table in docs/failover.md.
pipeline("failover_2", {"a": (), "b": ("a",), "c": ("b",)}, [("a", "b")])
pipeline("failover_3", DIAMOND, [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")])
pipeline("failover_4", DIAMOND)
pipeline("failover_6", {"a": (), "b": ("a",)})
pipeline("failover_19", {"a": (), "b": ("a",)}, [("a", "b")], airflow_api_conn_id="refused_api")
