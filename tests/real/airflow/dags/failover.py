"""Pipelines of several stages, one DAG a scenario; what dies in each is up to the test of its name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, get_parsing_context

from airflow_cairn.checkpoint import CheckpointConfig, FileSource
from airflow_cairn.checkpoint.documents.attempt import StageSpec
from airflow_cairn.operators import (
    CheckpointedTaskGroup,
    Pipelined,
    SparkEpochOperator,
    TriggerCheckpointOperator,
    restore_latest_checkpoint,
)
from airflow_cairn.sensors import CheckpointSensor

if TYPE_CHECKING:
    from airflow.sdk import Context

APPLICATION = Path(__file__).parent / "applications" / "region.py"
STORAGE = os.environ["CAIRN_TEST_STORAGE"]
GATES = os.environ["CAIRN_TEST_GATES"]
CONF = json.loads(os.environ["CAIRN_TEST_SPARK_CONF"])
RETAIN_TWO = CheckpointConfig(retained=2)

FAILOVER = "failover"
"""The tag of each DAG that `test_failover*.py` run."""

IN_SPARK: dict[str, Any] = {
    "application": str(APPLICATION),
    "conf": CONF,
    "retries": 2,
    "retry_delay": timedelta(seconds=1),
}
READER: dict[str, Any] = {**json.loads(os.environ["CAIRN_TEST_READER"]), "retries": 2, "retry_delay": 1}
"""Stages whose driver is a process without a JVM, where it is only asked what Airflow does."""
ON_SERVER: dict[str, Any] = {"conn_id": "warm", "conf": {"spark.sql.shuffle.partitions": "2"}}
"""Options of a stage that is a client of the Spark Connect server that all these pipelines share."""
KEEPING = {**READER, "application": str(APPLICATION.with_name("keeping.py"))}
"""Options of a stage without a JVM that writes files."""

DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")}
LINE = {"a": (), "b": ("a",), "c": ("b",)}
TWO = {"a": (), "b": ("a",)}


def is_anothers(dag_id: str) -> bool:
    """Tell whether a task parses this file that is of another DAG: fifty DAGs cost it a quarter of a second."""
    return get_parsing_context().dag_id not in (None, dag_id)


def pipeline(
    dag_id: str,
    reads: Mapping[str, Sequence[str]],
    pipelined: Sequence[tuple[str, str]] = (),
    *,
    stage: Mapping[str, Any] = IN_SPARK,
    in_spark: str | None = None,
    clients: Sequence[str] = (),
    runs: int = 1,
    storage: str = STORAGE,
    config: CheckpointConfig = RETAIN_TWO,
    **group: Any,
) -> None:
    """Make a DAG of one checkpointed group.

    Args:
        dag_id: of the DAG, and the job's name.
        reads: the stages, each with those that it reads from.
        pipelined: edges whose exchange is pipelined; all others are blocking.
        stage: what every stage is given.
        in_spark: the one stage that is a Spark job where the others are none; it makes its own rows.
        clients: the stages that run on a Spark Connect server.
        runs: how many runs may be active at once.
        storage: the storage root.
        config: of the group.
        **group: what else the group is given.
    """
    if is_anothers(dag_id):
        return
    with (
        DAG(dag_id, schedule=None, max_active_runs=runs, tags=[FAILOVER]),
        CheckpointedTaskGroup("epoch", storage=storage, config=config, **{"reads_window": False, **group}),
    ):
        made: dict[str, SparkEpochOperator] = {}
        for uid, upstreams in reads.items():
            arguments = [GATES] if uid == in_spark else [GATES, *upstreams]
            given = IN_SPARK if uid == in_spark else stage
            given = as_client(given) if uid in clients else given
            made[uid] = SparkEpochOperator(task_id=uid, application_args=arguments, **given)
            for each in upstreams:
                if (each, uid) in pipelined:
                    made[each] >> Pipelined() >> made[uid]
                else:
                    made[each] >> made[uid]


def on_both(dag_id: str, *args: Any, clients: Sequence[str], **options: Any) -> None:
    """Make a pipeline, and its like with stages on a Spark Connect server."""
    pipeline(dag_id, *args, **options)
    pipeline(f"{dag_id}_connect", *args, clients=clients, **options)


def as_client(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Give what makes a stage do on a Spark Connect server what it does without one."""
    folding = str(APPLICATION.with_name("folding.py"))
    application = stage["application"] if stage is IN_SPARK else folding
    return {**stage, **ON_SERVER, "application": application}


def mapped(dag_id: str, second: Mapping[str, Any]) -> None:
    """Make a DAG whose second stage is mapped three times."""
    if is_anothers(dag_id):
        return
    with (
        DAG(dag_id, schedule=None, tags=[FAILOVER]),
        CheckpointedTaskGroup("epoch", reads_window=False, storage=STORAGE),
    ):
        a = SparkEpochOperator(task_id="a", **READER)
        b = SparkEpochOperator.partial(task_id="b", **second).expand(application_args=[["a"]] * 3)
        c = SparkEpochOperator(task_id="c", **READER)
        a >> b >> c


def in_pieces(dag_id: str, config: CheckpointConfig, stage: Mapping[str, Any]) -> None:
    """Make a DAG of the pieces without the group: the sensor waits from the start, beside the stages."""
    if is_anothers(dag_id):
        return
    stages = (StageSpec("a"), StageSpec("b", upstream=("a",)))
    where: dict[str, Any] = {"storage": STORAGE, "job": dag_id}
    callbacks: dict[str, Any] = dict.fromkeys(("on_retry_callback", "on_failure_callback"), restore_latest_checkpoint)
    with DAG(dag_id, schedule=None, max_active_runs=1, tags=[FAILOVER]):
        trigger = TriggerCheckpointOperator(
            task_id="trigger", reads_window=False, stages=stages, config=config, **where
        )
        a = SparkEpochOperator(task_id="a", application_args=[GATES], **where, **callbacks, **stage)
        b = SparkEpochOperator(task_id="b", application_args=[GATES, "a"], **where, **callbacks, **stage)
        trigger >> a >> b
        trigger >> CheckpointSensor(task_id="wait", poke_interval=1.0, **where)


def deliver_at_once(context: Context) -> None:
    """Bring a failure's callback four times, all at once."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(restore_latest_checkpoint, [context] * 4))


# The numbers are those of the table in docs/failover.md.
on_both("failover_1", LINE, clients="abc", outlets=[Asset("failover_1")])
on_both("failover_2", LINE, [("a", "b")], clients="abc")
all_pipelined = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]
on_both("failover_3", DIAMOND, all_pipelined, stage=READER, in_spark="c", clients="bc")
on_both("failover_4", DIAMOND, stage=READER, clients="bc")
for number in (5, 8):
    on_both(f"failover_{number}", TWO, stage=READER, in_spark="b", clients="b")
for number in (6, 7):
    on_both(f"failover_{number}", TWO, stage=READER, in_spark="a", clients="ab")
pipeline("failover_9", TWO, stage=READER)
in_pieces("failover_10", RETAIN_TWO, READER)
often = [deliver_at_once, restore_latest_checkpoint]
often_called = READER | {"on_retry_callback": often, "on_failure_callback": often}
on_both("failover_11", TWO, stage=often_called, clients="b")
on_both("failover_12", TWO, stage=READER, clients="b")
mapped("failover_13", READER)
mapped("failover_13_connect", as_client(READER))
on_both("failover_14", {"a": (), "b": ()}, stage=READER, clients="ab")
pipeline(
    "failover_15",
    TWO,
    stage=READER | {"retries": 20, "retry_delay": 5},
    storage="s3://failover/jobs",
    aws_conn_id="failover_s3",
)
for name, tolerable in {"some": 1, "none": 0}.items():
    in_pieces(f"failover_16_{name}", CheckpointConfig(tolerable_failed_checkpoints=tolerable), READER | {"retries": 0})
on_both("failover_17", TWO, stage=READER, runs=3, clients="b")
on_both("failover_19", TWO, [("a", "b")], stage=READER, clients="ab", airflow_api_conn_id="refused_api")
for point in ("started", "writing", "written", "acknowledged"):
    for kind in ("some", "each"):
        pipeline(f"failover_21_{kind}_{point}", LINE, stage=KEEPING)
on_both("failover_21_in_spark", {"b": ()}, clients="b")
pipeline("failover_25", TWO, stage=READER | {"retries": 0})
arriving = FileSource(f"file://{Path(GATES).parent}/arriving", "*.txt")
pipeline("failover_26", TWO, stage=READER, runs=2, reads_window=None, source=arriving)
pipeline("failover_27", TWO, [("a", "b")], stage=READER)
pipeline(
    "failover_29",
    TWO,
    stage=READER | {"retries": 20, "retry_delay": 5},
    storage="s3://refusing/jobs",
    aws_conn_id="refusing_s3",
)
pipeline("failover_30", TWO, stage=READER, config=CheckpointConfig(retained=2, min_pause=timedelta(seconds=10)))
pipeline("failover_31", TWO, stage=READER, in_spark="b")
