"""Ten equal stages for each arm of `bench.recovery`; a DAG file, put into the DAGs' folder of its Airflow."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from itertools import pairwise, zip_longest
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig
from airflow_cairn.operators import CheckpointedTaskGroup, Pipelined, SparkEpochOperator

TOLD: dict[str, Any] = json.loads(os.environ["CAIRN_BENCH"])
FOLDER: str = TOLD["folder"]
REGIONS: list[list[str]] = TOLD["regions"]
STAGE: dict[str, Any] = {
    "application": TOLD["application"],
    "conf": TOLD["conf"],
    "retries": 1,
    "retry_delay": timedelta(seconds=1),
}


def pipeline(arm: str, dying: bool, config: CheckpointConfig | None) -> None:
    """Make an arm's DAG: a line of stages, with pipelined edges between those of one region.

    Without a configuration the operators are Airflow's own, without Cairn.
    """
    where = f"file://{FOLDER}/storage"
    with (
        DAG(arm, schedule=None, max_active_runs=1),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=where, config=config) if config else nullcontext(),
    ):
        made: list[Any] = []
        stages = [stage for region in REGIONS for stage in region]
        for stage, upstream in zip_longest(stages, [None, *stages[:-1]]):
            facts = {
                "stage": stage,
                "upstream": upstream,
                "keys": TOLD["keys"],
                "plain": None if config else f"{FOLDER}/plain",
                "dies": f"{FOLDER}/died-in-{arm}" if dying and stage == TOLD["dies"] else None,
            }
            operator = SparkEpochOperator if config else SparkSubmitOperator
            made.append(operator(task_id=stage, application_args=[json.dumps(facts)], **STAGE))
        join(made)


def join(made: Sequence[Any]) -> None:
    """Put the stages in a line."""
    begins = {region[0] for region in REGIONS}
    for first, second in pairwise(made):
        if isinstance(second, SparkEpochOperator) and second.uid not in begins:
            first >> Pipelined() >> second
        else:
            first >> second


pipeline("healthy", False, CheckpointConfig())
pipeline("region", True, CheckpointConfig())
pipeline("full", True, CheckpointConfig(failover="full"))
pipeline("retry", True, None)
