"""The pipelines that rounds of chaos strike: one needs Spark, and all keep what the auditor knows how to read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.sdk import DAG

from airflow_cairn.checkpoint import CheckpointConfig, Offsets
from airflow_cairn.checkpoint.source import RunFacts
from airflow_cairn.operators import CheckpointedTaskGroup, ConnectSession, Pipelined, SparkEpochOperator, epoch_stage

CONFIG = CheckpointConfig(retained=2, timeout=timedelta(minutes=10), tolerable_failed_checkpoints=5)
STAGE: dict[str, Any] = {"application": __file__, "retries": 60, "retry_delay": timedelta(seconds=1)}
CHANGED: frozenset[str] = frozenset()
"""A round changes this line: `extra` adds a stage to `wide`, `removed` takes its last one away, `renamed` gives that
one's task another name."""
SPARK: dict[str, Any] = {**STAGE, **json.loads(os.environ["CHAOS_SPARK"])}
GATES = os.environ["CHAOS_GATES"]


def group(places: int = 1, session: ConnectSession | None = None, **reads: Any) -> CheckpointedTaskGroup:
    """Make the checkpointed group of a DAG.

    Args:
        places: how many checkpoints may be pending at once.
        session: the server that its stages share.
        **reads: what its runs read, if the name of a run does not say that.
    """
    config = replace(CONFIG, max_concurrent_checkpoints=places)
    storage: dict[str, Any] = {"storage": os.environ["CHAOS_STORAGE"], "aws_conn_id": "chaos", "session": session}
    return CheckpointedTaskGroup("epoch", config=config, **storage, **(reads or {"reads_window": False}))


def next_offset(position: Any, _run: RunFacts) -> tuple[Any, Any]:
    """Have each run read one number, so that the position says how many runs the state has read."""
    at = position or 0
    return at, at + 1


with DAG("fast", schedule=None, max_active_runs=1), group():
    source = SparkEpochOperator(task_id="src", **STAGE)
    left = SparkEpochOperator(task_id="left", **STAGE)
    right = SparkEpochOperator(task_id="right", **STAGE)
    end = SparkEpochOperator(task_id="end", **STAGE)
    source >> Pipelined() >> left
    source >> right
    [left, right] >> end

with DAG("wide", schedule=None, max_active_runs=1), group():
    first = SparkEpochOperator(task_id="first", **STAGE)
    parts = SparkEpochOperator.partial(task_id="parts", **STAGE).expand(application_args=[["0"], ["1"]])
    first >> Pipelined() >> parts
    if "removed" not in CHANGED:
        parts >> SparkEpochOperator(task_id="final" if "renamed" in CHANGED else "last", uid="last", **STAGE)
    if "extra" in CHANGED:
        first >> SparkEpochOperator(task_id="extra", **STAGE)

with DAG("overlap", schedule=None, max_active_runs=2), group():
    SparkEpochOperator(task_id="one", **STAGE) >> SparkEpochOperator(task_id="two", **STAGE)

with DAG("overtaken", schedule=None, max_active_runs=2), group(places=2):
    SparkEpochOperator(task_id="one", **STAGE) >> SparkEpochOperator(task_id="two", **STAGE)

with DAG("reading", schedule=None, max_active_runs=2), group(source=Offsets(next_offset)):
    SparkEpochOperator(task_id="one", **STAGE) >> SparkEpochOperator(task_id="two", **STAGE)

with DAG("service", schedule=None, max_active_runs=1), group():
    batch: dict[str, Any] = {
        "file": STAGE["application"],
        "retries": STAGE["retries"],
        "retry_delay": STAGE["retry_delay"],
    }
    waits = epoch_stage(LivyOperator)(task_id="one", **batch)
    waits >> epoch_stage(LivyOperator)(task_id="two", deferrable=True, **batch)

with DAG("spark", schedule=None, max_active_runs=1), group():
    reader = SparkEpochOperator(task_id="first", application_args=[GATES], **SPARK)
    keepers = SparkEpochOperator.partial(task_id="parts", **SPARK).expand(application_args=[[GATES, "first"]] * 2)
    writer = SparkEpochOperator(task_id="last", application_args=[GATES, "parts-0"], **SPARK)
    reader >> Pipelined() >> keepers >> writer

SERVER = ConnectSession(conf=SPARK["conf"], idle=timedelta(minutes=10))
CLIENT: dict[str, Any] = {**STAGE, "application": SPARK["application"]}
with DAG("warm", schedule=None, max_active_runs=1), group(session=SERVER):
    reader = SparkEpochOperator(task_id="first", application_args=[GATES], **CLIENT)
    keepers = SparkEpochOperator.partial(task_id="parts", **CLIENT).expand(application_args=[[GATES, "first"]] * 2)
    writer = SparkEpochOperator(task_id="last", application_args=[GATES, "parts-0"], **CLIENT)
    reader >> keepers >> writer
