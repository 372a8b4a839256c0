"""The scheduler sees a DAG only as it was serialised: everything of ours must survive that."""

import json
from typing import Any

import pytest
from airflow.serialization.serialized_objects import DagSerialization

from tests.support.airflow_fixtures import DagFile


def test_a_group_survives(dag_file: DagFile) -> None:
    dag = dag_file.dag("""
from airflow_cairn.checkpoint import MasterHook

class Feed(MasterHook):
    name = "feed"

class Warehouse:
    name = "warehouse"
    def notify_checkpoint_complete(self, notice): ...
    def notify_checkpoint_aborted(self, notice): ...

with DAG("flights", schedule=None):
    restore = RestoreLatestCheckpointOperator(task_id="restore", storage="file:///lake")
    with CheckpointedTaskGroup(
        "epoch", reads_window=False, storage="s3://lake/cairn", aws_conn_id="lake", slice_detail={"offsets": [1]},
        config=CheckpointConfig(), master_hooks=[Feed()], listeners=[Warehouse()],
    ) as group:
        a = SparkEpochOperator(task_id="a", application="a.py", conf={"spark.x": "{{ ds }}"}, retries=2)
        b = SparkEpochOperator(task_id="b", application="b.py", parallelism=2)
        a >> b
    restore >> group
""")
    once = DagSerialization.to_dict(dag)
    text = json.dumps(once, sort_keys=True)
    back = DagSerialization.from_dict(json.loads(text))
    assert set(back.task_ids) == set(dag.task_ids)
    stage: Any = back.get_task("epoch.a")
    assert stage.task_type == "SparkEpochOperator"
    assert stage.has_on_retry_callback
    assert stage.has_on_failure_callback
    assert stage.storage == "s3://lake/cairn"
    assert stage.job == "flights"
    assert stage.downstream_task_ids == {"epoch.b"}
    for task_id in ("trigger_checkpoint", "a", "wait_for_checkpoint"):
        task: Any = back.get_task(f"epoch.{task_id}")
        names = ["Checkpoint", "Spark"] if task_id == "a" else ["Checkpoint"]
        assert [link.name for link in task.operator_extra_links] == names, task_id
    assert back.get_task("epoch.wait_for_checkpoint").trigger_rule == "none_failed"
    trigger: Any = back.get_task("epoch.trigger_checkpoint")
    assert trigger.slice_detail == {"offsets": [1]}
    # Parsed again, the same text comes out: otherwise each parse would make a new version of the DAG.
    assert json.dumps(DagSerialization.to_dict(dag), sort_keys=True) == text
    assert " at 0x" not in text


def test_modes_of_the_sensor_survive(dag_file: DagFile) -> None:
    dag = dag_file.dag("""
with DAG("d", schedule=None):
    CheckpointSensor(task_id="r", storage="file:///lake", deferrable=False, mode="reschedule")
    CheckpointSensor(task_id="p", storage="file:///lake", deferrable=False)
""")
    back = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    waiting: Any = back.get_task("r")
    assert waiting.reschedule is True
    assert any("ReadyToReschedule" in type(dep).__name__ for dep in waiting.deps)


@pytest.mark.parametrize(
    "source",
    [
        'FileSource("s3://lake/in", "*.csv", max_files=3)',
        'DataInterval(gap="keep")',
        "AssetEvents()",
        "Offsets(ask)",
        '[FileSource("s3://lake/in"), AssetEvents()]',
    ],
)
def test_a_group_with_a_source_survives(dag_file: DagFile, source: str) -> None:  # semantics T8
    text = f"""
from airflow_cairn.checkpoint import AssetEvents, DataInterval, FileSource, Offsets

def ask(position, run):
    return None, None

with DAG("flights", schedule=None):
    with CheckpointedTaskGroup("epoch", storage="s3://lake/cairn", source={source}):
        SparkEpochOperator(task_id="a", application="a.py")
"""
    serialised = json.dumps(DagSerialization.to_dict(dag_file.dag(text)))
    assert " at 0x" not in serialised, "otherwise each parse would make a new version of the DAG"
    back = DagSerialization.from_dict(json.loads(serialised))
    assert set(back.task_ids) == {"epoch.trigger_checkpoint", "epoch.a", "epoch.wait_for_checkpoint"}


def test_the_serialised_dag_says_how_to_open_the_job(dag_file: DagFile) -> None:
    """The page in Airflow has nothing else to find a job by; the text must survive the scheduler's own reading."""
    dag = dag_file.dag("""
from airflow_cairn.checkpoint import FixedDelayRestart, RegionalCheckpoints

class Own(TriggerCheckpointOperator): ...

with DAG("flights", schedule=None):
    Own(
        task_id="t", storage="s3://lake/cairn", job="j", aws_conn_id="lake", reads_window=False,
        stages=[StageSpec("a")],
        config=CheckpointConfig(
            timeout=timedelta(minutes=5), regional=RegionalCheckpoints(),
            restart_strategy=FixedDelayRestart(3, timedelta(seconds=9)),
        ),
    )
""")
    (task,) = json.loads(json.dumps(DagSerialization.to_dict(dag)))["dag"]["tasks"]
    found = json.loads(task["__var"]["cairn_job"])
    assert found["aws_conn_id"] == "lake"
    assert found["config"]["timeout_s"] == 300
    assert found["config"]["restart_strategy"] == {"type": "FixedDelayRestart", "attempts": 3, "delay_s": 9.0}
    assert found["config"]["regional"]["max_failure_ratio"] == 0.3
    assert found["config"]["savepoint_target"] is None
    assert found["stages"] == [{"uid": "a", "task_id": None, "instances": 0, "reads": [], "pipelined": []}]
    back: Any = DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task("t")
    assert json.loads(back.cairn_job) == found


def test_the_serialised_dag_draws_a_groups_stages_a_mapped_task_as_one(dag_file: DagFile) -> None:
    dag = dag_file.dag("""
with DAG("flights", schedule=None), CheckpointedTaskGroup("epoch", reads_window=False, storage="s3://lake/cairn"):
    scan = SparkEpochOperator.partial(task_id="scan", application="scan.py").expand(name=["a", "b", "c"])
    clean = SparkEpochOperator(task_id="clean", application="clean.py", exchange="pipelined")
    count = SparkEpochOperator(task_id="count", application="count.py")
    scan >> clean
    clean >> count
""")
    tasks = json.loads(json.dumps(DagSerialization.to_dict(dag)))["dag"]["tasks"]
    (text,) = [each["__var"]["cairn_job"] for each in tasks if "cairn_job" in each["__var"]]
    assert json.loads(text)["stages"] == [
        {"uid": "scan", "task_id": "epoch.scan", "instances": 3, "reads": [], "pipelined": []},
        {"uid": "clean", "task_id": "epoch.clean", "instances": 0, "reads": ["scan"], "pipelined": ["scan"]},
        {"uid": "count", "task_id": "epoch.count", "instances": 0, "reads": ["clean"], "pipelined": []},
    ]
